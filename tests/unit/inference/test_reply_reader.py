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
    ToolCalled,
    ToolCallStarted,
    UsageReported,
)
from proxy.conversation.tools import ToolCall
from proxy.errors import GuardrailsExhausted
from proxy.facts import EndedThoughts, RejectedReply, Unchecked
from proxy.guardrails.offer import Mode, OfferedTools, TextPolicy
from proxy.guardrails.reasoning import EnoughReadError, ReasoningSplitter
from proxy.guardrails.rescue.registry import order_syntaxes
from proxy.guardrails.rescue.syntax import Reading, Syntax
from proxy.guardrails.rescue.values.cursor import Cursor
from proxy.guardrails.verdict import Accepted
from proxy.inference.call_gate import CallGate
from proxy.inference.plan import Policy
from proxy.inference.reply_reader import (
    GuardedReader,
    ObservingReader,
    PassthroughReader,
    join_deltas,
    split_like,
)
from proxy.inference.sent_answer import SentAnswer
from proxy.inference.text_gate import FirstReplyGate
from tests.fakes.playbook import CLOCK, WEATHER, CountedIds, Playbook, make_request

WORDS = [TextDelta("It "), TextDelta("is "), TextDelta("noon.")]
WITH_LOGPROBS = [TextDelta("x", {"content": []}), TextDelta("y", {"content": []})]


def test_adjacent_deltas_are_joined_and_other_events_are_unchanged() -> None:
    thoughts = [ReasoningDelta("h"), ReasoningDelta("m")]
    progress = PromptProgress(3, 1, 2)
    events: list[ReplyEvent] = [
        progress,
        *thoughts,
        *WORDS,
        progress,
        progress,
        *WORDS[:1],
        *WITH_LOGPROBS,
    ]
    assert [*join_deltas(events)] == [
        (progress, ()),
        (ReasoningDelta("hm"), thoughts),
        (TextDelta("It is noon."), WORDS),
        (progress, ()),
        (progress, ()),
        (TextDelta("It "), ()),
        *((delta, ()) for delta in WITH_LOGPROBS),
    ]


def test_argument_deltas_with_quotation_marks_or_escapes_are_not_joined() -> None:
    texts = ('{"a": "', "It ", "is", "\\n", "no", "on", '"}')
    arguments = [ToolCallArgumentsDelta(1, text) for text in texts]
    other = ToolCallArgumentsDelta(2, "{")
    events: list[ReplyEvent] = [ToolCallStarted(1, "a", "f"), *arguments, other, other]
    deltas = [*join_deltas(events)]
    assert [whole for whole, _ in deltas] == [
        events[0],
        arguments[0],
        ToolCallArgumentsDelta(1, "It is"),
        arguments[3],
        ToolCallArgumentsDelta(1, "noon"),
        arguments[6],
        ToolCallArgumentsDelta(2, "{{"),
    ]
    assert [event for whole, row in deltas for event in row or (whole,)] == events


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
def test_shown_text_is_split_like_the_received_deltas(shown: str, pieces: list[str]) -> None:
    assert split_like([TextDelta(shown)], WORDS) == [TextDelta(piece) for piece in pieces]
    thought: list[ReplyEvent] = [ReasoningDelta(shown), TextDelta("!")]
    assert split_like(thought, WORDS) == [*map(ReasoningDelta, pieces), TextDelta("!")]


@pytest.mark.parametrize("shown", [[], [PromptProgress(3, 1, 2)]])
def test_events_without_text_are_not_split(shown: list[ReplyEvent]) -> None:
    assert split_like(shown, WORDS) == shown


def test_a_delta_that_was_not_joined_is_not_split() -> None:
    assert split_like([TextDelta("It is noon.")], ()) == [TextDelta("It is noon.")]


def test_splitting_shown_text_changes_no_character() -> None:
    chance = random.Random(1)
    for _ in range(2_000):
        deltas = [TextDelta("".join(chance.choices(" ab", k=3))) for _ in range(4)]
        text = "".join(delta.text for delta in deltas)
        whole = "".join(chance.choices(" ab", k=2)) + text[: chance.randint(0, len(text))]
        cut = split_like([TextDelta(whole)], deltas)
        assert "".join(item.text for item in cut if isinstance(item, TextDelta)) == whole


