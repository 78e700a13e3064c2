import re
from collections.abc import Generator

import pytest

from proxy.guardrails.rescue.values.cursor import Cursor, Literals, Waiting, literals_of
from tests.fakes.arrivals import is_linear, read

TAGS = Literals(("<call>", "<calls>", "[A]"))


def test_the_first_literal_is_found() -> None:
    assert TAGS.find("x [A] <call> ", 0, is_finished=False) == 2
    assert TAGS.find("x [A] <call> ", 3, is_finished=False) == 6


@pytest.mark.parametrize(
    ("text", "place"),
    [("abc<", 3), ("abc<cal", 3), ("abc<call>", 3), ("abc", 3), ("a<b<", 3), ("[A", 0)],
)
def test_what_may_be_a_beginning_ends_the_search_until_the_text_is_finished(
    text: str, place: int
) -> None:
    assert TAGS.find(text, 0, is_finished=False) == place


def test_a_finished_text_has_no_beginnings() -> None:
    assert TAGS.find("abc<cal", 0, is_finished=True) == 7
    assert TAGS.at("<cal", 0, is_finished=True) == ""


def test_a_literal_that_may_be_starting_earlier_comes_before_one_that_is_complete() -> None:
    literals = Literals(("ab", "xabyy"))
    assert literals.find("..xab", 0, is_finished=False) == 2
    assert literals.find("..xab", 0, is_finished=True) == 3


def test_the_longest_literal_counts_once_it_can_be_told() -> None:
    literals = Literals(("```", "```json", "<call>", "<call>>"))
    assert literals.at("```", 0, is_finished=False) is None
    assert literals.at("```js", 0, is_finished=False) is None
    assert literals.at("```jx", 0, is_finished=False) == "```"
    assert literals.at("```json", 0, is_finished=False) == "```json"
    assert literals.at("```", 0, is_finished=True) == "```"


def test_no_text_decides_nothing_until_it_is_finished() -> None:
    assert TAGS.at("abc", 3, is_finished=False) is None
    assert TAGS.at("abc", 3, is_finished=True) == ""
    assert TAGS.at("abc", 1, is_finished=False) == ""


def test_no_literals_are_found_nowhere() -> None:
    nothing = Literals(())
    assert nothing.find("abc", 1, is_finished=False) == 3
    assert nothing.at("abc", 1, is_finished=False) == ""


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


def test_the_same_literals_are_prepared_once() -> None:
    assert literals_of("a", "b") is literals_of("a", "b")


WORD = re.compile(r"[a-z]+")
ENDS = Literals(("</a>", "</b>"))


def test_a_literal_is_passed_only_as_a_whole() -> None:
    assert read(lambda cursor: cursor.literal("<tag>"), "<tag>x") == (True, "x")
    assert read(lambda cursor: cursor.literal("<tag>"), "<tax>x") == (False, "<tax>x")
    assert read(lambda cursor: cursor.literal("<tag>"), "<ta") == (False, "<ta")


def test_whether_a_literal_is_next_moves_nothing() -> None:
    assert read(lambda cursor: cursor.is_next("<tag>"), "<tag>x") == (True, "<tag>x")


def test_a_run_is_taken_as_far_as_it_goes() -> None:
    assert read(lambda cursor: cursor.take(WORD), "abc1") == ("abc", "1")
    assert read(lambda cursor: cursor.take(WORD), "abc") == ("abc", "")
    assert read(lambda cursor: cursor.take(WORD), "1") == ("", "1")


def test_white_space_is_passed() -> None:
    assert read(lambda cursor: cursor.whitespace(), " \r\n\tx ") == (" \r\n\t", "x ")


def test_white_space_is_passed_if_nothing_else_is_there() -> None:
    cursor = Cursor(" \n")
    assert (cursor.pass_last_space(), cursor.is_exhausted) == (" \n", True)
    assert cursor.pass_last_space() == ""
    cursor.feed("\n<")
    assert cursor.pass_last_space() == ""
    assert cursor.stands_at("\n<")


def test_the_next_character_is_seen_without_passing_it() -> None:
    assert read(lambda cursor: cursor.peek(), "ab") == ("a", "ab")
    assert read(lambda cursor: cursor.peek(), "") == ("", "")


def test_one_of_several_literals_is_passed() -> None:
    assert read(lambda cursor: cursor.one_of(ENDS), "</b>x") == ("</b>", "x")
    assert read(lambda cursor: cursor.one_of(ENDS), "</c>x") == ("", "</c>x")
    assert read(lambda cursor: cursor.one_of(ENDS), "</") == ("", "</")


def test_everything_before_a_literal_is_taken() -> None:
    assert read(lambda cursor: cursor.take_until(ENDS), "x</c></b>y") == ("x</c>", "</b>y")
    assert read(lambda cursor: cursor.take_until(ENDS), "x</") == ("x</", "")
    assert read(lambda cursor: cursor.take_until(ENDS), "") == ("", "")


def test_the_source_is_what_was_passed_since_the_beginning() -> None:
    def reading(cursor: Cursor) -> Generator[None, None, str]:
        yield from cursor.literal("ab")
        cursor.begin()
        yield from cursor.take(WORD)
        yield from cursor.whitespace()
        return cursor.source()

    assert read(reading, "abcde  \n123") == ("cde  \n", "123")


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


def test_the_echo_can_be_taken_as_it_arrives() -> None:
    cursor = Cursor()
    reading = echoing(cursor)
    echoes = []
    next(reading)
    for piece in ("na", "meab", "", "c", "d ", " "):
        cursor.feed(piece)
        next(reading)
        echoes.append(cursor.take_echo())
    assert echoes == ["", "ab", "", "c", "d", ""]


def test_a_rewound_cursor_has_announced_nothing() -> None:
    cursor = Cursor("abc")
    cursor.begin()
    cursor.start_arguments("f")
    cursor.advance(2)
    cursor.rewind()
    assert (cursor.arguments_name, cursor.take_echo()) == (None, "")


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


def test_what_comes_next_can_be_looked_at_without_passing_it() -> None:
    cursor = Cursor("abc")
    assert cursor.look_ahead(2) == ("ab", True)
    assert cursor.look_ahead(5) == ("abc", False)
    cursor.finish()
    assert cursor.look_ahead(5) == ("abc", True)
    assert cursor.stands_at("abc")
    assert cursor.look_ahead(2, 1) == ("bc", True)
    assert cursor.look(WORD) == "abc"
    assert cursor.look(re.compile("b")) == ""


def test_the_visible_character_is_seen_only_if_it_is_there() -> None:
    cursor = Cursor(" \n")
    assert cursor.visible() == ""
    cursor.feed(" ab")
    assert cursor.visible() == "a"
    cursor.advance(1)
    assert cursor.visible() == "b"
    assert cursor.look_ahead(1) == ("b", True)


def test_it_is_known_whether_arguments_are_being_passed() -> None:
    cursor = Cursor("abc")
    answers = [cursor.is_within_arguments]
    cursor.start_arguments("f")
    answers.append(cursor.is_within_arguments)
    cursor.end_arguments()
    answers.append(cursor.is_within_arguments)
    assert answers == [False, True, False]
