import pytest

from proxy.conversation.tools import WrittenCall
from proxy.guardrails.rescue.syntax import MOST_CALLS, Calls, NotACall, Reason
from proxy.guardrails.rescue.syntaxes.tools_tag import ToolsTag
from tests.fakes.arrivals import read_syntax

SHIP = '{"name": "ship", "arguments": {"to": "x"}}'
CALL = WrittenCall("ship", {"to": "x"})
NO_CALL = NotACall(Reason.NOT_A_CALL)


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        (f"<tools>{SHIP}</tools>", (CALL,)),
        (f"<tools>\n{SHIP}\n</tools>", (CALL,)),
        (f"<tools>\n{SHIP}\n{SHIP}\n</tools>", (CALL, CALL)),
        (f"<tools>[{SHIP}, {SHIP}]</tools>", (CALL, CALL)),
        ("<tools>{'name': 'ship', 'arguments': {'to': 'x'}}</tools>", (CALL,)),
        ('<tools>{"name": "ship", "arguments": {"to": "x"}</tools>', (CALL,)),
        ('<tools>{"name": "now", "arguments": {}}</tools>', (WrittenCall("now", {}),)),
    ],
)
def test_calls_are_read_between_the_marks(text: str, calls: tuple[WrittenCall, ...]) -> None:
    result, rest = read_syntax(ToolsTag(), text + " x")
    assert isinstance(result, Calls)
    assert (result.calls, rest) == (calls, " x")


def test_a_closing_mark_may_be_missing() -> None:
    assert read_syntax(ToolsTag(), f"<tools>{SHIP}\n") == (Calls((CALL,), closed=False), "")


@pytest.mark.parametrize(
    "inside",
    [
        "",
        "ship",
        "[]",
        '["ship"]',
        '{"name": "ship"}',
        '{"name": " ", "arguments": {}}',
        '{"name": 1, "arguments": {}}',
        '{"name": "ship", "arguments": "to x"}',
        '{"name": "ship", "parameters": {"to": "x"}}',
        '{"name": "ship", "parameters": {}}',
        '{"name": "ship", "description": "Send it.", "arguments": {"to": "string"}}',
        '{"type": "function", "function": {"name": "ship", "parameters": {"type": "object"}}}',
        f'{SHIP}, {{"name": "ship", "parameters": {{"type": "object"}}}}',
        f'{SHIP}\n{{"name": "ship", "parameters": {{"type": "object"}}}}',
        '{"name": "ship", "arguments": {"to": x y z',
        "\n".join([SHIP] * (MOST_CALLS + 1)),
    ],
)
def test_definitions_and_all_else_are_no_calls(inside: str) -> None:
    result, _ = read_syntax(ToolsTag(), f"<tools>{inside}</tools>")
    assert result == NO_CALL
