import asyncio

import pytest

from proxy.backends.client import ReplyEvents
from proxy.conversation.replies import (
    PromptProgress,
    ReasoningDelta,
    ReplyEvent,
    ReplyFinished,
    ReplyStarted,
    ReplyUnreadable,
    TextDelta,
    ToolCallArgumentsDelta,
    ToolCalled,
    ToolCallStarted,
)
from proxy.conversation.requests import UpstreamRequest
from proxy.conversation.tools import ToolCall, ToolUse
from proxy.errors import BackendTimedOut, TemperError
from proxy.facts import Coerced, ReplyOutcome
from proxy.guardrails.model_quirks import GENERIC as GENERIC_QUIRKS
from proxy.inference.plan import Policy
from proxy.inference.preparation import plan_request
from proxy.observability import exchange_recorder
from proxy.observability.exchange_recorder import ExchangeRecorder, event_of, piece_of
from proxy.observability.record import AttemptRecord, RequestRecord
from proxy.observability.recording import (
    RecordedCall,
    RecordedOutcome,
    RecordedRound,
    RecordedRun,
    RecordedVerdict,
)
from proxy.profiles.known_model import KnownModel
from proxy.profiles.profile import GENERIC
from proxy.profiles.recognition import Evidence, Recognition
from proxy.tools import executor as ran_calls
from proxy.tools.executor import Round, Status
from proxy.tools.run import RunConfig
from tests.fakes.backend import FollowedBackend, ScriptedBackend
from tests.fakes.playbook import make_request

REQUEST = make_request(tools=())
UPSTREAM_REQUEST = UpstreamRequest(REQUEST, REQUEST.messages, (), ToolUse.AUTO)
KNOWN = KnownModel(
    "test",
    Recognition(GENERIC, ""),
    GENERIC_QUIRKS,
    evidence=Evidence(("n",), "llama", "{{ }}", takes_tools=True),
)
RECORD = RequestRecord(
    id="r",
    begun_at=5.0,
    seconds=1.0,
    status=200,
    attempts=(AttemptRecord("as_asked", 0, 0, "prose"),),
    facts=(Coerced("f", "/a"),),
    outcome=ReplyOutcome.REPAIRED,
)
PIECES: list[ReplyEvent] = [
    TextDelta("a"),
    ReasoningDelta("b"),
    ToolCallStarted(1, None, "f"),
    ToolCallStarted(1, "id", "f"),
    ToolCallArgumentsDelta(1, "{"),
    ReplyFinished("stop"),
    ReplyUnreadable("odd"),
]


async def batches_of(*events: ReplyEvent) -> ReplyEvents:
    for first in range(0, len(events), 2):
        yield events[first : first + 2]


def record_generation(recorder: ExchangeRecorder, *script: ReplyEvent | TemperError) -> None:
    """Send a request to a backend through a recorder."""
    backend = FollowedBackend(ScriptedBackend([list(script)]), recorder)

    async def ask() -> list[ReplyEvent]:
        return [event async for batch in backend.stream(UPSTREAM_REQUEST, {}) for event in batch]

    records = asyncio.run(ask())
    assert records == list(script)


@pytest.mark.parametrize("event", PIECES)
def test_an_event_converts_to_a_piece_and_back(event: ReplyEvent) -> None:
    piece = piece_of(event)
    assert piece is not None
    assert event_of(piece) == event


def test_events_that_guardrails_ignore_are_not_recorded() -> None:
    assert piece_of(ReplyStarted()) is None
    assert piece_of(PromptProgress(3, 2, 1)) is None


@pytest.mark.parametrize("piece", [["text"], ["text", 1], ["odd", "x"], ["call", "1", None, "f"]])
def test_an_invalid_piece_raises_value_error(piece: list[str | int | None]) -> None:
    with pytest.raises(ValueError, match="is not a valid part"):
        event_of(piece)


def test_consecutive_deltas_of_one_type_and_call_are_joined() -> None:
    recorder = ExchangeRecorder()
    record_generation(
        recorder,
        ReplyStarted(),
        TextDelta("a"),
        TextDelta("b"),
        ToolCallStarted(0, "i", "f"),
        ToolCallArgumentsDelta(0, "{"),
        ToolCallArgumentsDelta(0, "}"),
        ToolCallArgumentsDelta(1, "["),
        ReasoningDelta("c"),
        TextDelta("d"),
        ReplyFinished("stop"),
    )
    assert recorder.exchange(KNOWN, plan_request(REQUEST, Policy()), RECORD).generations == (
        (
            ["text", "ab"],
            ["call", 0, "i", "f"],
            ["arguments", 0, "{}"],
            ["arguments", 1, "["],
            ["reasoning", "c"],
            ["text", "d"],
            ["finished", "stop"],
        ),
    )


