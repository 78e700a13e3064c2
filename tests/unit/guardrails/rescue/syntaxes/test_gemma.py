from proxy.conversation.tools import ToolCall
from proxy.guardrails.tool_prompts.history import find_convention
from tests.unit.guardrails.tool_prompts.retelling import (
    RESPOND,
    SEND,
    WAIT,
    read_again,
    write_and_read,
)

GEMMA_CONVENTION = find_convention("gemma")


DESCRIPTION = """You can call these functions:
[
{"type":"function","function":{"name":"send","description":"send","parameters":\
{"type":"object","properties":{"to":{"type":"string"}}}}},
{"type": "function",
 "function": {"name": "wait"}}%s
]

To call one or several of them, end your reply with a JSON code block, one object for each call:
```json
{"name": "FUNCTION", "parameters": {"PARAMETER": "VALUE"}}
```
You get the results in tool_output code blocks.%s"""


def test_the_gemma_prompt_describes_functions_as_a_list() -> None:
    duty = " Every reply is a call: to answer the user, call respond."
    source = ",\n" + RESPOND.source.decode()
    assert GEMMA_CONVENTION.describe([SEND, WAIT], RESPOND) == DESCRIPTION % (source, duty)
    assert GEMMA_CONVENTION.describe([SEND, WAIT], None) == DESCRIPTION % ("", "")


def test_calls_are_written_in_a_single_code_block() -> None:
    calls = [ToolCall("a", "send", '{"to": "````"}'), ToolCall("b", "wait", "{}")]
    assert GEMMA_CONVENTION.write_calls("Sending.", calls) == (
        'Sending.\n\n```json\n{"name": "send", "parameters": {"to": "\\u0060`\\u0060`"}}\n'
        '{"name": "wait", "parameters": {}}\n```'
    )


def test_a_result_is_written_in_a_code_block() -> None:
    assert GEMMA_CONVENTION.write_result("send", "a", "a\n```\nb") == (
        '```tool_output\n{"name": "send", "content": "a\\n\\u0060``\\nb"}\n```'
    )


def test_the_call_formats_in_googles_documentation_are_read() -> None:
    for text in (
        '{"name": "send", "parameters": {"to": "x"}}',
        '[send(to="x")]',
        '```tool_code\nprint(send(to="x"))\n```',
    ):
        (call,) = read_again(GEMMA_CONVENTION, text, ["send"])
        assert (call.name, call.arguments) == ("send", {"to": "x"})


def test_a_call_of_a_tool_that_is_not_offered_is_read_as_a_json_answer() -> None:
    text = GEMMA_CONVENTION.write_calls("", [ToolCall("a", "send", "{}")])
    assert read_again(GEMMA_CONVENTION, text, ["wait"]) == []
    assert write_and_read(GEMMA_CONVENTION, ToolCall("a", "send", "{}")) != []