REPLIES: tuple[tuple[ReplyEvent, ...], ...] = (
    (TextDelta("It "), TextDelta("is "), TextDelta("noon <to"), TextDelta("day>.")),
    (TextDelta('<tool_call>{"name": "get_'), TextDelta('time", "arguments": {}}</tool_call>')),
    (TextDelta("<think>hm"), TextDelta(", so"), TextDelta("</think>Yes, "), TextDelta("noon.")),
    (ReasoningDelta("h"), ReasoningDelta("m"), TextDelta("Noon"), TextDelta(".", {"content": []})),
    (
        ToolCallStarted(0, "a", "respond"),
        *(
            ToolCallArgumentsDelta(0, fragment)
            for fragment in ('{"message": "It', " is", "\\n", "so", '"}')
        ),
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
def test_batches_give_the_same_result_as_single_events(
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


def test_the_events_that_precede_the_error_of_a_strict_turn_are_shown() -> None:
    policy = Policy(text_policy=TextPolicy.REQUIRE, is_strict=True, attempts=1)
    book, shown = Playbook.of(make_request(), policy).ask(), list[ReplyEvent]()
    with pytest.raises(GuardrailsExhausted):
        book.turn.receive_all(
            [ReasoningDelta("hm"), TextDelta("No."), ReplyFinished("stop")], shown
        )
    assert shown == [ReasoningDelta("hm")]


def _merged(events: list[ReplyEvent]) -> list[ReplyEvent]:
    """Join adjacent deltas of text, and adjacent deltas of reasoning."""
    merged: list[ReplyEvent] = []
    for event in events:
        last = merged[-1] if merged else None
        if isinstance(event, TextDelta) and isinstance(last, TextDelta):
            merged[-1] = TextDelta(last.text + event.text)
        elif isinstance(event, ReasoningDelta) and isinstance(last, ReasoningDelta):
            merged[-1] = ReasoningDelta(last.text + event.text)
        else:
            merged.append(event)
    return merged


OFFER = OfferedTools((WEATHER, CLOCK), TextPolicy.ACCEPT, order_syntaxes(()))


def guarded_reader(*, streams_calls: bool = False) -> GuardedReader:
    shown = SentAnswer()
    calls = CallGate(OFFER, shown) if streams_calls else None
    gate = FirstReplyGate(shown, calls, shows_prose=True)
    return GuardedReader(OFFER, gate, CountedIds(), shown)


def test_text_is_shown_while_it_arrives_but_a_call_only_after_the_verdict() -> None:
    reader = guarded_reader()
    assert reader.read(ReasoningDelta("hm")) == [ReasoningDelta("hm")]
    assert reader.read(TextDelta("Noon.\n<tool")) == [TextDelta("Noon.")]
    assert reader.read(TextDelta("box>")) == [TextDelta("\n<toolbox>")]
    assert reader.read(ToolCallStarted(0, "a", "get_time")) == []
    assert reader.read(ToolCallArgumentsDelta(0, "{}")) == []
    shown, verdict = reader.finish("tool_calls")
    assert shown == []
    assert verdict == Accepted("Noon.\n<toolbox>", (ToolCall("a", "get_time", "{}"),), "tool_calls")


NOW = '<tool_call>{"name": "get_time", "arguments": {}}</tool_call>\n'


def test_reading_stops_at_repeated_calls_except_in_observe_mode() -> None:
    reader = guarded_reader()
    again = [TextDelta(NOW) for _ in range(6)]
    assert reader.read_all([TextDelta("Wait.\n"), *again]) == [TextDelta("Wait.")]
    with pytest.raises(EnoughReadError):
        reader.read_all(again)
    verdict = reader.finish("stop")[1]
    assert isinstance(verdict, Accepted)
    assert [call.name for call in verdict.calls] == ["get_time"]
    thinking = guarded_reader()
    thought = ReasoningDelta("hm")
    assert thinking.read_all([thought, *again, thought, *again])[:1] == [thought]
    observing = ObservingReader(OFFER, CountedIds())
    assert observing.read_all(again) + observing.read_all(again) == again * 2
    assert not any(isinstance(fact, Unchecked) for fact in observing.finish("stop")[1].facts)


def test_finish_shows_text_that_was_held_because_it_could_become_a_call() -> None:
    reader = guarded_reader()
    assert reader.read(TextDelta("Noon. <tool")) == [TextDelta("Noon.")]
    shown, verdict = reader.finish("stop")
    assert shown == [TextDelta(" <tool")]
    assert isinstance(verdict, Accepted)
    assert reader.complete(verdict, is_only_reply=True) == []


def test_a_call_is_shown_while_it_arrives() -> None:
    reader = guarded_reader(streams_calls=True)
    arguments = '{"city": "Paris"}'
    assert reader.read(ToolCallStarted(4, None, "get_weather")) == []
    assert reader.read(ToolCallArgumentsDelta(4, '{"city": "Par')) == [
        ToolCallStarted(0, "made_1", "get_weather"),
        ToolCallArgumentsDelta(0, '{"city": "Par'),
    ]
    assert reader.read(ToolCallArgumentsDelta(4, 'is"}')) == [ToolCallArgumentsDelta(0, "is")]
    _, verdict = reader.finish("tool_calls")
    assert verdict == Accepted("", (ToolCall("made_1", "get_weather", arguments),), "tool_calls")
    assert isinstance(verdict, Accepted)
    assert reader.complete(verdict, is_only_reply=True) == [ToolCallArgumentsDelta(0, '"}')]


def test_a_structured_call_after_a_call_in_text_is_not_shown_before_the_verdict() -> None:
    reader = guarded_reader(streams_calls=True)
    reader.read(TextDelta('<tool_call>{"name": "get_time", "arguments": {}}</tool_call>'))
    reader.read(TextDelta("\n\n"))
    assert reader.read(ToolCallStarted(0, "a", "get_time")) == []
    assert reader.read(ToolCallArgumentsDelta(0, "{}")) == []


def test_calls_with_the_same_id_get_different_ids() -> None:
    reader = guarded_reader()
    for index in (0, 1):
        reader.read(ToolCallStarted(index, "same", "get_time"))
    _, verdict = reader.finish("tool_calls")
    assert isinstance(verdict, Accepted)
    assert [call.id for call in verdict.calls] == ["same", "made_1"]


def test_prompt_progress_is_shown_unchanged() -> None:
    progress = PromptProgress(3, 1, 2)
    assert guarded_reader().read(progress) == [progress]
    assert PassthroughReader(CountedIds()).read(progress) == [progress]


def test_passthrough_shows_everything_as_received() -> None:
    reader = PassthroughReader(CountedIds())
    started = ToolCallStarted(0, "made_1", "anything")
    assert reader.read(ToolCallStarted(0, None, "anything")) == [started]
    broken = ToolCallArgumentsDelta(0, "{broken")
    assert reader.read(broken) == [broken]
    _, verdict = reader.finish("stop")
    assert isinstance(verdict, Accepted)
    assert reader.complete(verdict, is_only_reply=True) == []


def test_passthrough_shows_only_whole_calls_if_streams_calls_is_not_set() -> None:
    reader = PassthroughReader(CountedIds(), streams_calls=False)
    assert reader.read(TextDelta("<tool_call>")) == [TextDelta("<tool_call>")]
    assert reader.read(ToolCallStarted(0, None, "anything")) == []
    assert reader.read(ToolCallArgumentsDelta(0, "{broken")) == []
    shown, verdict = reader.finish("stop")
    assert shown == []
    assert verdict == Accepted("<tool_call>", (ToolCall("made_1", "anything", "{broken"),), "stop")
    assert isinstance(verdict, Accepted)
    assert reader.complete(verdict, is_only_reply=True) == [ToolCalled(0, verdict.calls[0])]


def test_observe_mode_shows_the_original_and_records_the_verdict() -> None:
    reader = ObservingReader(OFFER, CountedIds())
    assert reader.read(TextDelta("Noon.")) == [TextDelta("Noon.")]
    started = ToolCallStarted(0, "a", "launch")
    assert reader.read(started) == [started]
    shown, verdict = reader.finish("tool_calls")
    assert shown == []
    assert isinstance(verdict, Accepted)
    assert verdict.calls == (ToolCall("a", "launch", ""),)
    assert verdict.facts == (RejectedReply("unknown_tool"),)
    assert reader.complete(verdict, is_only_reply=True) == []


def read_with_a_bug(cursor: Cursor, opening: str) -> Reading:
    del opening
    yield from cursor.whitespace()
    raise KeyError("oh")


BUGGY = Syntax("buggy", ("<bug>",), read_with_a_bug)


@pytest.mark.parametrize(
    "pieces",
    [["Noon. <bug> x", "and on"], ["Noon. <bug>"]],
    ids=["while the reply arrives", "at its end"],
)
def test_an_internal_error_of_the_guardrails_does_not_affect_clients_in_observe_mode(
    pieces: list[str],
) -> None:
    offer = OfferedTools((CLOCK,), TextPolicy.ACCEPT, (BUGGY,))
    reader = ObservingReader(offer, CountedIds())
    for piece in pieces:
        assert reader.read(TextDelta(piece)) == [TextDelta(piece)]
    _, verdict = reader.finish("stop")
    unchecked = Unchecked("the reply", "KeyError: 'oh'")
    assert verdict == Accepted("".join(pieces), (), "stop", (unchecked,))


WITH_LOGPROBS_THINK = TextDelta("<think>", {"content": []})
STARTED = ToolCallStarted(0, "a", "get_time")


@pytest.mark.parametrize(
    ("received", "shown", "shown_at_the_end"),
    [
        ([TextDelta("<think>a</think>b")], [ReasoningDelta("a"), TextDelta("b")], []),
        ([TextDelta("<thi"), TextDelta("nk>a"), TextDelta("</think>")], [ReasoningDelta("a")], []),
        ([TextDelta("x <think>")], [TextDelta("x <think>")], []),
        ([TextDelta("<thi")], [], [TextDelta("<thi")]),
        ([TextDelta("x"), TextDelta("<think>")], [TextDelta("x"), TextDelta("<think>")], []),
        (
            [TextDelta("x.\n\n<thi"), TextDelta("nk>a</think>\nb")],
            [TextDelta("x.\n\n"), ReasoningDelta("a"), TextDelta("b")],
            [],
        ),
        ([ReasoningDelta("a"), TextDelta("b")], [ReasoningDelta("a"), TextDelta("b")], []),
        ([WITH_LOGPROBS_THINK, TextDelta("a")], [WITH_LOGPROBS_THINK, TextDelta("a")], []),
        ([STARTED], [STARTED], []),
    ],
)
def test_passthrough_separates_reasoning_from_text(
    received: list[ReplyEvent], shown: list[ReplyEvent], shown_at_the_end: list[ReplyEvent]
) -> None:
    for size in (1, len(received)):
        reader = PassthroughReader(CountedIds(), splitter=ReasoningSplitter())
        batches = [received[at : at + size] for at in range(0, len(received), size)]
        assert [element for batch in batches for element in reader.read_all(batch)] == shown
        last, verdict = reader.finish("stop")
        assert last == shown_at_the_end
        assert isinstance(verdict, Accepted)
        texts = [item.text for item in (*shown, *shown_at_the_end) if isinstance(item, TextDelta)]
        assert (verdict.text, verdict.facts) == ("".join(texts), ())


@pytest.mark.parametrize("is_opened", [True, False])
def test_a_closing_reasoning_tag_without_an_opening_tag_is_recorded(*, is_opened: bool) -> None:
    reader = PassthroughReader(CountedIds(), splitter=ReasoningSplitter(is_opened))
    shown = reader.read(TextDelta("Hm.\n</think>\nHello."))
    _, verdict = reader.finish("stop")
    assert verdict.facts == (EndedThoughts(),)
    assert (ReasoningDelta("Hm.") in shown) is is_opened
