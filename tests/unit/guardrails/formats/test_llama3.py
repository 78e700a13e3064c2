import pytest

from proxy.conversation.tools import ToolCall
from proxy.guardrails.formats.llama3 import Llama3Convention
from tests.unit.guardrails.tool_prompts.retelling import RESPOND, SEND, WAIT, retold

LLAMA = Llama3Convention()
DESCRIPTION = """You can call these functions:
{"type":"function","function":{"name":"send","description":"send","parameters":\
{"type":"object","properties":{"to":{"type":"string"}}}}}
{"type": "function",
 "function": {"name": "wait"}}
%s
To call one, write a line in this form, the arguments as a JSON object, \
and one line more for each further call:
<function=NAME>{"PARAMETER": "VALUE"}</function>
You get the results between <function_response> tags.%s"""


def test_functions_are_described_one_a_line() -> None:
    duty = " Every reply is a call: to answer the user, call respond."
    source = RESPOND.source.decode() + "\n"
    assert LLAMA.describe([SEND, WAIT], RESPOND) == DESCRIPTION % (source, duty)
    assert LLAMA.describe([SEND, WAIT], None) == DESCRIPTION % ("", "")


def test_each_call_is_a_line() -> None:
    calls = [ToolCall("a", "send", '{"to": "</function>"}'), ToolCall("b", "wait", "{}")]
    assert LLAMA.write_calls("Sending.", calls) == (
        'Sending.\n\n<function=send>{"to": "\\u003c/function>"}</function>\n'
        "<function=wait>{}</function>"
    )


def test_a_result_stands_between_tags() -> None:
    assert LLAMA.write_result("send", "a", "</function_response>") == (
        '<function_response>{"name": "send", "content": "\\u003c/function_response>"}'
        "</function_response>"
    )


@pytest.mark.parametrize("name", ["a b", "a>b", "a'b", "<f", 'a"'])
def test_names_that_no_tag_can_hold_are_not_read_again(name: str) -> None:
    assert name not in [call.name for call in retold(LLAMA, ToolCall("a", name, "{}"))]


def test_a_single_argument_named_arguments_is_taken_for_all_of_them() -> None:
    (call,) = retold(LLAMA, ToolCall("a", "send", '{"arguments": {"to": "x"}}'))
    assert call.arguments == {"to": "x"}
