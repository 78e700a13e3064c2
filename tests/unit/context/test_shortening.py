import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.context.pieces import count_pieces
from proxy.context.shortening import (
    ERROR_STUB,
    STUB,
    gist,
    head_and_tail,
    on_one_line,
    stub,
    with_content,
)
from proxy.conversation.tools import ToolCall
from tests.fakes.histories import history, result, written

CALL = ToolCall("c", "look", '{"path":"a.py"}')
PLAIN = "red\n" * 2_000


def test_a_stub_tells_the_call_the_size_and_both_ends() -> None:
    text = "first line\n" + "more\n" * 50 + "last line\n"
    assert stub(CALL, text) == "[cut, 271 chars] look path:a.py: first line | last line"


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        ("user_id = 7", "user_id = 7"),
        ('  "orderId": "x1",', "orderId: x1,"),
        ("orderID: x1", "orderID: x1"),
        ("ID 7", "ID 7"),
        ("Exception in thread", "Exception in thread"),
        ("it was an ERROR", "it was an ERROR"),
        ("see https://a.test", "see https://a.test"),
        ("filepath: /a", "filepath: /a"),
    ],
)
def test_a_stub_keeps_telling_lines(line: str, kept: str) -> None:
    assert stub(CALL, f"a\n{PLAIN[:400]}{line}\n{PLAIN[:400]}z").endswith(f": a | {kept} | z")


@pytest.mark.parametrize("line", ["I did it", "a wide side", "video", "idle Idea", "HIDDEN"])
def test_a_word_that_only_contains_id_tells_nothing(line: str) -> None:
    assert stub(CALL, f"a\n{line}\nz").endswith(": a | z")


def test_of_an_overlong_line_the_part_around_the_word_is_kept() -> None:
    text = f'{{"a":"{"x" * 900}","path":"/srv/a.csv","b":"{"y" * 900}"}}'
    assert "path:/srv/a.csv" in stub(CALL, text)


def test_a_long_result_is_searched_at_both_ends() -> None:
    assert "id 1" in stub(CALL, f"a\nid 1\n{PLAIN}")
    assert "id 2" in stub(CALL, f"{PLAIN}id 2\nz")
    assert "id 3" not in stub(CALL, f"{PLAIN}id 3\n{PLAIN}")


def test_a_failure_has_room_for_more() -> None:
    text = "\n".join(f"error {number} in part {number}" for number in range(9))
    assert stub(CALL, text).count("error") < stub(CALL, text, ERROR_STUB).count("error")


@given(st.text(st.sampled_from('aid: "\n\t{}é7/'), max_size=300), st.sampled_from([STUB, 96]))
def test_a_stub_is_one_line_and_never_too_long(text: str, limit: int) -> None:
    made = stub(ToolCall("c", "a" * (len(text) % 60), text), text, limit)
    assert count_pieces(made) <= limit
    assert "\n" not in made


@pytest.mark.parametrize(
    ("text", "told"), [("", ""), ("one\ntwo", "one"), ("one\nerror two", "error two")]
)
def test_the_gist_is_the_most_telling_line(text: str, told: str) -> None:
    assert gist(text, 10) == told


def test_on_one_line_there_are_no_breaks_and_no_quotes() -> None:
    assert on_one_line('{"a":\n  "b"}') == "{a: b}"


def test_a_long_text_keeps_both_ends() -> None:
    text = "".join(f"<{number}>" for number in range(2_000))
    made = head_and_tail(text, 400, 0.5)
    assert made.startswith("<0><1><2>")
    assert made.endswith("<1998><1999>")
    assert f"the middle of {len(text)} characters is left out" in made
    assert count_pieces(made) <= 400


def test_a_long_text_keeps_no_more_than_its_share_of_characters() -> None:
    text = "word " * 2_000
    assert len(head_and_tail(text, 5_000, 0.1)) <= 1_000


@pytest.mark.parametrize(("limit", "share"), [(5, 0.5), (400, 0.001)])
def test_where_there_is_no_room_only_the_note_is_left(limit: int, share: float) -> None:
    made = head_and_tail("word " * 2_000, limit, share)
    assert made == "[… the middle of 10000 characters is left out …]"


def test_a_result_keeps_what_else_it_says_of_itself() -> None:
    (message,) = history(result("7", "long", name="look"))
    shortened = with_content(message, "short")
    assert written([shortened]) == [result("7", "short", name="look")]
