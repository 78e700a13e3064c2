import pytest

from proxy.guardrails.rescue.values.closing_pairs import is_pair_text, is_surplus
from proxy.guardrails.rescue.values.cursor import Cursor, Waiting
from tests.fakes.arrivals import read


@pytest.mark.parametrize(
    ("text", "is_text"),
    [
        ("</c>", False),
        ("</c> ", False),
        ("</c>\nand on</p></c>", False),
        ("</c><c>", False),
        ("</c> and on", False),
        ("</c> and on</p> </c>", True),
        ("</c> and on</p>\n</c>\n", True),
        ("</c> and <tool_call>x</p></c>", False),
        (f"</c> and {'on ' * 100}</p></c>", False),
    ],
)
def test_two_marks_are_text_if_the_line_goes_on_to_both(text: str, is_text: bool) -> None:
    def start(cursor: Cursor) -> Waiting[bool]:
        return is_pair_text(cursor, "</p>", "</c>")

    assert read(start, text) == (is_text, text)


@pytest.mark.parametrize(
    ("text", "is_more"),
    [("", False), ("<p>1</p>", False), ("1</p>", True), ("<p>1</p> 2</p>", True)],
)
def test_there_is_a_surplus_if_more_ends_than_begins(text: str, is_more: bool) -> None:
    def start(cursor: Cursor) -> Waiting[bool]:
        return is_surplus(cursor, "<p>", "</p>")

    assert read(start, text) == (is_more, text)
