import pytest

from proxy.conversation.tools import WrittenCall
from proxy.guardrails.rescue.formats import TABLE
from proxy.guardrails.rescue.registry import find_syntax
from proxy.guardrails.rescue.syntax import Calls, Syntax
from tests.fakes.arrivals import read_syntax

SHIP = '{"name": "ship", "arguments": {"to": "x"}}'
CALL = WrittenCall("ship", {"to": "x"})
OPENINGS = [
    (find_syntax(row.name), opening)
    for row in TABLE.formats
    if row.shape == "json"
    for opening in row.openings
]


@pytest.mark.parametrize(("syntax", "opening"), OPENINGS)
def test_a_list_of_calls_is_read_after_every_opening_mark(syntax: Syntax, opening: str) -> None:
    result, rest = read_syntax(syntax, f"{opening} [{SHIP}]")
    assert isinstance(result, Calls)
    assert (result.calls, rest) == ((CALL,), "")
