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
    contains_call,
    contains_mark,
    ends_here,
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
def test_the_start_of_every_marked_call_contains_a_mark(syntax: object) -> None:
    for known in SYNTAXES:
        if known is syntax and known.is_marked and known.anchor != "reply_start":
            assert all(contains_mark(f"x\n{opening}[") for opening in known.openings)
            tags = {tag for opening in known.openings for tag in _TAG.findall(opening)}
            assert tags <= TAGS | {"tools"}  # `tools` is also the name of an argument


def test_prose_and_data_contain_neither_a_mark_nor_a_call() -> None:
    text = 'if a < b: return [x, {"k": "v"}] # <b>the function</b> tool_call <table>'
    assert not contains_mark(text)
    assert not contains_call(text)


def test_plain_json_contains_a_call_but_no_mark() -> None:
    text = 'so {"name": "f", "arguments": {}}'
    assert contains_call(text)
    assert not contains_mark(text)


def test_the_pattern_of_closing_marks_matches_all_stray_closers() -> None:
    closers = STRAY_CLOSERS - RESULT_ENDS
    assert all(CLOSING.match(mark) for mark in closers if not mark.startswith("</think"))
    assert not CLOSING.match("</b>")


def calls_in(text: str) -> list[WrittenCall]:
    findings = find_calls(text, SYNTAXES, NAMES, NAMED)
    return [
        call for finding in findings if isinstance(finding, FoundCalls) for call in finding.calls
    ]


def is_meant(call: WrittenCall, *, data: str = "") -> bool:
    """Return whether a call is one of the two, contains all of `data`, or is rejected later."""
    arguments = call.arguments
    name = find_name(call.name, NAMES)
    if name is None or isinstance(arguments, str):
        return True  # the guardrails reject such a call later
    if isinstance(arguments, dict) and data and arguments.keys() == {"first"}:
        value = str(arguments["first"])
        return value == "one" or (data.strip() in value and "one" in value)
    return (name, arguments) in (FIRST, SECOND)


pairs = st.tuples(st.sampled_from(SPELLINGS), st.sampled_from(MARKED))


@settings(deadline=None, max_examples=examples(400))
@given(pairs, st.data())
def test_a_truncated_call_is_never_read_with_text_of_the_next_call(
    spellings: tuple[Spelling, Spelling], data: st.DataObject
) -> None:
    first, second = (
        spelling.one(call) for spelling, call in zip(spellings, (FIRST, SECOND), strict=True)
    )
    length = data.draw(st.integers(1, len(first) - 1))
    assert all(map(is_meant, calls_in(first[:length] + second)))


@settings(deadline=None, max_examples=examples(400))
@given(pairs, st.data())
def test_a_call_with_a_missing_mark_is_never_read_with_text_of_the_next_call(
    spellings: tuple[Spelling, Spelling], data: st.DataObject
) -> None:
    first, second = (
        spelling.one(call) for spelling, call in zip(spellings, (FIRST, SECOND), strict=True)
    )
    marks = [mark.span() for mark in _MARKS.finditer(first)] or [(0, 1)]
    start, end = data.draw(st.sampled_from(marks))
    between = data.draw(st.sampled_from(["", "\n"]))
    text = first[:start] + first[end:] + between + second
    assert all(map(is_meant, calls_in(text)))


@settings(deadline=None, max_examples=examples(400))
@given(pairs, st.data())
def test_a_call_inside_another_call_is_read_as_data_or_refused(
    spellings: tuple[Spelling, Spelling], data: st.DataObject
) -> None:
    first, second = (
        spelling.one(call) for spelling, call in zip(spellings, (FIRST, SECOND), strict=True)
    )
    tag_ends = [mark.end() for mark in _MARKS.finditer(first) if mark[0].endswith(">")] or [0]
    start, end = sorted(data.draw(st.tuples(st.sampled_from(tag_ends), st.sampled_from(tag_ends))))
    for text in (first[:start] + second + first[start:], first[:start] + second + first[end:]):
        assert all(is_meant(call, data=second) for call in calls_in(text))


ESCAPED = [
    spelling
    for spelling in SPELLINGS
    if '"{' not in spelling.one(FIRST) and '\\"' in spelling.one(("f", {"a": '"'}))
]


def test_more_than_25_syntaxes_write_strings_in_json() -> None:
    assert len(syntaxes_in(ESCAPED)) > 25


@settings(deadline=None, max_examples=examples(400))
@given(st.sampled_from(ESCAPED), st.sampled_from(SPELLINGS), st.data())
def test_a_value_that_quotes_a_call_without_escapes_is_read_completely(
    outer: Spelling, inner: Spelling, data: st.DataObject
) -> None:
    surroundings = st.text("a \n}]", max_size=3)
    quoted = data.draw(surroundings) + inner.one(SECOND) + data.draw(surroundings)
    text = outer.one(("alpha", {"first": quoted, "last": "z"})).replace('\\"', '"')
    for call in calls_in(text):
        if find_name(call.name, NAMES) == "alpha" and isinstance(call.arguments, dict):
            assert call.arguments == {"first": quoted, "last": "z"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # a partial mark
        ("", True),
        ("</", True),
        ("</tool_ca", True),
        ("</function", True),
        ("<tool_call|", True),
        # other texts
        ("<", False),
        ("x", False),
        ("</x", False),
        ("</tool_call>", False),
        ("</tool_call> x", False),
        ("</ ", False),
        (" </", False),
    ],
)
def test_a_value_may_end_at_the_end_of_a_text_and_at_a_partial_closing_mark(
    text: str, *, expected: bool
) -> None:
    assert read(ends_here, text) == (expected, text)


def test_a_complete_closing_mark_is_not_a_partial_closing_mark() -> None:
    assert is_half_closer("</tool_call")
    assert not is_half_closer("</tool_call>")


def test_an_attribute_without_its_quotation_mark_is_not_read_as_a_value() -> None:
    text = 'toolscall tool="alpha"argument key="first" type=string"oneargumentcalltools'
    assert calls_in(text.replace("type=", 'type="'))
    assert calls_in(text) == []
