# ruff: noqa: RUF001 - some quotation marks are a typesetter's

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from proxy.guardrails.rescue.values.cursor import Cursor, Waiting
from proxy.guardrails.rescue.values.endings import Around, can_end, is_end, still_inside
from tests.examples import examples
from tests.fakes.arrivals import read

PLACES = [
    Around("}"),
    Around("}", "}"),
    Around("]", "}", is_list=True),
    Around("]", is_list=True),
    Around(")"),
    Around(")", ")", is_list=True),
    Around("}", "]", ends=("</x>", "<|end|>")),
    Around("}", ends=("]!",)),
]
TEXTS = st.lists(
    st.sampled_from(
        [
            *"\"',:=/<&{}[]() \n#“”’",
            "a",
            "é",
            "1",
            "true",
            "f(",
            "x y",
            "b:",
            "</x>",
            " " * 41,
            "k" * 81,
        ]
    ),
    max_size=8,
).map("".join)


def ends(behind: str, around: Around) -> bool:
    """Tell whether a quotation mark in front of this text is an end."""
    cursor = Cursor(behind, is_finished=True)

    def reading() -> Waiting[None]:
        results.append((yield from is_end(cursor, around)))

    results: list[bool] = []
    list(reading())
    return results[0]


@settings(deadline=None, max_examples=examples(400))
@given(TEXTS, st.sampled_from(PLACES), st.sampled_from("\"'”’"))
@example(" b", PLACES[0], '"')
@example(", then left", PLACES[0], '"')
@example(', "b" c', PLACES[0], '"')
@example(' "b" c', PLACES[0], '"')
@example('"b', PLACES[2], '"')
@example(", b c", PLACES[2], '"')
@example("} c", PLACES[1], '"')
@example(')"', PLACES[4], '"')
@example(" # b", PLACES[0], '"')
@example(", # b", PLACES[2], '"')
@example(", #b", PLACES[0], '"')
@example(", “b”: c", PLACES[0], "”")
def test_what_is_passed_at_once_holds_no_end(behind: str, around: Around, quote: str) -> None:
    match = still_inside(quote, around).match(quote + behind)
    passed = match[0] if match else ""
    escaped = [place for place, char in enumerate(passed) if char == quote]
    assert not any(ends((quote + behind)[place + 1 :], around) for place in escaped)
    assert not any(end in passed for end in around.ends)


@pytest.mark.parametrize(
    ("text", "around"),
    [
        ('" b" c "d" e', PLACES[0]),
        ('", then left', PLACES[0]),
        ('", "b" c', PLACES[0]),
        ('"b"c', PLACES[2]),
        ('", b" c', PLACES[2]),
        ('"} c', PLACES[1]),
        ('\\n\\d" b', PLACES[0]),
        ('" b</y" c', PLACES[6]),
    ],
)
def test_the_frequent_cases_are_passed_at_once(text: str, around: Around) -> None:
    match = still_inside('"', around).match(text)
    assert match is not None
    assert '"' not in text[match.end() :]


def test_text_stays_as_it_is_up_to_a_mark_that_ends_the_value() -> None:
    match = still_inside('"', PLACES[6]).match('" b" c </x> " c')
    assert match is not None
    assert match[0] == '" b"'


@pytest.mark.parametrize(
    ("text", "around", "expected"),
    [
        ('"a", "b": 1', Around("}"), True),
        ('"a" b', Around("}"), False),
        ('"a"', Around("}"), False),
        ('"a" b', Around(), True),
        ('"a" b', Around("}", is_key=True), True),
    ],
)
def test_an_end_is_known_only_if_what_follows_is_there(
    text: str, around: Around, expected: bool
) -> None:
    assert can_end(Cursor(text), around, 3) is expected


def test_the_end_does_not_depend_on_the_pieces() -> None:
    for text, expected in (('} , "c": 1', True), (", then left", False), ('"b": 1', True)):
        assert read(lambda cursor: is_end(cursor, Around("}", "}")), text) == (expected, text)
