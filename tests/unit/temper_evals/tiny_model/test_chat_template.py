import json

import jinja2
import pytest

from proxy.conversation.json import JsonObject
from temper_evals.tiny_model.chat_template import MUTE, NATIVE
from temper_evals.tiny_model.tools import tool_named

CALL: JsonObject = {"function": {"name": "set_timer", "arguments": {"minutes": 5}}}
WRITTEN = '<tool_call>\n{"name": "set_timer", "arguments": {"minutes": 5}}\n</tool_call>'


def rendered(template: str, *messages: JsonObject, tools: list[JsonObject] | None = None) -> str:
    environment = jinja2.Environment(autoescape=False)  # noqa: S701 - prompts are no pages
    environment.filters["tojson"] = json.dumps
    source = environment.from_string(template)
    return source.render(messages=[*messages], tools=tools or [], add_generation_prompt=True)


def test_each_tool_is_written_on_one_line() -> None:
    tools = [tool_named("book_table").describe(), tool_named("get_time").describe()]
    text = rendered(NATIVE, {"role": "user", "content": "Hello!"}, tools=tools)
    assert text == (
        "<|im_start|>system\nbook_table(name: string, people: integer)\nget_time(city: string)\n"
        "<|im_end|>\n<|im_start|>user\nHello!<|im_end|>\n<|im_start|>assistant\n"
    )


def test_a_parameter_of_several_types_is_of_any() -> None:
    tool: JsonObject = {
        "function": {
            "name": "say",
            "parameters": {"properties": {"what": {"type": ["string", "null"]}, "how": {}}},
        }
    }
    assert "say(what: any, how: any)" in rendered(NATIVE, tools=[tool])


@pytest.mark.parametrize(("template", "written"), [(NATIVE, WRITTEN), (MUTE, "")])
def test_only_the_native_one_writes_calls(template: str, written: str) -> None:
    text = rendered(
        template,
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "content": "M38"},
    )
    assert text == (
        f"<|im_start|>assistant\n{written}<|im_end|>\n"
        "<|im_start|>user\n<tool_response>\nM38\n</tool_response><|im_end|>\n"
        "<|im_start|>assistant\n"
    )


def test_calls_after_words_and_after_each_other_begin_a_line() -> None:
    both: JsonObject = {"role": "assistant", "content": "Yes.", "tool_calls": [CALL, CALL]}
    assert f"assistant\nYes.\n{WRITTEN}\n{WRITTEN}<|im_end|>" in rendered(NATIVE, both)
