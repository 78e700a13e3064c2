"""Tests which part of the arguments of a call is shown before all arguments have arrived."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonSchema, JsonValue
from proxy.conversation.replies import ReplyEvent, ToolCallArgumentsDelta, ToolCallStarted
from proxy.conversation.tools import NamedTool
from proxy.conversation.workflows import Prerequisite, Workflow
from proxy.dialects.lenient_json import as_object, as_text
from proxy.guardrails.offer import OfferedTools, TextPolicy
from proxy.guardrails.respond import make_respond_tool
from proxy.guardrails.schemas.arguments import Members, ValidArguments, check
from proxy.guardrails.transcript import Loop
from proxy.inference.call_gate import ArgumentsGate, CallGate
from proxy.inference.sent_answer import SentAnswer
from tests.fakes.arrivals import is_linear
from tests.fakes.playbook import CLOCK, WEATHER, make_tool

SCHEMA: JsonObject = {
    "type": "object",
    "properties": {
        "path": {"type": "string"},
        "text": {"type": "string"},
        "line": {"type": "integer"},
        "mode": {"enum": ["read", "write"]},
        "tags": {"type": "array", "items": {"type": "string"}},
        "options": {"type": "object"},
        "flag": {"type": "boolean"},
    },
    "required": ["path"],
}
EDIT = make_tool("edit", SCHEMA)


def _string_that_begins_with(arguments: str) -> JsonObject:
    return {"type": "string", "pattern": f'^{arguments}([^"\\\\]|\\\\["\\\\/bfnrt])*$'}


def feed_in_chunks(text: str, size: int = 1, schema: JsonSchema = SCHEMA) -> list[str]:
    """Feed a text in chunks of `size` characters; return the text shown after each chunk."""
    gate = ArgumentsGate(Members(schema))
    return [gate.feed(text[at : at + size]) for at in range(0, len(text), size)]


def shown(text: str, size: int = 1, schema: JsonSchema = SCHEMA) -> str:
    return "".join(feed_in_chunks(text, size, schema))


@pytest.mark.parametrize("size", [1, 2, 5, 1000])
@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ('{"path": "a.py", "text": "x = 1\\n"}', '{"path": "a.py", "text": "x = 1\\n'),
        ('{"path":"a","line":3}', '{"path":"a","line":3'),
        ('{"line": 3 , "mode": "read"}', '{"line": 3 , "mode": "read"'),
        ('{"line": "3", "mode": "READ"}', '{"line": 3, "mode": "read"'),
        ('{"tags": ["a", "}\\""], "path": "b"}', '{"tags": ["a", "}\\""], "path": "b'),
        ('{"options": {"a": [{}]}, "flag": true}', '{"options": {"a": [{}]}, "flag": true'),
        (' {\n "path" : "a" }', ' {\n "path" : "a'),
        ('{"path": "\\ud83d\\ude00\\u00e9"}', '{"path": "\\ud83d\\ude00\\u00e9'),
        ("{}", "{"),
    ],
)
def test_valid_arguments_are_shown_except_their_end(
    arguments: str, expected: str, size: int
) -> None:
    assert shown(arguments, size) == expected


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("", ""),
        ("  ", ""),
        ('"{}"', ""),
        ("[1]", ""),
        ("{'path': 'a'}", "{"),
        ('{path: "a"}', "{"),
        ('{"pa\\th": "a"}', "{"),
        ('{"pa\nth": "a"}', "{"),
        ('{"path" "a"}', "{"),
        ('{"other": 1, "path": "a"}', "{"),
        ('{"path": "a", "path": "b"}', '{"path": "a'),
        ('{"path": "a" "line": 1}', '{"path": "a'),
        ('{"path": "say "hi", she said"}', '{"path": "say '),
        ('{"path": "a", "line": "x", "text": "b"}', '{"path": "a'),
        ('{"line": 3 4, "path": "a"}', "{"),
        ('{"line": , "path": "a"}', "{"),
        ('{"line": 1.5.2, "path": "a"}', "{"),
        ('{"mode": "re\\qad", "path": "a"}', "{"),
        ('{"mode": "re\nad"}', "{"),
        ('{"mode": "read" x}', "{"),
        ('{"tags": ["a\nb"]}', "{"),
        ('{"tags": ["a"}', "{"),
        ('{"path": "a\nb"}', '{"path": "a'),
        ('{"path": "a\\qb and a longer text"}', '{"path": "a'),
        ('{"path": "a\\ud800 and a longer text"}', '{"path": "a'),
        ('{"path": "a\\u12', '{"path": "a'),
    ],
)
@pytest.mark.parametrize("size", [1, 3, 1000])
def test_arguments_are_shown_up_to_their_first_error(
    arguments: str, expected: str, size: int
) -> None:
    assert shown(arguments, size) == expected


@pytest.mark.parametrize("size", [7, 100_000])
@pytest.mark.parametrize("unit", ["[", '{"a":', '[{"a":'])
def test_arguments_are_shown_up_to_nesting_deeper_than_the_parser_limit(
    unit: str, size: int
) -> None:
    arguments = '{"line":3,"options":' + unit * 1_000
    assert shown(arguments, size) == '{"line":3'
    gate = ArgumentsGate(Members(SCHEMA))
    assert gate.feed(arguments) == '{"line":3'
    assert gate.feed('1}}},"flag":true}') == ""


@pytest.mark.parametrize("size", [1, 3, 7, 100])
@pytest.mark.parametrize(
    ("text", "certain"),
    [
        ("ls\\n</parameter>\\n</function>", "ls"),
        ("ls</arg_value>", "ls"),
        ("ls</\uff5cDSML\uff5cparameter", "ls"),
        ("ls\\u003c/parameter\\u003e", "ls"),
        ("a\\n\\n<b>c</b>\\n</p> 1 < 2 <", "a\\n\\n<b>c</b>\\n</p> 1 < 2 <"),
    ],
)
def test_a_string_is_shown_only_up_to_text_that_may_be_a_mark_of_a_call(
    text: str, certain: str, size: int
) -> None:
    assert shown(f'{{"text":"{text}","line":3}}', size).startswith(f'{{"text":"{certain}')
    is_mark = text != certain
    assert (shown(f'{{"text":"{text}","line":3}}', size) == f'{{"text":"{certain}') is is_mark


def test_a_string_is_shown_as_its_pieces_arrive() -> None:
    pieces = ['{"te', 'xt": "', "def f(", "):\\", "n  pass", '"', "}"]
    gate = ArgumentsGate(Members(SCHEMA))
    assert [gate.feed(piece) for piece in pieces] == [
        "{",
        '"text": "',
        "def f(",
        "):",
        "\\n  pass",
        "",
        "",
    ]
    assert gate.shown.names == ("text",)


@pytest.mark.parametrize(
    ("shown", "arguments", "rest"),
    [
        ("", '{"path":"a"}', '{"path":"a"}'),
        ('{"path": "a", "line": 3', '{"path": "a", "line": 3}', '", "line": 3}'),
        ('{"path": "a", "line": 3, ', '{"path":"a","line":3}', "}"),
        ('{"path": "a", "line": 3, ', '{"line":3,"path":"a","flag":true}', ',"flag":true}'),
        ('{"path": "a', '{"path":"a\\"b","line":3}', '\\"b","line":3}'),
        ('{"path": "a', '{"line":3,"path":"a"}', '","line":3}'),
        ("{", '{ "path": "a"}', ' "path": "a"}'),
        ("{ ", "{}", "}"),
        ('{"path": "a', '{"path":"b"}', None),
        ('{"path": "a', '{"line":3}', None),
        ('{"path": "a', '{"path":["a"]}', None),
        ('{"line": 1, ', '{"line":true}', None),
        ('{"line": 1, ', '{"path":"a"}', None),
    ],
)
def test_missing_part_returns_what_was_not_yet_shown_or_none_for_other_arguments(
    shown: str, arguments: str, rest: str | None
) -> None:
    gate = ArgumentsGate(Members(SCHEMA))
    begun = gate.feed(shown)
    continuation = gate.shown.missing_part(arguments)
    assert continuation == rest
    if continuation is not None:
        assert json.parse(begun + continuation) == json.parse(arguments)


@pytest.mark.parametrize(
    ("arguments", "bound"),
    [
        ("{", {}),
        # only the closing quote of "a.py" is not shown, so the string is complete
        ('{"path": "a.py", "line": 3.5', {"path": {"const": "a.py"}}),
        ('{"path": "a.py"}', {"path": {"const": "a.py"}}),
        (
            '{"line": 3, "path": "a.py"]',
            {"line": {"const": 3}, "path": _string_that_begins_with(r"a\.py")},
        ),
        ('{"path": "a+b (c)|', {"path": _string_that_begins_with(r"a\+b \(c\)\|")}),
        ('{"path": "', {"path": {"type": "string"}}),
        ('{"path": "first\\nsecond', {"path": {"type": "string"}}),
    ],
)
def test_bind_returns_a_schema_that_allows_only_the_shown_values(
    arguments: str, bound: JsonObject
) -> None:
    gate = ArgumentsGate(Members(SCHEMA))
    gate.feed(arguments)
    assert gate.shown.bind() == bound


@pytest.mark.parametrize(
    ("rest", "is_whole"),
    [("", True), ("the end", True), (r"\n \" \\", True), ('" x', False), ("\\", False)],
)
def test_bind_allows_any_valid_continuation_of_an_open_string(rest: str, is_whole: bool) -> None:
    gate = ArgumentsGate(Members(SCHEMA))
    gate.feed('{"path": "a.py (')
    pattern = as_text(as_object(gate.shown.bind()["path"])["pattern"])
    assert (re.match(pattern, f"a.py ({rest}") is not None) is is_whole


def test_missing_part_is_none_for_arguments_that_are_not_an_object() -> None:
    gate = ArgumentsGate(Members(SCHEMA))
    gate.feed('{"path": "a')
    assert gate.shown.missing_part("[1]") is None


TAGS: st.SearchStrategy[JsonValue] = st.lists(st.text(max_size=3), max_size=3).map(list)
CHOICES: st.SearchStrategy[JsonValue] = st.sampled_from([True, "true", "yes", None])
VALUES: dict[str, st.SearchStrategy[JsonValue]] = {
    "path": st.text(),
    "text": st.text(),
    "line": st.integers(-9, 9) | st.integers(-9, 9).map(str) | st.just("x"),
    "mode": st.sampled_from(["read", "WRITE", "none"]),
    "tags": TAGS,
    "options": st.dictionaries(st.text(max_size=3), st.booleans() | st.text(), max_size=3),
    "flag": CHOICES,
    "other": st.none(),
}
OBJECTS = st.fixed_dictionaries({}, optional=VALUES)


@st.composite
def spellings(draw: st.DrawFn) -> str:
    """An object in the notation of a model: spaces, escapes, and sometimes one wrong character."""
    value = draw(OBJECTS)
    pieces = [
        f"{json.dump_text(name)}{draw(st.sampled_from([':', ': ']))}{json.dump_text(member)}"
        for name, member in value.items()
    ]
    text = "{" + draw(st.sampled_from([",", ", ", " ,\n "])).join(pieces) + "}"
    if draw(st.booleans()):
        text = "".join(f"\\u{ord(c):04x}" if 127 < ord(c) < 0xD800 else c for c in text)
    if draw(st.booleans()):
        at = draw(st.integers(0, len(text)))
        text = text[:at] + draw(st.sampled_from(["", '"', "\\", "\n", "}", ",", "'"])) + text[at:]
    return text


@given(spellings(), st.integers(1, 9))
def test_shown_text_and_missing_part_form_the_whole_arguments(text: str, size: int) -> None:
    gate = ArgumentsGate(Members(SCHEMA))
    begun = "".join(gate.feed(text[at : at + size]) for at in range(0, len(text), size))
    assert gate.shown.text == begun
    checked = check(EDIT, text)
    if not isinstance(checked, ValidArguments):
        return
    rest = gate.shown.missing_part(checked.text)
    if rest is not None:
        assert json.parse(begun + rest) == checked.value
    if checked.text == text:
        assert rest is not None  # a valid call keeps the bytes of the model
        assert begun + rest == text


@given(spellings())
def test_the_shown_text_does_not_depend_on_the_chunking(text: str) -> None:
    assert shown(text, 1) == shown(text, 4) == shown(text, len(text) + 1)


@pytest.mark.parametrize("unit", ["x", "\\n", "\\ud83d\\ude00", '", "', "{", "[[", ", "])
@pytest.mark.parametrize("opening", ['{"text": "', '{"options": {"a": "', '{"tags": ["'])
def test_showing_arguments_takes_linear_time(opening: str, unit: str) -> None:
    assert is_linear(lambda text: shown(text, 3), lambda size: opening + unit * size, 4_000)


OFFER = OfferedTools((WEATHER, CLOCK), TextPolicy.AUTO, (), make_respond_tool(()))
PARIS = '{"city": "Paris"}'


def take_call(gate: CallGate, index: int, name: str, arguments: str) -> list[ReplyEvent]:
    shown = gate.take(ToolCallStarted(index, f"id_{index}", name))
    for at in range(0, len(arguments), 4):
        shown += gate.take(ToolCallArgumentsDelta(index, arguments[at : at + 4]))
    return shown


def make_gate(offer: OfferedTools = OFFER) -> CallGate:
    return CallGate(offer, SentAnswer())


def text_of(events: list[ReplyEvent], index: int) -> str:
    return "".join(
        event.text
        for event in events
        if isinstance(event, ToolCallArgumentsDelta) and event.index == index
    )


@pytest.mark.parametrize(
    "offer",
    [
        replace(OFFER, tools=(CLOCK,)),
        replace(OFFER, choice=NamedTool("get_time")),
        replace(OFFER, allowed=frozenset(("get_time",))),
        replace(OFFER, loop=Loop("get_weather", {}, 3)),
        replace(OFFER, workflow=Workflow((), (Prerequisite("get_weather", "get_time"),))),
        replace(OFFER, workflow=Workflow(("get_time",), (), ("get_weather",))),
    ],
)
def test_a_call_is_not_shown_if_it_may_be_rejected_because_of_its_tool(offer: OfferedTools) -> None:
    gate = make_gate(offer)
    assert take_call(gate, 0, "get_weather", PARIS) == []
    assert take_call(gate, 1, "get_time", "{}") == []  # no later call is shown either


def test_a_call_is_shown_after_the_arguments_of_the_previous_call() -> None:
    gate = make_gate()
    shown = take_call(gate, 0, "get_weather", PARIS)
    shown += take_call(gate, 1, "get_time", "{ }")
    assert text_of(shown, 0) == PARIS
    assert len([event for event in shown if isinstance(event, ToolCallStarted)]) == 1
    shown += take_call(gate, 2, "get_weather", PARIS)
    assert ToolCallStarted(1, "id_1", "get_time") in shown
    assert text_of(shown, 1) == "{ }"
    assert text_of(shown, 2) == '{"city": "Paris'


@pytest.mark.parametrize(
    "arguments", ['{"city": "Par', '{"city": 3, "unit": "x"}', "{}", '{"city": "a", "city": "b"}']
)
def test_no_call_is_shown_after_an_invalid_call(arguments: str) -> None:
    gate = make_gate()
    take_call(gate, 0, "get_weather", arguments)
    assert take_call(gate, 1, "get_time", "{}") == []
    assert take_call(gate, 2, "get_time", "{}") == []


def test_only_the_first_call_is_shown_if_parallel_calls_are_disabled() -> None:
    gate = make_gate(replace(OFFER, parallel=False))
    shown = take_call(gate, 0, "get_weather", PARIS) + take_call(gate, 1, "get_time", "{}")
    assert text_of(shown, 0) == PARIS
    assert text_of(shown, 1) == ""


def test_a_call_of_the_tool_respond_is_not_shown_as_a_call() -> None:
    gate = make_gate()
    assert take_call(gate, 0, "respond", '{"message": "Hi"}') == []
    assert take_call(gate, 1, "get_weather", PARIS)[0] == ToolCallStarted(0, "id_1", "get_weather")


def test_arguments_of_a_call_that_was_not_started_are_not_shown() -> None:
    gate = make_gate()
    assert gate.take(ToolCallArgumentsDelta(0, "{")) == []
    take_call(gate, 0, "get_weather", "")
    assert gate.take(ToolCallArgumentsDelta(3, PARIS)) == []
