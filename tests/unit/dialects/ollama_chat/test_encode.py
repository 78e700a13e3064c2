from msgspec.structs import replace

from proxy.conversation import json
from proxy.conversation.json import JsonObject
from proxy.conversation.requests import Question
from proxy.conversation.tools import ToolUse
from proxy.dialects.ollama_chat.encode import encode_question
from proxy.dialects.ollama_chat.fields import Terms
from tests.fakes.questions import question

TERMS = Terms("qwen3:8b", 8192)


def body(asked: Question) -> JsonObject:
    value = json.parse(encode_question(asked, TERMS))
    assert isinstance(value, dict)
    return value


def test_a_question_is_streamed_and_never_cut() -> None:
    assert body(question(text="Hi")) == {
        "model": "qwen3:8b",
        "messages": [{"role": "user", "content": "Hi"}],
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": "get_weather",
                    "parameters": {"type": "object", "properties": {}},
                },
            }
        ],
        "stream": True,
        "truncate": False,
        "shift": False,
        "options": {"seed": 7, "num_ctx": 8192},
    }


def test_a_model_that_must_not_call_hears_of_no_tool() -> None:
    assert "tools" not in body(question(tool_choice=ToolUse.NONE))
    assert "tools" not in body(question(has_tools=False))


def test_what_is_demanded_of_the_model_is_no_matter_for_ollama() -> None:
    assert body(question(tool_choice=ToolUse.REQUIRED)) == body(question())


def test_a_constrained_attempt_has_the_prompt_of_the_first() -> None:
    schema: JsonObject = {"type": "object"}
    first = body(question())
    assert body(replace(question(), schema=schema)) == {**first, "format": schema}
