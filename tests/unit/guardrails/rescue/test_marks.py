import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.conversation.tools import Tool, WrittenCall
from proxy.guardrails.names import find_name
from proxy.guardrails.rescue.findings import FoundCalls
from proxy.guardrails.rescue.marks import (
    CLOSING,
    RESULT_ENDS,
    STRAY_CLOSERS,
    TAGS,
    ends_here,
    holds_call,
    holds_mark,
    is_half_closer,
)
from proxy.guardrails.rescue.registry import SYNTAXES
from proxy.guardrails.rescue.scanner import find_calls
from proxy.guardrails.rescue.syntaxes.tool_names import syntaxes_for
from tests.corpus.spellings import MARKED, SPELLINGS, Call, Spelling, syntaxes_in
from tests.examples import examples
from tests.fakes.arrivals import read

_TAG = re.compile(r"<([\w.-]+)[>= ]")
_MARKS = re.compile(r"""</[^>]*>|<[|\uff5c][^>]*>|<[\w=:" ]+>|[\]}"')]""")
FIRST: Call = ("alpha", {"first": "one"})
SECOND: Call = ("beta", {"second": "two"})
NAMES = ("alpha", "beta")
NAMED = syntaxes_for(
    [Tool(name, {"properties": {key: {}}}, b"") for name, (key,) in (FIRST, SECOND)]
)


@pytest.mark.parametrize("syntax", SYNTAXES, ids=lambda syntax: syntax.name)
def test_whatever_begins_a_marked_call_is_known(syntax: object) -> None:
    for known in SYNTAXES:
        if known is syntax and known.is_marked and known.anchor != "reply_start":
            assert all(holds_mark(f"x\n{opening}[") for opening in known.openings)
            tags = {tag for one in known.openings for tag in _TAG.findall(one)}
            assert tags <= TAGS | {"tools"}  # which is the name of an argument, too


def test_prose_and_data_hold_no_mark() -> None:
    text = 'if a < b: return [x, {"k": "v"}] # <b>the function</b> tool_call <table>'
    assert not holds_mark(text)
    assert not holds_call(text)


def test_plain_json_holds_a_call_but_no_mark() -> None:
    text = 'so {"name": "f", "arguments": {}}'
    assert holds_call(text)
    assert not holds_mark(text)


def test_closing_marks_are_known() -> None:
    closers = STRAY_CLOSERS - RESULT_ENDS
    assert all(CLOSING.match(mark) for mark in closers if not mark.startswith("</think"))
    assert not CLOSING.match("</b>")


def calls_in(text: str) -> list[WrittenCall]:
    found = find_calls(text, SYNTAXES, NAMES, NAMED)
    return [call for one in found if isinstance(one, FoundCalls) for call in one.calls]


def is_meant(call: WrittenCall, *, data: str = "") -> bool:
    """Tell whether a call is one of the two, or one that holds `data` whole and was cut nowhere."""
    arguments = call.arguments
    name = find_name(call.name, NAMES)
    if name is None or isinstance(arguments, str):
        return True  # neither is executed as it is
    if isinstance(arguments, dict) and data and arguments.keys() == {"first"}:
        value = str(arguments["first"])
        return value == "one" or (data.strip() in value and "one" in value)
    return (name, arguments) in (FIRST, SECOND)


pairs = st.tuples(st.sampled_from(SPELLINGS), st.sampled_from(MARKED))


@settings(deadline=None, max_examples=examples(400))
@given(pairs, st.data())
def test_a_call_that_is_cut_off_takes_nothing_of_the_next_one(
    spellings: tuple[Spelling, Spelling], data: st.DataObject
) -> None:
    first, second = (one.one(call) for one, call in zip(spellings, (FIRST, SECOND), strict=True))
    length = data.draw(st.integers(1, len(first) - 1))
    assert all(map(is_meant, calls_in(first[:length] + second)))


@settings(deadline=None, max_examples=examples(400))
@given(pairs, st.data())
def test_a_call_that_lacks_a_mark_takes_nothing_of_the_next_one(
    spellings: tuple[Spelling, Spelling], data: st.DataObject
) -> None:
    first, second = (one.one(call) for one, call in zip(spellings, (FIRST, SECOND), strict=True))
    marks = [mark.span() for mark in _MARKS.finditer(first)] or [(0, 1)]
    start, end = data.draw(st.sampled_from(marks))
    between = data.draw(st.sampled_from(["", "\n"]))
    text = first[:start] + first[end:] + between + second
    assert all(map(is_meant, calls_in(text)))


@settings(deadline=None, max_examples=examples(400))
@given(pairs, st.data())
def test_a_call_within_another_is_data_or_nothing(
    spellings: tuple[Spelling, Spelling], data: st.DataObject
) -> None:
    first, second = (one.one(call) for one, call in zip(spellings, (FIRST, SECOND), strict=True))
    places = [mark.end() for mark in _MARKS.finditer(first) if mark[0].endswith(">")] or [0]
    start, end = sorted(data.draw(st.tuples(st.sampled_from(places), st.sampled_from(places))))
    for text in (first[:start] + second + first[start:], first[:start] + second + first[end:]):
        assert all(is_meant(call, data=second) for call in calls_in(text))


ESCAPED = [
    one for one in SPELLINGS if '"{' not in one.one(FIRST) and '\\"' in one.one(("f", {"a": '"'}))
]


def test_most_syntaxes_write_strings_in_json() -> None:
    assert len(syntaxes_in(ESCAPED)) > 25


@settings(deadline=None, max_examples=examples(400))
@given(st.sampled_from(ESCAPED), st.sampled_from(SPELLINGS), st.data())
def test_a_call_quoted_without_escapes_is_never_torn(
    outer: Spelling, inner: Spelling, data: st.DataObject
) -> None:
    around = st.text("a \n}]", max_size=3)
    quoted = data.draw(around) + inner.one(SECOND) + data.draw(around)
    text = outer.one(("alpha", {"first": quoted, "last": "z"})).replace('\\"', '"')
    for call in calls_in(text):
        if find_name(call.name, NAMES) == "alpha" and isinstance(call.arguments, dict):
            assert call.arguments == {"first": quoted, "last": "z"}


@pytest.mark.parametrize("text", ["", "</", "</tool_ca", "</function", "<tool_call|"])
def test_a_text_may_end_within_a_closing_mark(text: str) -> None:
    assert read(ends_here, text) == (True, text)


@pytest.mark.parametrize("text", ["<", "x", "</x", "</tool_call>", "</tool_call> x", "</ ", " </"])
def test_other_texts_do_not_end_here(text: str) -> None:
    assert read(ends_here, text) == (False, text)


def test_a_whole_mark_is_no_half() -> None:
    assert is_half_closer("</tool_call")
    assert not is_half_closer("</tool_call>")
