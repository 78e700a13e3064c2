import re
from collections.abc import Generator

import pytest

from proxy.guardrails.rescue.values.cursor import Cursor, Literals, Waiting
from tests.fakes.arrivals import is_linear, read

TAGS = Literals(("<call>", "<calls>", "[A]"))


def test_a_literal_that_may_be_starting_earlier_comes_before_one_that_is_complete() -> None:
    literals = Literals(("ab", "xabyy"))
    assert literals.find("..xab", 0, is_finished=False) == 2
    assert literals.find("..xab", 0, is_finished=True) == 3


def test_against_an_obvious_oracle() -> None:
    known = ("ab", "abc", "ba", "cc")
    literals = Literals(known)
    alphabet = "abc"
    texts = [a + b + c + d for a in alphabet for b in alphabet for c in alphabet for d in alphabet]
    for text in texts:
        for start in range(5):
            complete = [i for i in range(start, 4) if text.startswith(known, i)]
            begun = [
                i
                for i in range(start, 4)
                if any(literal.startswith(text[i:]) and literal != text[i:] for literal in known)
            ]
            assert literals.find(text, start, is_finished=True) == min([*complete, 4])
            assert literals.find(text, start, is_finished=False) == min([*complete, *begun, 4])


WORD = re.compile(r"[a-z]+")
ENDS = Literals(("</a>", "</b>"))


def test_a_rewound_cursor_reads_the_same_again() -> None:
    def reading(cursor: Cursor) -> Generator[None, None, tuple[str, str]]:
        yield from cursor.literal("12")
        cursor.begin()
        first = yield from cursor.take(WORD)
        cursor.rewind()
        second = yield from cursor.take(WORD)
        cursor.rewind()
        cursor.advance(1)
        return first + second, cursor.source()

    assert read(reading, "12abc34") == (("abcabc", "a"), "bc34")


def test_a_released_cursor_keeps_nothing_of_what_was_passed() -> None:
    cursor = Cursor("abc")
    cursor.begin()
    cursor.advance(2)
    cursor.start_arguments("f")
    cursor.feed("def")
    cursor.release()
    cursor.advance(1)
    cursor.feed("ghi")
    cursor.begin()
    cursor.pass_until(Literals(()))
    assert cursor.source() == "defghi"
    assert cursor.arguments_name is None
    assert cursor.take_echo() == ""


def echoing(cursor: Cursor) -> Waiting[str]:
    yield from cursor.literal("name")
    cursor.start_arguments("f")
    yield from cursor.take(WORD)
    cursor.end_arguments()
    yield from cursor.whitespace()
    cursor.start_arguments("g")
    yield from cursor.take(WORD)
    cursor.end_arguments()
    return f"{cursor.arguments_name}:{cursor.take_echo()}"


def test_only_the_first_arguments_are_echoed() -> None:
    assert read(echoing, "nameabc def") == ("f:abc", "")


def test_a_mute_cursor_announces_nothing_until_it_is_rewound() -> None:
    cursor = Cursor("abc")
    cursor.begin()
    cursor.mute()
    cursor.start_arguments("f")
    assert (cursor.arguments_name, cursor.is_within_arguments) == (None, False)
    cursor.rewind()
    cursor.start_arguments("f")
    assert cursor.arguments_name == "f"


@pytest.mark.parametrize("is_begun", [True, False])
def test_work_is_linear_in_single_characters(is_begun: bool) -> None:
    def work(text: str) -> None:
        cursor = Cursor()
        if is_begun:
            cursor.begin()
        reading = cursor.take_until(ENDS)
        next(reading)
        for char in text:
            cursor.feed(char)
            next(reading)

    assert is_linear(work, lambda size: "a</" * (size // 3), 6_000)
