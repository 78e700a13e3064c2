import pytest

from proxy.conversation.json import JsonObject, JsonValue
from temper_evals.scenarios.suite import FAMILIES
from temper_evals.simulated.request import read_request, render_prompt, text_parameter

TASK = FAMILIES["single"](2)
ANSWERING: JsonObject = {
    "type": "function",
    "function": {
        "name": "say",
        "parameters": {"properties": {"n": {"type": "integer"}, "words": {"type": "string"}}},
    },
}


def with_tool() -> JsonObject:
    request = TASK.request(4)
    tools = request["tools"]
    assert isinstance(tools, list)
    return {**request, "tools": [*tools, ANSWERING]}


def test_read_request_finds_the_task_and_the_seed_or_returns_none() -> None:
    seen = read_request(TASK.request(4))
    assert seen is not None
    assert (seen.task, seen.seed, seen.key) == (TASK, 4, "single-2/4")
    assert seen.answer_tool is None
    assert read_request({"messages": [{"role": "user", "content": "hello"}]}) is None
    assert read_request({"messages": [{"role": "user", "content": "[case nothing-2/1]"}]}) is None
    assert read_request({}) is None


def test_a_tool_that_is_not_of_the_task_is_the_answer_tool() -> None:
    seen = read_request(with_tool())
    assert seen is not None
    assert seen.answer_tool == ANSWERING
    assert text_parameter(ANSWERING) == "words"
    assert text_parameter({"function": {"name": "x"}}) == ""


@pytest.mark.parametrize(
    ("choice", "forces", "named"),
    [
        (None, False, ""),
        ("none", False, ""),
        ("required", True, ""),
        ({"type": "function", "function": {"name": "say"}}, True, "say"),
        ({"type": "function"}, True, ""),
    ],
)
def test_the_attributes_forces_call_and_named_follow_from_tool_choice(
    choice: JsonValue, forces: bool, named: str
) -> None:
    seen = read_request({**TASK.request(1), "tool_choice": choice})
    assert seen is not None
    assert (seen.forces_call, seen.named) == (forces, named)


def test_the_schema_of_a_request_is_the_json_schema_of_its_response_format() -> None:
    form: JsonObject = {"type": "json_schema", "json_schema": {"schema": {"type": "object"}}}
    seen = read_request({**TASK.request(1), "response_format": form})
    assert seen is not None
    assert seen.schema == {"type": "object"}


def test_render_prompt_contains_tools_messages_and_calls() -> None:
    message: JsonObject = {"role": "assistant", "content": None, "tool_calls": [{"id": "q"}]}
    parts: JsonObject = {"role": "user", "content": [{"type": "text", "text": "picture"}]}
    prompt = render_prompt({"tools": [ANSWERING], "messages": [message, parts]})
    assert prompt.startswith('[{"type":"function"')
    assert '"id":"q"' in prompt
    assert "picture" in prompt
