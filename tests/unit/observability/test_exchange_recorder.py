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
from proxy.observability import exchange_recorder as taping
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
from proxy.tools.run import RunTerms
from tests.fakes.backend import FollowedBackend, ScriptedBackend
from tests.fakes.playbook import make_request

REQUEST = make_request(tools=())
QUESTION = UpstreamRequest(REQUEST, REQUEST.messages, (), ToolUse.AUTO)
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


def listened(recorder: ExchangeRecorder, *script: ReplyEvent | TemperError) -> None:
    """Put a question to a backend behind a recorder."""
    backend = FollowedBackend(ScriptedBackend([list(script)]), recorder)

    async def ask() -> list[ReplyEvent]:
        return [event async for batch in backend.stream(QUESTION, {}) for event in batch]

    heard = asyncio.run(ask())
    assert heard == list(script)


@pytest.mark.parametrize("event", PIECES)
def test_what_is_written_down_can_be_read_again(event: ReplyEvent) -> None:
    piece = piece_of(event)
    assert piece is not None
    assert event_of(piece) == event


def test_what_nobody_judges_is_not_written_down() -> None:
    assert piece_of(ReplyStarted()) is None
    assert piece_of(PromptProgress(3, 2, 1)) is None


@pytest.mark.parametrize("piece", [["text"], ["text", 1], ["odd", "x"], ["call", "1", None, "f"]])
def test_what_is_no_piece_is_refused(piece: list[str | int | None]) -> None:
    with pytest.raises(ValueError, match="is not a valid part"):
        event_of(piece)


def test_what_a_backend_says_is_kept_in_as_few_pieces_as_it_takes() -> None:
    recorder = ExchangeRecorder()
    listened(
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


def test_a_failure_is_kept_as_its_word() -> None:
    recorder = ExchangeRecorder()
    with pytest.raises(BackendTimedOut):
        listened(recorder, TextDelta("a"), BackendTimedOut("b", "was slow"))
    (generation,) = recorder.exchange(KNOWN, plan_request(REQUEST, Policy()), RECORD).generations
    assert generation == (["text", "a"], ["failed", "timed_out"])


def test_an_exchange_holds_what_it_takes_to_judge_again() -> None:
    recorder = ExchangeRecorder()
    call = ToolCalled(0, ToolCall("id", "f", "{}"))
    events: list[ReplyEvent] = [TextDelta("He"), TextDelta("llo"), call, ReplyFinished("stop")]

    async def run() -> list[ReplyEvent]:
        return [
            event async for batch in recorder.record_answer(batches_of(*events)) for event in batch
        ]

    assert asyncio.run(run()) == events
    kept = recorder.exchange(KNOWN, plan_request(REQUEST, Policy(is_strict=True)), RECORD)
    assert (kept.id, kept.at, kept.run) == ("r", 5.0, None)
    assert kept.request == {
        "model": "test",
        "messages": [{"role": "user", "content": "How is the weather?"}],
    }
    assert kept.answer.text == "Hello"
    assert kept.answer.calls == (RecordedCall(name="f", arguments="{}"),)
    assert kept.answer.finish_reason == "stop"
    assert kept.verdict == RecordedVerdict(
        outcome="repaired", attempts=(("as_asked", "prose"),), repairs="coerced=1"
    )
    assert (kept.model.names, kept.model.architecture) == (("n",), "llama")
    assert (kept.model.template, kept.model.takes_tools) == ("{{ }}", True)
    assert kept.model.profile is None
    assert kept.policy.is_strict


@pytest.mark.parametrize("where", ["generation", "answer"])
def test_what_is_kept_of_one_exchange_is_bounded(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(taping, "_MOST_CHARACTERS", 10)
    recorder = ExchangeRecorder()
    recorder.begin(QUESTION, None)
    for _ in range(10):
        assert recorder.is_whole
        if where == "generation":
            recorder.note(["text", "x"])
        else:
            asyncio.run(anext(recorder.record_answer(batches_of(TextDelta("x")))))
    recorder.note(["text", "x"])
    assert not recorder.is_whole
    kept = recorder.exchange(KNOWN, plan_request(REQUEST, Policy()), RECORD)
    assert len(str(kept.generations[0])) + len(kept.answer.text) < 40


def test_rounds_have_their_generations_and_what_became_of_their_calls() -> None:
    recorder = ExchangeRecorder()
    ended = ReplyFinished("stop")
    recorder.begin_round()
    listened(recorder, TextDelta("a"), ended)
    listened(recorder, TextDelta("b"), ended)
    recorder.begin_round()
    listened(recorder, TextDelta("c"), ended)
    ran = ran_calls.Outcome(ToolCall("1", "find", "{}"), "gone", Status.LOST, counted=False)
    recorder.end_run(RunTerms(frozenset(("find",)), rounds=7), (Round("", (ran,)),))
    kept = recorder.exchange(KNOWN, plan_request(REQUEST, Policy()), RECORD).run
    outcome = RecordedOutcome(
        name="find", arguments="{}", text="gone", status="lost", counted=False
    )
    assert kept == RecordedRun(
        owned=("find",),
        most_rounds=7,
        most_failed_rounds=3,
        rounds=(RecordedRound(generations=2, outcomes=(outcome,)), RecordedRound(generations=1)),
    )


def test_results_count_for_what_an_exchange_may_hold() -> None:
    recorder = ExchangeRecorder()
    recorder.begin_round()
    ran = ran_calls.Outcome(ToolCall("1", "find", "{}"), "x" * (4 * 2**20 + 1))
    recorder.end_run(RunTerms(frozenset()), (Round("", (ran,)),))
    assert not recorder.is_whole
