from hypothesis import given

from proxy.conversation import json
from proxy.conversation.json import JsonValue
from proxy.conversation.tools import ToolCall, WrittenCall
from proxy.guardrails.tool_prompts.json_contract import JsonContractConvention
from tests.unit.guardrails.tool_prompts.retelling import (
    RESPOND,
    SEND,
    WAIT,
    read_again,
    retold,
    texts,
)

CONTRACT = JsonContractConvention()
TOOLS = """Tools, one a line:
{"type":"function","function":{"name":"send","description":"send","parameters":\
{"type":"object","properties":{"to":{"type":"string"}}}}}
{"type": "function",
 "function": {"name": "wait"}}

"""
CALL = '{"type": "tool_call", "name": "TOOL", "arguments": {"PARAMETER": "VALUE"}}\n'
RESULTS = 'You get the results as objects of the type "tool_result".'


def test_the_final_form_stands_for_the_synthetic_tool() -> None:
    assert CONTRACT.describe([SEND, WAIT], RESPOND) == (
        TOOLS + "Always reply with JSON and nothing else. "
        f"To call a tool, one object a line for several calls:\n{CALL}"
        'To answer the user:\n{"type": "final", "content": "YOUR COMPLETE ANSWER"}\n' + RESULTS
    )


def test_without_it_only_calls_are_described() -> None:
    assert CONTRACT.describe([SEND, WAIT], None) == (
        TOOLS + "To call a tool, reply with JSON and nothing else, "
        f"one object a line for several calls:\n{CALL}" + RESULTS
    )


def test_what_was_said_is_content_of_the_first_call() -> None:
    calls = [ToolCall("a", "send", '{"to": "x"}'), ToolCall("b", "wait", "{}")]
    written = CONTRACT.write_calls('"Now"', calls)
    assert written == (
        '{"type": "tool_call", "content": "\\"Now\\"", "name": "send", "arguments": {"to": "x"}}\n'
        '{"type": "tool_call", "name": "wait", "arguments": {}}'
    )
    assert read_again(CONTRACT, written, ["send", "wait"], "respond") == [
        WrittenCall("respond", {"message": '"Now"'}),
        WrittenCall("send", {"to": "x"}),
        WrittenCall("wait", {}),
    ]


@given(name=texts, text=texts)
def test_a_result_is_one_object_whatever_is_in_it(name: str, text: str) -> None:
    result = json.parse(CONTRACT.write_result(name, "a", text))
    assert isinstance(result, dict)
    assert (result["type"], result["name"]) == ("tool_result", name)
    assert result["content"] in (text, parsed(text))


def parsed(text: str) -> JsonValue:
    try:
        return json.parse(text)
    except ValueError:
        return text


def test_a_tool_that_is_not_offered_is_still_called() -> None:
    written = CONTRACT.write_calls("", [ToolCall("a", "send", "{}")])
    assert read_again(CONTRACT, written, ["wait"]) == [WrittenCall("send", {})]
    assert retold(CONTRACT, ToolCall("a", "respond", "{}")) == [WrittenCall("respond", {})]
