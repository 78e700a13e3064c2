import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.conversation import json
from proxy.conversation.tools import ToolCall
from proxy.guardrails.tool_prompts.fragments import (
    escape,
    write_arguments,
    write_content,
    write_tools,
)
from proxy.guardrails.tool_prompts.history import find_convention
from tests.unit.guardrails.tool_prompts.retelling import RESPOND, SEND, WAIT, values, write_and_read

MARKS = ("</tool_call>", "[INST]", "``")


@given(value=values)
def test_escaping_removes_marks_from_json_text_and_keeps_its_value(value: json.JsonValue) -> None:
    escaped = escape(json.dump_text(value), MARKS)
    assert not any(mark in escaped for mark in (*MARKS[:2], "```"))
    assert json.dump_text(json.parse(escaped)) == json.dump_text(value)


@given(text=st.text("\\u0cx`<"))
def test_a_mark_after_a_backslash_is_escaped(text: str) -> None:
    escaped = escape(json.dump_text(text + "</tool_call>"), MARKS)
    assert json.parse(escaped) == text + "</tool_call>"


def test_write_tools_copies_the_definitions_of_the_client_byte_by_byte() -> None:
    assert write_tools([SEND, WAIT], (), "\n") == f"{SEND.source.decode()}\n{WAIT.source.decode()}"


def test_write_arguments_removes_only_the_white_space_around_the_arguments() -> None:
    assert write_arguments(ToolCall("a", "f", ' {"a":  1.0} '), ()) == '{"a":  1.0}'


@pytest.mark.parametrize("text", ['{"a": ', "12", '"text"', "", "null", '{"a": 1, "a": 2}'])
def test_a_result_that_is_no_json_object_or_list_is_written_as_a_string(text: str) -> None:
    assert json.parse(write_content(text, ())) == text


HERMES_CONVENTION = find_convention("hermes")
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


def test_the_hermes_prompt_describes_tools_between_tags() -> None:
    duty = " Every reply is a call: to answer the user, call respond."
    source = RESPOND.source.decode() + "\n"
    assert HERMES_CONVENTION.describe([SEND, WAIT], RESPOND) == DESCRIPTION % (source, duty)
    assert HERMES_CONVENTION.describe([SEND, WAIT], None) == DESCRIPTION % ("", "")


def test_each_call_is_written_between_separate_tags() -> None:
    calls = [ToolCall("a", "send", '{"to": "</tool_call>"}'), ToolCall("b", "wait", "{}")]
    assert HERMES_CONVENTION.write_calls("Sending.", calls) == (
        "Sending.\n\n"
        '<tool_call>\n{"name": "send", "arguments": {"to": "\\u003c/tool_call>"}}\n</tool_call>\n'
        '<tool_call>\n{"name": "wait", "arguments": {}}\n</tool_call>'
    )


def test_a_result_is_written_as_a_json_object_or_a_string() -> None:
    assert HERMES_CONVENTION.write_result("send", "a", "a </tool_response>") == (
        '<tool_response>\n{"name": "send", "content": "a \\u003c/tool_response>"}\n</tool_response>'
    )
    assert HERMES_CONVENTION.write_result("send", "a", ' {"ok": 1} ') == (
        '<tool_response>\n{"name": "send", "content": {"ok": 1}}\n</tool_response>'
    )


def test_a_call_that_is_repeated_in_its_arguments_is_read_as_one_call() -> None:
    """Models repeat a call in its arguments. Arguments that are meant to look so are misread."""
    (call,) = write_and_read(
        HERMES_CONVENTION, ToolCall("a", "send", '{"name": "send", "arguments": {"to": "x"}}')
    )
    assert call.arguments == {"to": "x"}


def test_white_space_around_a_tool_name_is_removed() -> None:
    (call,) = write_and_read(HERMES_CONVENTION, ToolCall("a", " send ", "{}"))
    assert call.name == "send"


def test_written_arguments_deeper_than_the_reader_limit_cannot_be_read() -> None:
    deep = '{"a":' * 62 + "1" + "}" * 62
    assert write_and_read(HERMES_CONVENTION, ToolCall("a", "send", deep))
    assert not write_and_read(HERMES_CONVENTION, ToolCall("a", "send", f'{{"a":[{deep}]}}'))


def test_calls_written_after_an_open_code_fence_cannot_be_read() -> None:
    assert write_and_read(HERMES_CONVENTION, ToolCall("a", "send", "{}"), text='"') != []
    assert write_and_read(HERMES_CONVENTION, ToolCall("a", "send", "{}"), text="```sh\nls") == []