def test_a_failed_generation_ends_with_the_name_of_its_error() -> None:
    recorder = ExchangeRecorder()
    with pytest.raises(BackendTimedOut):
        record_generation(recorder, TextDelta("a"), BackendTimedOut("b", "was slow"))
    (generation,) = recorder.exchange(KNOWN, plan_request(REQUEST, Policy()), RECORD).generations
    assert generation == (["text", "a"], ["failed", "timed_out"])


def test_an_exchange_contains_the_request_model_policy_answer_and_verdict() -> None:
    recorder = ExchangeRecorder()
    call = ToolCalled(0, ToolCall("id", "f", "{}"))
    events: list[ReplyEvent] = [TextDelta("He"), TextDelta("llo"), call, ReplyFinished("stop")]

    async def run() -> list[ReplyEvent]:
        return [
            event async for batch in recorder.record_answer(batches_of(*events)) for event in batch
        ]

    assert asyncio.run(run()) == events
    recorded = recorder.exchange(KNOWN, plan_request(REQUEST, Policy(is_strict=True)), RECORD)
    assert (recorded.id, recorded.at, recorded.run) == ("r", 5.0, None)
    assert recorded.request == {
        "model": "test",
        "messages": [{"role": "user", "content": "How is the weather?"}],
    }
    assert recorded.answer.text == "Hello"
    assert recorded.answer.calls == (RecordedCall(name="f", arguments="{}"),)
    assert recorded.answer.finish_reason == "stop"
    assert recorded.verdict == RecordedVerdict(
        outcome="repaired", attempts=(("as_asked", "prose"),), repairs="coerced=1"
    )
    assert (recorded.model.names, recorded.model.architecture) == (("n",), "llama")
    assert (recorded.model.template, recorded.model.takes_tools) == ("{{ }}", True)
    assert recorded.model.profile is None
    assert recorded.policy.is_strict


@pytest.mark.parametrize("where", ["generation", "answer"])
def test_text_above_the_size_limit_is_dropped_and_sets_is_whole_to_false(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange_recorder, "_MOST_CHARACTERS", 10)
    recorder = ExchangeRecorder()
    recorder.begin(UPSTREAM_REQUEST, None)
    for _ in range(10):
        assert recorder.is_whole
        if where == "generation":
            recorder.note(["text", "x"])
        else:
            asyncio.run(anext(recorder.record_answer(batches_of(TextDelta("x")))))
    recorder.note(["text", "x"])
    assert not recorder.is_whole
    recorded = recorder.exchange(KNOWN, plan_request(REQUEST, Policy()), RECORD)
    assert len(str(recorded.generations[0])) + len(recorded.answer.text) < 40


def test_each_recorded_round_has_its_number_of_generations_and_its_tool_results() -> None:
    recorder = ExchangeRecorder()
    ended = ReplyFinished("stop")
    recorder.begin_round()
    record_generation(recorder, TextDelta("a"), ended)
    record_generation(recorder, TextDelta("b"), ended)
    recorder.begin_round()
    record_generation(recorder, TextDelta("c"), ended)
    outcome = ran_calls.Outcome(ToolCall("1", "find", "{}"), "gone", Status.LOST, counted=False)
    recorder.end_run(RunConfig(frozenset(("find",)), rounds=7), (Round("", (outcome,)),))
    recorded = recorder.exchange(KNOWN, plan_request(REQUEST, Policy()), RECORD).run
    recorded_outcome = RecordedOutcome(
        name="find", arguments="{}", text="gone", status="lost", counted=False
    )
    assert recorded == RecordedRun(
        owned=("find",),
        most_rounds=7,
        most_failed_rounds=3,
        rounds=(
            RecordedRound(generations=2, outcomes=(recorded_outcome,)),
            RecordedRound(generations=1),
        ),
    )


def test_a_tool_result_above_four_megabytes_sets_is_whole_to_false() -> None:
    recorder = ExchangeRecorder()
    recorder.begin_round()
    outcome = ran_calls.Outcome(ToolCall("1", "find", "{}"), "x" * (4 * 2**20 + 1))
    recorder.end_run(RunConfig(frozenset()), (Round("", (outcome,)),))
    assert not recorder.is_whole
