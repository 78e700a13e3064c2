import re
from collections.abc import Callable, Generator

import pytest

from proxy.guardrails.rescue.values.cursor import Cursor, Literals, Waiting
from tests.fakes.arrivals import is_linear, read

TAGS = Literals(("<call>", "<calls>", "[A]"))
FENCES = Literals(("```", "```json"))
NOTHING = Literals(())


@pytest.mark.parametrize(
    ("literals", "text", "start", "index", "finished_index"),
    [
        (TAGS, "x [A] <call> ", 0, 2, 2),
        (TAGS, "x [A] <call> ", 3, 6, 6),
        *((TAGS, text, 0, 3, len(text)) for text in ("abc<", "abc<cal", "abc")),
        (TAGS, "abc<call>", 0, 3, 3),
        (TAGS, "a<b<", 0, 3, 4),
        (TAGS, "[A", 0, 0, 2),
        (NOTHING, "abc", 1, 3, 3),
    ],
)
def test_the_method_find_returns_the_index_of_a_literal_or_of_its_possible_prefix_at_the_end(
    literals: Literals, text: str, start: int, index: int, finished_index: int
) -> None:
    assert literals.find(text, start, is_finished=False) == index
    assert literals.find(text, start, is_finished=True) == finished_index


@pytest.mark.parametrize(
    ("literals", "text", "index", "literal", "finished_literal"),
    [
        (FENCES, "```", 0, None, "```"),
        (FENCES, "```js", 0, None, "```"),
        (FENCES, "```jx", 0, "```", "```"),
        (FENCES, "```json", 0, "```json", "```json"),
        (TAGS, "<cal", 0, None, ""),
        (TAGS, "abc", 3, None, ""),
        (TAGS, "abc", 1, "", ""),
        (NOTHING, "abc", 1, "", ""),
    ],
)
def test_the_method_at_returns_the_longest_literal_as_soon_as_it_is_certain(
    literals: Literals, text: str, index: int, literal: str | None, finished_literal: str
) -> None:
    assert literals.at(text, index, is_finished=False) == literal
    assert literals.at(text, index, is_finished=True) == finished_literal


def test_the_method_find_returns_a_partial_literal_that_begins_before_a_complete_literal() -> None:
    literals = Literals(("ab", "xabyy"))
    assert literals.find("..xab", 0, is_finished=False) == 2
    assert literals.find("..xab", 0, is_finished=True) == 3


def test_the_search_for_literals_agrees_with_a_simple_search() -> None:
    known = ("ab", "abc", "ba", "cc")
    literals = Literals(known)
    alphabet = "abc"
    texts = [a + b + c + d for a in alphabet for b in alphabet for c in alphabet for d in alphabet]
    for text in texts:
        for start in range(5):
            complete = [i for i in range(start, 4) if text.startswith(known, i)]
            prefixes = [
                i
                for i in range(start, 4)
                if any(literal.startswith(text[i:]) and literal != text[i:] for literal in known)
            ]
            assert literals.find(text, start, is_finished=True) == min([*complete, 4])
            assert literals.find(text, start, is_finished=False) == min([*complete, *prefixes, 4])


WORD = re.compile(r"[a-z]+")
ENDS = Literals(("</a>", "</b>"))


READINGS: list[tuple[Callable[[Cursor], Waiting[object]], str, object, str]] = [
    (lambda cursor: cursor.literal("<tag>"), "<tag>x", True, "x"),
    (lambda cursor: cursor.literal("<tag>"), "<tax>x", False, "<tax>x"),
    (lambda cursor: cursor.literal("<tag>"), "<ta", False, "<ta"),
    (lambda cursor: cursor.is_next("<tag>"), "<tag>x", True, "<tag>x"),
    (lambda cursor: cursor.take(WORD), "abc1", "abc", "1"),
    (lambda cursor: cursor.take(WORD), "abc", "abc", ""),
    (lambda cursor: cursor.take(WORD), "1", "", "1"),
    (lambda cursor: cursor.whitespace(), " \r\n\tx ", " \r\n\t", "x "),
    (lambda cursor: cursor.peek(), "ab", "a", "ab"),
    (lambda cursor: cursor.peek(), "", "", ""),
    (lambda cursor: cursor.one_of(ENDS), "</b>x", "</b>", "x"),
    (lambda cursor: cursor.one_of(ENDS), "</c>x", "", "</c>x"),
    (lambda cursor: cursor.one_of(ENDS), "</", "", "</"),
    (lambda cursor: cursor.next_of(ENDS), "</b>x", "</b>", "</b>x"),
    (lambda cursor: cursor.take_until(ENDS), "x</c></b>y", "x</c>", "</b>y"),
    (lambda cursor: cursor.take_until(ENDS), "x</", "x</", ""),
    (lambda cursor: cursor.take_until(ENDS), "", "", ""),
]


@pytest.mark.parametrize(("start", "text", "result", "rest"), READINGS)
def test_reading_a_text_gives_the_expected_result_and_leaves_the_expected_rest(
    start: Callable[[Cursor], Waiting[object]], text: str, result: object, rest: str
) -> None:
    assert read(start, text) == (result, rest)


def test_the_methods_look_and_look_ahead_do_not_consume_text() -> None:
    cursor = Cursor("abc")
    assert cursor.look_ahead(5) == ("abc", False)
    assert cursor.look_ahead(2) == ("ab", True)
    assert cursor.look_ahead(2, 1) == ("bc", True)
    assert cursor.starts_with("abc")
    assert (cursor.look(WORD), cursor.look(re.compile("b"))) == ("abc", "")
    cursor.finish()
    assert cursor.look_ahead(5) == ("abc", True)


def test_a_cursor_reads_the_same_text_again_after_rewind() -> None:
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


def test_a_cursor_keeps_no_consumed_text_after_release() -> None:
    cursor = Cursor("abc")
    cursor.begin()
    cursor.advance(2)
    cursor.start_arguments("f")
    cursor.feed("def")
    cursor.release()
    cursor.advance(1)
    cursor.feed("ghi")
    cursor.begin()
    cursor.consume_until(Literals(()))
    assert cursor.source() == "defghi"
    assert cursor.arguments_name is None
    assert cursor.take_echo() == ""


def test_skip_last_space_skips_white_space_only_if_no_text_follows() -> None:
    cursor = Cursor(" \n")
    assert (cursor.skip_last_space(), cursor.is_exhausted) == (" \n", True)
    assert cursor.skip_last_space() == ""
    cursor.feed("\n<")
    assert cursor.skip_last_space() == ""
    assert cursor.starts_with("\n<")


def test_a_muted_cursor_announces_no_arguments_until_it_is_rewound() -> None:
    cursor = Cursor("abc")
    cursor.begin()
    cursor.mute()
    cursor.start_arguments("f")
    assert (cursor.arguments_name, cursor.is_within_arguments) == (None, False)
    cursor.rewind()
    cursor.start_arguments("f")
    assert cursor.arguments_name == "f"


@pytest.mark.parametrize("is_begun", [True, False])
def test_feeding_single_characters_takes_linear_time(is_begun: bool) -> None:
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
