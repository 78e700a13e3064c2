import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.context.rough_tokens import count_rough_tokens
from proxy.context.shortening import (
    LONGEST_STUB,
    STUB,
    gist,
    head_and_tail,
    stub,
    with_content,
)
from proxy.conversation.messages import tool_result
from proxy.conversation.tools import ToolCall
from tests.fakes.histories import history, result, written

CALL = ToolCall("c", "look", '{"path":"a.py"}')
PLAIN = "red\n" * 100
ERRORS = "\n".join(f"error {number} in part {number}" for number in range(90))


def test_a_stub_tells_the_call_the_size_and_both_ends() -> None:
    text = "first line\n" + "more\n" * 50 + "last line\n"
    assert stub(CALL, text) == "[cut, 271 chars] look path:a.py: first line | last line"


def test_a_stub_keeps_what_is_telling_where_it_stood() -> None:
    text = f"a\n{PLAIN}gave up with PAY-60123\n{PLAIN}z"
    assert stub(CALL, text).endswith(": a | gave up with PAY-60123 | z")


def test_of_a_long_result_more_is_kept() -> None:
    lines = "\n".join(f"error {number}: {'x' * (number % 60)}" for number in range(900))
    sizes = [count_rough_tokens(stub(CALL, lines[:length])) for length in (8_000, 24_000)]
    assert sizes == sorted(sizes)
    assert count_rough_tokens(stub(CALL, "error 1, " * 90_000)) <= LONGEST_STUB


@given(st.text(st.sampled_from('aid: "\n\t{}é7/'), max_size=900))
def test_a_stub_is_one_line_and_never_too_long(text: str) -> None:
    made = stub(ToolCall("c", "a" * (len(text) % 60), text), text)
    assert count_rough_tokens(made) <= STUB
    assert "\n" not in made


@pytest.mark.parametrize(
    ("text", "told"),
    [("", ""), ("one\ntwo", "one | two"), ("one\nerror two\nthree", "one | error two | three")],
)
def test_the_gist_is_in_the_order_of_the_text(text: str, told: str) -> None:
    assert gist(text, 20) == told


def test_a_gist_spends_its_room_on_the_most_telling_lines() -> None:
    assert gist("one\nerror two\nthree", 6) == "error two"
    assert count_rough_tokens(gist(ERRORS, 40)) <= 40
    assert gist(ERRORS, 3) == ""


def test_of_a_line_that_is_too_long_the_part_with_the_value_is_kept() -> None:
    before = "it was tried again and again until at last the service said no and gave up with "
    assert "PAY-60123" in gist(f"{before}PAY-60123", 16)
    assert gist(before, 10).startswith("it was tried")
    assert gist(f"order 60123 {before}", 10).startswith("order 60123")
    assert gist("charged 4f3a-b2c3d4 a second time", 13) == "4f3a-b2c3d4…"
    assert gist("charged 4f3a-b2c3d4 a second time", 14) == "charged 4f3a-b2c3d4…"


def test_a_long_text_keeps_both_ends() -> None:
    text = "".join(f"<{number}>" for number in range(2_000))
    made = head_and_tail(text, 400, 0.5)
    assert made.startswith("<0><1><2>")
    assert made.endswith("<1998><1999>")
    assert f"the middle of {len(text)} characters is left out" in made
    assert count_rough_tokens(made) <= 400


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


def test_a_shortened_result_still_knows_whether_the_tool_failed() -> None:
    assert with_content(tool_result("c", "long", failed=True), "short").failed is True
