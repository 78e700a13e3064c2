import random

import pytest

from proxy.conversation.replies import (
    PromptProgress,
    ReasoningDelta,
    ReplyEvent,
    ReplyFinished,
    ReplyStarted,
    TextDelta,
    ToolCallArgumentsDelta,
    ToolCallStarted,
    UsageReported,
)
from proxy.errors import GuardrailsExhausted
from proxy.guardrails.offer import Mode, TextPolicy
from proxy.inference.coalescing import join_deltas, split_like
from proxy.inference.preparation import Policy
from tests.fakes.playbook import Playbook, make_request

WORDS = [TextDelta("It "), TextDelta("is "), TextDelta("noon.")]
TOLD = [TextDelta("x", {"content": []}), TextDelta("y", {"content": []})]


def test_deltas_that_are_alike_are_one_and_everything_else_stays_as_it_is() -> None:
    thoughts = [ReasoningDelta("h"), ReasoningDelta("m")]
    progress = PromptProgress(3, 1, 2)
    events: list[ReplyEvent] = [progress, *thoughts, *WORDS, progress, progress, *WORDS[:1], *TOLD]
    assert [*join_deltas(events)] == [
        (progress, ()),
        (ReasoningDelta("hm"), thoughts),
        (TextDelta("It is noon."), WORDS),
        (progress, ()),
        (progress, ()),
        (TextDelta("It "), ()),
        *((one, ()) for one in TOLD),
    ]


def test_arguments_are_joined_between_the_escapes() -> None:
    texts = ('{"a": "', "It ", "is", "\\n", "no", "on", '"}')
    arguments = [ToolCallArgumentsDelta(1, text) for text in texts]
    other = ToolCallArgumentsDelta(2, "{")
    events: list[ReplyEvent] = [ToolCallStarted(1, "a", "f"), *arguments, other, other]
    found = [*join_deltas(events)]
    assert [whole for whole, _ in found] == [
        events[0],
        arguments[0],
        ToolCallArgumentsDelta(1, "It is"),
        arguments[3],
        ToolCallArgumentsDelta(1, "noon"),
        arguments[6],
        ToolCallArgumentsDelta(2, "{{"),
    ]
    assert [event for whole, row in found for event in row or (whole,)] == events


def test_arguments_of_two_calls_are_not_joined() -> None:
    events = [ToolCallArgumentsDelta(index, "{") for index in (1, 2)]
    assert [*join_deltas(events)] == [(event, ()) for event in events]


@pytest.mark.parametrize(
    ("shown", "pieces"),
    [
        ("It is noon.", ["It ", "is ", "noon."]),
        ("It is", ["It ", "is"]),
        ("It", ["It"]),
        (" <It is noon", [" <It ", "is ", "noon"]),
        (" <", [" <"]),
        ("It was noon.", ["It was noon."]),
        (200 * "It was noon.", [200 * "It was noon."]),
    ],
)
def test_what_is_shown_is_cut_where_the_backend_cut_it(shown: str, pieces: list[str]) -> None:
    assert split_like([TextDelta(shown)], WORDS) == [TextDelta(piece) for piece in pieces]
    thought: list[ReplyEvent] = [ReasoningDelta(shown), TextDelta("!")]
    assert split_like(thought, WORDS) == [*map(ReasoningDelta, pieces), TextDelta("!")]


@pytest.mark.parametrize("shown", [[], [PromptProgress(3, 1, 2)]])
def test_what_is_no_text_is_not_cut(shown: list[ReplyEvent]) -> None:
    assert split_like(shown, WORDS) == shown


def test_nothing_is_cut_that_was_not_joined() -> None:
    assert split_like([TextDelta("It is noon.")], ()) == [TextDelta("It is noon.")]


def test_cutting_changes_no_character() -> None:
    chance = random.Random(1)
    for _ in range(2_000):
        deltas = [TextDelta("".join(chance.choices(" ab", k=3))) for _ in range(4)]
        heard = "".join(delta.text for delta in deltas)
        whole = "".join(chance.choices(" ab", k=2)) + heard[: chance.randint(0, len(heard))]
        cut = split_like([TextDelta(whole)], deltas)
        assert "".join(one.text for one in cut if isinstance(one, TextDelta)) == whole


REPLIES: tuple[tuple[ReplyEvent, ...], ...] = (
    (TextDelta("It "), TextDelta("is "), TextDelta("noon <to"), TextDelta("day>.")),
    (TextDelta('<tool_call>{"name": "get_'), TextDelta('time", "arguments": {}}</tool_call>')),
    (TextDelta("<think>hm"), TextDelta(", so"), TextDelta("</think>Yes, "), TextDelta("noon.")),
    (ReasoningDelta("h"), ReasoningDelta("m"), TextDelta("Noon"), TextDelta(".", {"content": []})),
    (
        ToolCallStarted(0, "a", "respond"),
        *(ToolCallArgumentsDelta(0, one) for one in ('{"message": "It', " is", "\\n", "so", '"}')),
    ),
    (
        ToolCallStarted(0, "a", "get_time"),
        *(ToolCallArgumentsDelta(0, text) for text in "{}"),
        TextDelta("So"),
        TextDelta("."),
    ),
    (TextDelta("<tool_call>"), TextDelta("broken"), TextDelta("</tool_call>"), TextDelta(" x")),
)
POLICIES = (
    Policy(text_policy=TextPolicy.ACCEPT),
    Policy(text_policy=TextPolicy.RESPOND),
    Policy(mode=Mode.OFF),
    Policy(mode=Mode.OBSERVE),
)


@pytest.mark.parametrize("reply", REPLIES)
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("size", [2, 3, 9])
def test_what_arrives_together_comes_to_the_same(
    reply: tuple[ReplyEvent, ...], policy: Policy, size: int
) -> None:
    events = [ReplyStarted("c"), *reply, UsageReported({}), ReplyFinished("stop")]
    alone, together = Playbook.of(make_request(), policy).ask(), Playbook.of(make_request(), policy)
    for event in events:
        _ = alone.receive(event)
    together.ask()
    for at in range(0, len(events), size):
        together.turn.receive_all(events[at : at + size], together.shown)
    assert _merged(together.shown) == _merged(alone.shown)
    assert together.turn.facts == alone.turn.facts
    assert together.turn.state is alone.turn.state


def test_what_was_shown_before_a_strict_end_is_not_lost() -> None:
    policy = Policy(text_policy=TextPolicy.REQUIRE, is_strict=True, attempts=1)
    book, shown = Playbook.of(make_request(), policy).ask(), list[ReplyEvent]()
    with pytest.raises(GuardrailsExhausted):
        book.turn.receive_all(
            [ReasoningDelta("hm"), TextDelta("No."), ReplyFinished("stop")], shown
        )
    assert shown == [ReasoningDelta("hm")]


def _merged(events: list[ReplyEvent]) -> list[ReplyEvent]:
    """Join the deltas that follow each other."""
    found: list[ReplyEvent] = []
    for event in events:
        last = found[-1] if found else None
        if isinstance(event, TextDelta) and isinstance(last, TextDelta):
            found[-1] = TextDelta(last.text + event.text)
        elif isinstance(event, ReasoningDelta) and isinstance(last, ReasoningDelta):
            found[-1] = ReasoningDelta(last.text + event.text)
        else:
            found.append(event)
    return found
