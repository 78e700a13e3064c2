"""Random replies over several attempts: only valid calls are streamed to their end."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from proxy.conversation import json
from proxy.conversation.json import JsonObject
from proxy.conversation.replies import (
    ReplyEvent,
    ReplyFinished,
    ReplyInProgress,
    TextDelta,
    ToolCallArgumentsDelta,
    ToolCallStarted,
)
from proxy.errors import CallBrokeOff
from proxy.facts import attempts
from proxy.guardrails.offer import TextPolicy
from proxy.guardrails.schemas.schema import compile_schema
from proxy.inference.plan import Policy
from proxy.inference.turn import Turn
from tests.fakes.playbook import CLOCK, WEATHER, CountedIds, make_request, make_tool, prepare

EDIT = make_tool(
    "edit",
    {
        "type": "object",
        "properties": {
            "path": {"type": "string"},
            "text": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            "line": {"type": "integer"},
            "mode": {"enum": ["new", "append"]},
            "tags": {"type": "array", "items": {"type": "string"}},
        },
        "required": ["path", "line"],
        "additionalProperties": False,
    },
)
TOOLS = (WEATHER, CLOCK, EDIT)
SCHEMAS = {tool.name: compile_schema(tool.parameters) for tool in TOOLS}
REASONS = ("tool_calls", "stop", "length")

GOOD: dict[str, st.SearchStrategy[JsonObject]] = {
    "get_weather": st.fixed_dictionaries(
        {"city": st.text(max_size=8)}, optional={"days": st.integers(0, 9)}
    ),
    "get_time": st.just({}),
    "edit": st.fixed_dictionaries(
        {"path": st.text(max_size=8), "line": st.integers(-9, 99)},
        optional={
            "text": st.text(max_size=12) | st.none(),
            "mode": st.sampled_from(["new", "append"]),
            "tags": st.lists(st.text(max_size=3), max_size=2).map(list),
        },
    ),
}
BAD: list[JsonObject] = [{}, {"city": 3, "unit": "x"}, {"path": "a"}, {"line": "3", "path": "a"}]


@dataclass
class Written:
    """A call as the model writes it; `is_healthy` is true if it has no defect."""

    name: str
    arguments: str
    is_healthy: bool


@st.composite
def calls(draw: st.DrawFn) -> Written:
    name = draw(st.sampled_from([*GOOD, "edit", "functions.edit", "launch"]))
    known = name.removeprefix("functions.")
    is_good = known in GOOD and draw(st.integers(0, 3)) > 0
    value = draw(GOOD[known]) if is_good else draw(st.sampled_from(BAD))
    text = json.dump_text(value)
    if draw(st.booleans()):
        text = text.replace('":', '": ').replace(',"', ', "')
        is_good = is_good and json.parse(text) == value
    if draw(st.integers(0, 4)) == 0:
        at = draw(st.integers(0, len(text)))
        text = text[:at] + draw(st.sampled_from(['"', "\\", "\n", "}", "'"])) + text[at:]
        is_good = False
    return Written(name, text, is_good and name == known)


@st.composite
def replies(draw: st.DrawFn) -> tuple[list[Written], list[ReplyEvent]]:
    """Draw a reply: optional prose, then calls in pieces of random size, and a finish reason."""
    items = draw(st.lists(calls(), max_size=3))
    events: list[ReplyEvent] = []
    prose = draw(
        st.sampled_from(["", "It is noon.", "I'll check that now.", "Let me see:\n", "\n\n"])
    )
    events += [TextDelta(prose)] if prose else []
    for index, call in enumerate(items):
        events.append(ToolCallStarted(index, draw(st.sampled_from([None, "same"])), call.name))
        size = draw(st.integers(1, 9))
        for at in range(0, len(call.arguments), size):
            events.append(ToolCallArgumentsDelta(index, call.arguments[at : at + size]))
    if draw(st.integers(0, 5)) == 0:  # the reply may be cut off by the token limit at any position
        return items, [*events[: draw(st.integers(0, len(events)))], ReplyFinished("length")]
    return items, [*events, ReplyFinished("tool_calls" if items else "stop")]


@dataclass
class Client:
    """The events that a client has received; checks their order."""

    whole: ReplyInProgress = field(default_factory=ReplyInProgress)
    shown: dict[int, str] = field(default_factory=dict)
    order: list[tuple[str, str]] = field(default_factory=list)
    reason: str | None = None

    def see(self, events: Sequence[ReplyEvent]) -> None:
        for event in events:
            assert self.reason is None, "nothing follows the end"
            self.whole.add(event)
            self.order += positions(event)
            if isinstance(event, ToolCallStarted):
                assert event.index == len(self.shown), "calls are numbered in order"
                self.shown[event.index] = ""
            elif isinstance(event, ToolCallArgumentsDelta):
                self.shown[event.index] += event.text
            elif isinstance(event, ReplyFinished):
                self.reason = event.reason


def positions(event: ReplyEvent) -> list[tuple[str, str]]:
    """Return the characters of an event, each with the field that contains it."""
    match event:
        case TextDelta(text):
            return [("text", character) for character in text]
        case ToolCallStarted(index, _, name):
            return [(f"name {index}", name)]
        case ToolCallArgumentsDelta(index, text):
            return [(f"arguments {index}", character) for character in text]
        case _:
            return []


def run_turn(
    turn: Turn, answers: Sequence[Sequence[ReplyEvent]], client: Client
) -> CallBrokeOff | None:
    for answer in answers:
        if turn.next_request() is None:
            return None
        for event in answer:
            try:
                client.see(turn.receive(event))
            except CallBrokeOff as failure:
                return failure
    return None


POLICIES = st.builds(Policy, text_policy=st.sampled_from(TextPolicy), attempts=st.integers(1, 3))


@given(st.lists(replies(), min_size=3, max_size=3), POLICIES, st.booleans())
def test_random_replies_finish_with_tool_calls_only_if_all_streamed_calls_are_valid(
    answers: list[tuple[list[Written], list[ReplyEvent]]], policy: Policy, parallel: bool
) -> None:
    request = make_request(tools=TOOLS, stream=True, parallel=parallel)
    turn = prepare(request, policy, CountedIds())
    client = Client()
    failure = run_turn(turn, [events for _, events in answers], client)
    assert turn.next_request() is None
    assert attempts(turn.facts) <= policy.attempts
    calls = client.whole.finish(client.reason or "").calls
    if failure is not None:
        assert client.reason is None
        return
    assert client.reason in REASONS
    if client.reason == "length":
        return
    assert (client.reason == "tool_calls") is bool(calls)
    assert len({call.id for call in calls}) == len(calls)
    for call in calls:
        assert SCHEMAS[call.name].is_valid(json.parse(str(call.arguments)))


@given(replies())
def test_a_random_reply_of_valid_calls_is_unchanged_byte_for_byte(
    reply: tuple[list[Written], list[ReplyEvent]],
) -> None:
    items, events = reply
    turn = prepare(make_request(tools=TOOLS, stream=True), Policy(), CountedIds())
    client = Client()
    is_whole = events[-1] != ReplyFinished("length")
    if not (items and is_whole and all(call.is_healthy for call in items)):
        return
    assert run_turn(turn, [events], client) is None
    assert client.reason == "tool_calls"
    assert [(call.name, call.arguments) for call in client.whole.finish("").calls] == [
        (call.name, call.arguments) for call in items
    ]
    # a call without arguments is shown as a whole
    if all(call.arguments.strip("{} \n") for call in items):
        assert client.order == [piece for event in events for piece in positions(event)]
    assert attempts(turn.facts) == 1


@given(replies(), st.integers(0, 400))
def test_a_reply_truncated_at_any_event_never_finishes_with_tool_calls(
    reply: tuple[list[Written], list[ReplyEvent]], cut: int
) -> None:
    _, events = reply
    turn = prepare(make_request(tools=TOOLS, stream=True), Policy(), CountedIds())
    turn.next_request()
    client = Client()
    for event in events[: min(cut, len(events) - 1)]:
        client.see(turn.receive(event))
    client.see(turn.cut_off())
    assert client.reason in (None, "length")
