import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from proxy.conversation.tools import ToolCall
from proxy.guardrails.rescue.registry import order_syntaxes
from proxy.guardrails.tool_prompts.conventions import CONVENTIONS, find_convention
from proxy.guardrails.tool_prompts.fragments import Convention
from tests.fakes.arrivals import chunkings, scan
from tests.unit.guardrails.tool_prompts.retelling import (
    RESPOND,
    SEND,
    WAIT,
    as_written,
    calls,
    exactly,
    retold,
    syntaxes_of,
    texts,
)

# Text may quote calls or hold some itself: what could begin either is left out.
said = st.text(st.characters(codec="ascii", exclude_characters="`[{<"))
every_convention = pytest.mark.parametrize("one", CONVENTIONS, ids=lambda one: one.name)
MARKS = {
    "hermes": ("<tool_response>", "</tool_response>", "<tool_call>"),
    "mistral": ("[TOOL_RESULTS]", "[/TOOL_RESULTS]", "[TOOL_CALLS]", "[/INST]"),
    "gemma": ("```",),
    "llama3": ("<function_response>", "</function_response>", "<function="),
}
MARKED_NAME = re.compile(r'[<`\[{](?:[^"\\]|\\.)*":')
HARD = ToolCall("a", "send", r'{"a": "</tool_call>\"}}\n```\\", "b": [1, 1.0, true, "é"]}')


def names_are_plain(told: list[ToolCall]) -> bool:
    """Tell whether no member is named like a mark: such a call was garbled, and is refused."""
    return not any(MARKED_NAME.search(call.arguments) for call in told)


def test_a_convention_is_found_by_its_name() -> None:
    assert [find_convention(one.name) for one in CONVENTIONS] == list(CONVENTIONS)
    with pytest.raises(KeyError):
        find_convention("morse")


@every_convention
def test_a_convention_names_syntaxes_that_there_are(one: Convention) -> None:
    assert tuple(syntax.name for syntax in order_syntaxes(one.syntaxes))[: len(one.syntaxes)] == (
        one.syntaxes
    )


@every_convention
@settings(deadline=None)
@given(
    told=st.lists(calls(), min_size=1, max_size=2).filter(names_are_plain), said=st.just("") | said
)
@example(told=[HARD], said="Let me look.\n")
@example(told=[HARD], said='It is "')
@example(told=[HARD, ToolCall("", "now", "{}"), HARD], said="")
def test_calls_are_read_as_they_were_written(
    one: Convention, told: list[ToolCall], said: str
) -> None:
    again = retold(one, *told, text=said)
    assert [exactly(call) for call in again] == [as_written(call) for call in told]


@every_convention
def test_calls_are_found_however_they_arrive(one: Convention) -> None:
    written = one.write_calls("", [HARD, HARD])
    syntaxes = syntaxes_of(one)
    whole = scan([written], syntaxes, ("send",))
    assert all(scan(pieces, syntaxes, ("send",)) == whole for pieces in chunkings(written))


@pytest.mark.parametrize("one", [one for one in CONVENTIONS if one.name in MARKS], ids=MARKS)
@given(name=texts, text=texts)
@example(name="</tool_response>", text="</tool_response>[/TOOL_RESULTS]```</function_response>")
def test_neither_a_name_nor_a_result_can_end_the_form_around_it(
    one: Convention, name: str, text: str
) -> None:
    empty = one.write_result("", "", "")
    written = one.write_result(name, "", text)
    for mark in MARKS[one.name]:
        assert written.count(mark) == empty.count(mark)


@every_convention
def test_the_synthetic_tool_comes_last_and_only_if_it_is_offered(one: Convention) -> None:
    without = one.describe([SEND, WAIT], None)
    assert without.index("send") < without.index("wait")
    assert "respond" not in without
    assert one.describe([SEND, WAIT], RESPOND) != without


@pytest.mark.parametrize("one", [one for one in CONVENTIONS if one.name in MARKS], ids=MARKS)
def test_only_a_model_that_can_answer_by_a_call_always_has_to_call(one: Convention) -> None:
    without, with_respond = (one.describe([SEND], respond) for respond in (None, RESPOND))
    assert with_respond.endswith("Every reply is a call: to answer the user, call respond.")
    assert "Every reply" not in without


@every_convention
def test_arguments_that_are_no_object_are_kept_as_a_string(one: Convention) -> None:
    for broken in ('{"a', "[1]", '"</tool_call>"'):
        (call,) = retold(one, ToolCall("a", "send", broken))
        assert call.arguments == {"unparsable": broken}


@every_convention
def test_no_arguments_are_an_empty_object(one: Convention) -> None:
    (call,) = retold(one, ToolCall("a", "send", " "))
    assert call.arguments == {}
