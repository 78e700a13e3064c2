"""Tests that every syntax has limits and is read in linear time.

`test_tables` tests the results of reading.
"""

import pytest

from proxy.guardrails.rescue.registry import find_syntax
from proxy.guardrails.rescue.syntax import MOST_CALLS, Calls, NoCall, Reason
from proxy.guardrails.rescue.values.cursor import Cursor
from proxy.guardrails.rescue.values.scalars import Unreadable
from tests.fakes.arrivals import is_linear, outcome, read_syntax, run

PAIR = "<arg_key>a</arg_key><arg_value>1</arg_value>"


def read_after(opening: str, syntax: str, text: str) -> Calls | NoCall | Unreadable:
    """Read a complete text that follows the mark `opening`."""
    cursor = Cursor(text, is_finished=True)
    return run(cursor, outcome(find_syntax(syntax).read(cursor, opening)), [])[0]


@pytest.mark.parametrize(
    ("syntax", "opening", "call"),
    [("mistral", "[TOOL_CALLS]", "f[ARGS]{}"), ("gemma", "<|tool_call>", "call:f{}")],
)
def test_the_number_of_calls_after_one_opening_mark_is_limited(
    syntax: str, opening: str, call: str
) -> None:
    match = read_after(opening, syntax, call * 200)
    assert isinstance(match, Calls)
    assert len(match.calls) == MOST_CALLS + 1


def test_too_many_calls_between_an_opening_and_a_closing_mark_are_refused() -> None:
    call = '{"name": "ship", "arguments": {"to": "x"}}\n'
    text = f"<tools>{call * (MOST_CALLS + 1)}</tools>"
    assert read_syntax(find_syntax("tools_tag"), text)[0] == NoCall(Reason.NOT_A_CALL)


@pytest.mark.parametrize(("count", "kind"), [(100, Calls), (101, NoCall)])
def test_a_call_with_more_than_100_arguments_is_refused(count: int, kind: type) -> None:
    assert isinstance(
        read_after("<tool_call>", "argument_pairs", f"f{PAIR * count}</tool_call>"), kind
    )
    blocks = "".join(f"BEGIN_ARG: a{number}\n1\nEND_ARG\n" for number in range(count))
    assert isinstance(read_syntax(find_syntax("line_blocks"), f"TOOL_NAME: f\n{blocks}")[0], kind)


@pytest.mark.parametrize("unit", ["<arg_key>", "</arg_value>", "</tool_call>", "</arg_value> "])
def test_reading_a_flood_of_marks_takes_linear_time(unit: str) -> None:
    start = "f<arg_key>a</arg_key><arg_value>"
    assert is_linear(
        lambda text: read_after("<tool_call>", "argument_pairs", text),
        lambda size: start + unit * (size // len(unit)),
        40_000,
    )
