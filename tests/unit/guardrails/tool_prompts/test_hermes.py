from proxy.conversation.tools import ToolCall
from proxy.guardrails.tool_prompts.hermes import HermesConvention
from tests.unit.guardrails.tool_prompts.retelling import RESPOND, SEND, WAIT, retold

HERMES = HermesConvention()
DESCRIPTION = """# Tools

<tools>
{"type":"function","function":{"name":"send","description":"send","parameters":\
{"type":"object","properties":{"to":{"type":"string"}}}}}
{"type": "function",
 "function": {"name": "wait"}}
%s</tools>

To call one of these tools, write its name and its arguments as JSON between tags, \
once for each call:
<tool_call>
{"name": "TOOL", "arguments": {"PARAMETER": "VALUE"}}
</tool_call>
You get the results between <tool_response> tags.%s"""


def test_tools_are_described_between_tags() -> None:
    duty = " Every reply is a call: to answer the user, call respond."
    source = RESPOND.source.decode() + "\n"
    assert HERMES.describe([SEND, WAIT], RESPOND) == DESCRIPTION % (source, duty)
    assert HERMES.describe([SEND, WAIT], None) == DESCRIPTION % ("", "")


def test_each_call_stands_between_tags_of_its_own() -> None:
    calls = [ToolCall("a", "send", '{"to": "</tool_call>"}'), ToolCall("b", "wait", "{}")]
    assert HERMES.write_calls("Sending.", calls) == (
        "Sending.\n\n"
        '<tool_call>\n{"name": "send", "arguments": {"to": "\\u003c/tool_call>"}}\n</tool_call>\n'
        '<tool_call>\n{"name": "wait", "arguments": {}}\n</tool_call>'
    )


def test_a_result_is_text_or_the_structure_that_it_is() -> None:
    assert HERMES.write_result("send", "a", "a </tool_response>") == (
        '<tool_response>\n{"name": "send", "content": "a \\u003c/tool_response>"}\n</tool_response>'
    )
    assert HERMES.write_result("send", "a", ' {"ok": 1} ') == (
        '<tool_response>\n{"name": "send", "content": {"ok": 1}}\n</tool_response>'
    )


def test_a_call_that_is_its_own_argument_is_read_as_one() -> None:
    """Models repeat a call in its own arguments; a tool that really takes one loses it."""
    (call,) = retold(HERMES, ToolCall("a", "send", '{"name": "send", "arguments": {"to": "x"}}'))
    assert call.arguments == {"to": "x"}


def test_space_around_a_name_is_lost() -> None:
    (call,) = retold(HERMES, ToolCall("a", " send ", "{}"))
    assert call.name == "send"


def test_arguments_deeper_than_the_reader_goes_are_not_read_again() -> None:
    deep = '{"a":' * 62 + "1" + "}" * 62
    assert retold(HERMES, ToolCall("a", "send", deep))
    assert not retold(HERMES, ToolCall("a", "send", f'{{"a":[{deep}]}}'))


def test_calls_behind_an_open_quotation_are_not_read_again() -> None:
    assert retold(HERMES, ToolCall("a", "send", "{}"), text='"') != []
    assert retold(HERMES, ToolCall("a", "send", "{}"), text="```sh\nls") == []
