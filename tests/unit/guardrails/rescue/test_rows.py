import re

import pytest

from proxy.conversation.tools import WrittenCall
from proxy.guardrails.rescue.rows import read_after_marks, read_consecutive, skip_fence
from proxy.guardrails.rescue.syntax import MOST_CALLS, Calls, NoCall, Reading, Reason
from proxy.guardrails.rescue.values.cursor import Cursor
from tests.fakes.arrivals import attempt, read

WORD = re.compile("[a-z]+")


def read_word(cursor: Cursor) -> Reading:
    word = yield from cursor.take(WORD)
    if not word:
        raise NoCall(Reason.BROKEN)
    return Calls((WrittenCall(word, {}),))


def read_words(cursor: Cursor) -> Reading:
    return read_consecutive(cursor, read_word, lambda cursor: cursor.literal(","))


def calls(*names: str) -> Calls:
    return Calls(tuple(WrittenCall(name, {}) for name in names))


def test_calls_separated_by_commas_are_read() -> None:
    assert read(read_words, "a ,b\n,c d") == (calls("a", "b", "c"), "d")


def test_consecutive_calls_are_refused_if_one_call_is_invalid() -> None:
    assert attempt(read_words, "a,b,1") == (NoCall(Reason.BROKEN), "1")


def test_reading_consecutive_calls_stops_one_call_above_the_limit() -> None:
    calls, rest = read(read_words, "a," * (MOST_CALLS + 3))
    assert (len(calls.calls), rest) == (MOST_CALLS + 1, "a,a,")


def test_the_reader_receives_the_mark_before_each_call() -> None:
    def read_marked(cursor: Cursor, mark: str) -> Reading:
        yield from cursor.take(WORD)
        return calls(mark)

    result = read(lambda c: read_after_marks(c, "1", ("1", "2"), read_marked), "a 2b 1c 3d")
    assert result == (calls("1", "2", "1"), "3d")


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("```json\n{", (True, "{")),
        ("``` {", (True, "{")),
        ("{", (False, "{")),
        ("``", (False, "``")),
    ],
)
def test_a_code_fence_is_skipped_with_the_language_after_it(
    text: str, result: tuple[bool, str]
) -> None:
    assert read(lambda cursor: skip_fence(cursor, WORD), text) == result
