from proxy.conversation.tools import ToolCall
from proxy.guardrails.tool_prompts.history import find_convention
from tests.unit.guardrails.tool_prompts.retelling import RESPOND, SEND, WAIT, read_again

MISTRAL_CONVENTION = find_convention("mistral")


DESCRIPTION = """[AVAILABLE_TOOLS][{"type":"function","function":{"name":"send",\
"description":"send","parameters":{"type":"object","properties":{"to":{"type":"string"}}}}}, \
{"type": "function",
 "function": {"name": "wait"}}%s][/AVAILABLE_TOOLS]

To call one or several of these tools, write [TOOL_CALLS] and a JSON list, and nothing behind it:
[TOOL_CALLS][{"name": "TOOL", "arguments": {"PARAMETER": "VALUE"}}]
You get the results between [TOOL_RESULTS] and [/TOOL_RESULTS].%s"""


def test_the_mistral_prompt_describes_tools_as_a_list() -> None:
    duty = " Every reply is a call: to answer the user, call respond."
    source = ", " + RESPOND.source.decode()
    assert MISTRAL_CONVENTION.describe([SEND, WAIT], RESPOND) == DESCRIPTION % (source, duty)
    assert MISTRAL_CONVENTION.describe([SEND, WAIT], None) == DESCRIPTION % ("", "")


def test_calls_are_written_as_a_list_with_their_ids() -> None:
    calls = [ToolCall("a[INST]", "send", '{"to": "[TOOL_CALLS]"}'), ToolCall("", "wait", "{}")]
    assert MISTRAL_CONVENTION.write_calls("Sending.", calls) == (
        'Sending.\n\n[TOOL_CALLS][{"name": "send", "arguments": {"to": "\\u005bTOOL_CALLS]"}, '
        '"id": "a\\u005bINST]"}, {"name": "wait", "arguments": {}}]'
    )


def test_a_written_result_contains_the_name_and_the_id_of_its_call() -> None:
    assert MISTRAL_CONVENTION.write_result("send", "a", "[/TOOL_RESULTS]") == (
        '[TOOL_RESULTS]{"name": "send", "content": "\\u005b/TOOL_RESULTS]", "call_id": "a"}'
        "[/TOOL_RESULTS]"
    )
    assert MISTRAL_CONVENTION.write_result("send", "", "[1]") == (
        '[TOOL_RESULTS]{"name": "send", "content": [1]}[/TOOL_RESULTS]'
    )


def test_a_list_of_calls_is_read_even_if_the_backend_removed_the_opening_mark() -> None:
    text = MISTRAL_CONVENTION.write_calls("", [ToolCall("a", "send", '{"to": "x"}')])
    (call,) = read_again(MISTRAL_CONVENTION, text.removeprefix("[TOOL_CALLS]"), ["send"])
    assert call.arguments == {"to": "x"}
