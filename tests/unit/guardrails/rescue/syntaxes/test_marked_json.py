import pytest

from proxy.conversation.tools import WrittenCall
from proxy.guardrails.rescue.formats import TABLE, Format
from proxy.guardrails.rescue.registry import find_syntax
from proxy.guardrails.rescue.syntax import MOST_CALLS, Calls, NoCall, Reason, Syntax
from proxy.guardrails.rescue.syntaxes.marked_json import marked_json
from tests.fakes.arrivals import read_syntax

APERTUS = find_syntax("apertus")
TOOLS_TAG = find_syntax("tools_tag")

SHIP = '{"name": "ship", "arguments": {"to": "x"}}'
CALL = WrittenCall("ship", {"to": "x"})
TWO = marked_json(Format(name="two", shape="json", marks={"<a>": "</a>", "<b>": "</b>"}))
OPENINGS = [
    (find_syntax(row.name), opening)
    for row in TABLE.formats
    if row.shape == "json"
    for opening in row.openings
]


@pytest.mark.parametrize(("syntax", "opening"), OPENINGS)
def test_every_family_has_separate_marks(syntax: Syntax, opening: str) -> None:
    result, rest = read_syntax(syntax, f"{opening} [{SHIP}]")
    assert isinstance(result, Calls)
    assert (result.calls, rest) == ((CALL,), "")


def test_an_existing_closing_mark_is_read() -> None:
    assert read_syntax(TWO, f"<a>{SHIP}</b> x") == (Calls((CALL,)), " x")
    assert read_syntax(TWO, f"<a>{SHIP} x") == (Calls((CALL,), closed=False), "x")


def test_the_opening_mark_may_be_repeated() -> None:
    assert read_syntax(TWO, f"<a>\n<b> <a>{SHIP}</a>") == (Calls((CALL,)), "")
    assert read_syntax(TWO, f"<a><a><a><a><a>{SHIP}")[0] == NoCall(Reason.NOT_A_CALL)


def test_other_text_is_abandoned_at_its_start() -> None:
    assert read_syntax(TWO, "<a> mark") == (NoCall(Reason.NOT_A_CALL), "mark")


CALLS = (WrittenCall("draw", {"what": "cat"}), WrittenCall("now", {}))
LIST = '[{"draw": {"what": "cat"}}, {"now": {}}]'


def test_the_key_is_the_name() -> None:
    text = f"<|tools_prefix|>{LIST}<|tools_suffix|>x"
    assert read_syntax(APERTUS, text) == (Calls(CALLS), "x")
    single = '<|tools_prefix|>{"now": {}} <|tools_suffix|>'
    assert read_syntax(APERTUS, single)[0] == Calls(CALLS[1:])


def test_a_list_needs_no_closing_mark() -> None:
    assert read_syntax(APERTUS, f"<|tools_prefix|>{LIST}")[0] == Calls(CALLS)
    calls = read_syntax(APERTUS, '<|tools_prefix|>{"now": {}}')[0]
    assert calls == Calls(CALLS[1:], closed=False)


@pytest.mark.parametrize("body", ["[]", "[1]", '[{"a": {}, "b": {}}]', "oh"])
def test_other_text_is_no_call(body: str) -> None:
    assert read_syntax(APERTUS, f"<|tools_prefix|>{body}")[0] == NoCall(Reason.NOT_A_CALL)


def test_the_usual_envelope_is_accepted_as_well() -> None:
    text = '<|tools_prefix|>[{"name": "draw", "arguments": {"what": "cat"}}]<|tools_suffix|>'
    assert read_syntax(APERTUS, text)[0] == Calls(CALLS[:1])


NO_CALL = NoCall(Reason.NOT_A_CALL)


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
def test_calls_between_the_marks_are_read(text: str, calls: tuple[WrittenCall, ...]) -> None:
    result, rest = read_syntax(TOOLS_TAG, text + " x")
    assert isinstance(result, Calls)
    assert (result.calls, rest) == (calls, " x")


def test_a_closing_mark_may_be_missing() -> None:
    assert read_syntax(TOOLS_TAG, f"<tools>{SHIP}\n") == (Calls((CALL,), closed=False), "")


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
def test_definitions_and_other_json_are_no_calls(inside: str) -> None:
    result, _ = read_syntax(TOOLS_TAG, f"<tools>{inside}</tools>")
    assert result == NO_CALL
