import pytest

from proxy.conversation.tools import WrittenCall
from proxy.guardrails.rescue.syntax import Calls, NotACall, Reason
from proxy.guardrails.rescue.syntaxes.marked_json import FAMILIES, MarkedJson
from tests.fakes.arrivals import read_syntax

SHIP = '{"name": "ship", "arguments": {"to": "x"}}'
CALL = WrittenCall("ship", {"to": "x"})
TWO = MarkedJson("two", ("<a>", "<b>"), ("</a>", "</b>"))
OPENINGS = [(one, opening) for one in FAMILIES for opening in one.openings]


@pytest.mark.parametrize(("syntax", "opening"), OPENINGS)
def test_every_family_has_marks_of_its_own(syntax: MarkedJson, opening: str) -> None:
    result, rest = read_syntax(syntax, f"{opening} [{SHIP}]")
    assert isinstance(result, Calls)
    assert (result.calls, rest) == ((CALL,), "")


def test_a_closing_mark_is_read_where_there_is_one() -> None:
    assert read_syntax(TWO, f"<a>{SHIP}</b> x") == (Calls((CALL,)), " x")
    assert read_syntax(TWO, f"<a>{SHIP} x") == (Calls((CALL,), closed=False), "x")


def test_the_opening_mark_may_be_repeated() -> None:
    assert read_syntax(TWO, f"<a>\n<b> <a>{SHIP}</a>") == (Calls((CALL,)), "")
    assert read_syntax(TWO, f"<a><a><a><a><a>{SHIP}")[0] == NotACall(Reason.NOT_A_CALL)


def test_anything_else_is_left_where_it_begins() -> None:
    assert read_syntax(TWO, "<a> mark") == (NotACall(Reason.NOT_A_CALL), "mark")
