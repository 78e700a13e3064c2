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
from tests.unit.guardrails.tool_prompts.retelling import SEND, WAIT, values

MARKS = ("</tool_call>", "[INST]", "``")


@given(value=values)
def test_an_escape_hides_a_mark_and_changes_no_value(value: json.JsonValue) -> None:
    written = escape(json.dump_text(value), MARKS)
    assert not any(mark in written for mark in (*MARKS[:2], "```"))
    assert json.dump_text(json.parse(written)) == json.dump_text(value)


@given(text=st.text("\\u0cx`<"))
def test_an_escape_behind_a_backslash_is_still_one(text: str) -> None:
    written = escape(json.dump_text(text + "</tool_call>"), MARKS)
    assert json.parse(written) == text + "</tool_call>"


def test_tools_keep_the_words_of_the_client() -> None:
    assert write_tools([SEND, WAIT], (), "\n") == f"{SEND.source.decode()}\n{WAIT.source.decode()}"


def test_arguments_keep_the_words_of_the_history() -> None:
    assert write_arguments(ToolCall("a", "f", ' {"a":  1.0} '), ()) == '{"a":  1.0}'


@pytest.mark.parametrize("text", ['{"a": ', "12", '"text"', "", "null", '{"a": 1, "a": 2}'])
def test_a_result_that_is_no_structure_is_a_string(text: str) -> None:
    assert json.parse(write_content(text, ())) == text
