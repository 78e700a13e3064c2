import logging
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field

import pytest

from proxy import errors
from proxy.context.prefix import PrefixBroken
from proxy.conversation.replies import PromptProgress, UsageReported
from proxy.errors import BackendSpokeNonsense, BackendTimedOut, BackendUnavailable, TemperError
from proxy.facts import Asked as AskedFact
from proxy.facts import RejectedReply
from proxy.observability.board import Board
from proxy.observability.live_request import BoardLink, LiveRequest, RequestTarget, word_for
from proxy.observability.record import CLIENT_LEFT, AttemptRecord, RequestStage, Tokens, ToolRecord
from proxy.observability.trace_context import TraceContext, trace_of

ASKED = RequestTarget("m", "default", "http://b", stream=True)


@dataclass
class Crowd:
    """Follows the load."""

    waiting: int = 0
    running: int = 0
    share: float = 0.0
    seen: list[tuple[int, int, float]] = field(default_factory=list)

    def wait(self, by: int, priority: str = "normal") -> None:
        self.waiting += by
        self.seen.append((self.waiting, self.running, self.share))

    def run(self, by: int, share: float) -> None:
        self.running += by
        self.share += share
        self.seen.append((self.waiting, self.running, self.share))


def ticking() -> Iterator[float]:
    """Advance the clock by a second at every reading."""
    now = 100.0
    while True:
        yield now
        now += 1.0


def an_account(trace: TraceContext | None = None) -> LiveRequest:
    account = LiveRequest("r", trace, clock=ticking().__next__)
    account.target = ASKED
    return account


def run_attempts(account: LiveRequest, *failures: TemperError | None) -> None:
    for failure in failures:
        with suppress(TemperError), account.attempt({}):
            if failure is not None:
                raise failure


def test_moments_become_durations() -> None:
    account = an_account()
    account.wait(None)
    account.admit(0.0)
    run_attempts(account, None)
    account.note_first_token()
    account.note_first_token()
    account.facts = (AskedFact("as_asked"),)
    account.status = 200
    record = account.record()
    assert (record.queued, record.first_token, record.seconds) == (1.0, 5.0, 6.0)
    assert record.attempts == (AttemptRecord("as_asked", 3.0, 1.0),)
    assert (record.model, record.service, record.backend) == ("m", "default", "http://b")
    assert record.left is None


def test_each_attempt_has_a_separate_defect_and_error() -> None:
    account = an_account()
    run_attempts(account, None, BackendTimedOut("b", "was slow"))
    account.facts = (AskedFact("as_asked"), RejectedReply("prose"), AskedFact("nudged"))
    assert [
        (attempt.kind, attempt.defect, attempt.error) for attempt in account.record().attempts
    ] == [
        ("as_asked", "prose", None),
        ("nudged", None, "timed_out"),
    ]


def test_invalid_output_appears_only_in_the_debug_log_escaped_and_cut(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, "proxy")
    nonsense = BackendSpokeNonsense("b", "sent no valid reply", b"\x1b[31m" + b"x" * 9_000)
    run_attempts(an_account(), nonsense, BackendUnavailable("b", "is down"))
    (logged,) = caplog.records
    assert logged.levelno == logging.DEBUG
    assert "b'\\x1b[31mxxx" in logged.getMessage()
    assert len(logged.getMessage()) < 3_000


def test_an_attempt_with_an_overflow_is_kept_although_its_turn_is_gone() -> None:
    account = an_account()
    run_attempts(account, errors.ContextOverflow("too long", 9, 8), None)
    account.facts = (AskedFact("as_asked"),)
    assert [(attempt.kind, attempt.error) for attempt in account.record().attempts] == [
        ("as_asked", "context_overflow"),
        ("as_asked", None),
    ]


def test_reported_usage_is_counted() -> None:
    account = an_account()
    account.usage = UsageReported({"prompt_tokens": 3, "prompt_tokens_details": None})
    assert account.record().tokens == Tokens(3, None, None)


def test_a_disconnect_records_the_reached_stage() -> None:
    gone = LiveRequest("r")
    assert gone.record().left == "receiving"
    account = an_account()
    account.wait(None)
    assert account.record().left == "queued"
    account.admit(0.0)
    run_attempts(account, None)
    account.facts = (AskedFact("as_asked"),)
    assert account.record().left == "before_first_token"
    run_attempts(account, None)
    account.facts = (AskedFact("as_asked"), AskedFact("nudged"))
    assert account.record().left == "between_attempts"
    account.note_first_token()
    assert account.record().left == "streaming"


def test_waiting_and_running_requests_are_counted() -> None:
    crowd = Crowd()
    account = an_account()
    account.wait(crowd)
    account.admit(0.25)
    account.record()
    assert crowd.seen == [(1, 0, 0.0), (0, 0, 0.0), (0, 1, 0.25), (0, 0, 0.0)]
    tired = an_account()
    tired.wait(crowd)
    tired.record()
    assert (crowd.waiting, crowd.running) == (0, 0)


def test_waiting_for_the_model_counts_as_waiting() -> None:
    crowd = Crowd()
    account = an_account()
    with account.wait_for_model(crowd):
        assert crowd.waiting == 1
    account.wait(crowd)
    account.admit(0.0)
    assert account.record().queued == 2.0
    assert (crowd.waiting, crowd.running) == (0, 0)


def test_a_request_never_admitted_waited_until_its_end() -> None:
    loading = an_account()
    with suppress(BackendTimedOut), loading.wait_for_model(None):
        raise BackendTimedOut("b", "was slow")
    record = loading.record()
    assert (record.queued, record.seconds, record.overhead) == (1.0, 3.0, 2.0)
    queueing = an_account()
    queueing.wait(None)
    record = queueing.record()
    assert (record.queued, record.seconds, record.overhead) == (1.0, 2.0, 1.0)
    assert an_account().record().queued is None


def test_headers_are_unchanged_without_a_trace() -> None:
    with an_account().attempt({"traceparent": "theirs"}) as headers:
        assert headers == {"traceparent": "theirs"}
    trace = trace_of("")
    account = an_account(trace)
    account.facts = (AskedFact("as_asked"),)
    with account.attempt({"traceparent": "theirs", "x": "y"}) as headers:
        ours = trace_of(headers["traceparent"])
    assert headers["x"] == "y"
    assert ours.trace_id == trace.trace_id
    record = account.record()
    assert record.trace == trace
    assert record.attempts[0].span_id == ours.parent_id


@pytest.mark.parametrize(
    ("error", "word"),
    [
        (errors.BackendUnavailable("b", "loads", loading=True), "loading"),
        (errors.BackendUnavailable("b", "is down"), "unavailable"),
        (errors.BackendTimedOut("b", "was slow"), "timed_out"),
        (errors.BackendRefused("b", 500, "no"), "refused"),
        (errors.BackendSpokeNonsense("b", "babbled"), "nonsense"),
        (errors.ContextOverflow("long", 9, 8), "context_overflow"),
        (errors.InvalidRequest("odd"), "invalid_request"),
        (errors.BackendFailed("b", "failed"), "failed"),
    ],
)
def test_every_failure_has_a_name(error: TemperError, word: str) -> None:
    assert word_for(error) == word


def test_a_released_slot_may_be_awaited_again() -> None:
    crowd, live = Crowd(), LiveRequest("r", clock=iter(range(100)).__next__)
    live.wait(crowd)  # joined at 1
    live.admit(0.5)  # at 2
    live.release()
    assert (crowd.waiting, crowd.running, crowd.share) == (0, 0, 0.0)
    live.wait(crowd)
    assert (crowd.waiting, crowd.running) == (1, 0)
    live.admit(0.5)
    record = live.record()
    assert record.queued == 2
    assert (crowd.waiting, crowd.running) == (0, 0)


def test_disconnecting_during_tools_waits_for_nothing() -> None:
    live = LiveRequest("r", clock=iter(range(100)).__next__)
    live.wait(None)
    live.admit(0.0)
    live.release()
    assert live.record().queued == 1


def test_a_call_has_a_span_and_times() -> None:
    live = LiveRequest("r", trace_of(""), clock=iter(range(100)).__next__)
    sent = live.begin_call("1", "find")
    live.end_call(ToolRecord("search", "find", "1", 1, 7.0, 0.5, "done"))
    live.end_call(ToolRecord("search", "find", "2", 1, 8.0, 0.5, "done"))
    first, second = live.record().tools
    assert (first.begun, second.begun) == (7.0, 8.0)
    assert f"-{first.span_id:016x}-" in str(sent["traceparent"])
    assert second.span_id == 0
    assert LiveRequest("r").begin_call("1", "find") == {}


def test_a_board_is_notified_of_each_stage() -> None:
    board = Board(clock=lambda: 0.0)
    account = LiveRequest("r", clock=ticking().__next__, link=BoardLink(board))
    account.client = "anna"

    def phase() -> tuple[str, float | None]:
        (row,) = board.rows()
        return row.phase, row.progress

    seen = [phase()]
    account.target = ASKED
    with account.wait_for_model(None):
        seen.append(phase())
    account.wait(None)
    seen.append(phase())
    account.admit(0.0)
    account.note_progress(PromptProgress(total=8, cached=0, processed=2))
    seen.append(phase())
    run_attempts(account, None, None)
    seen.append(phase())
    account.begin_call("1", "read")
    seen.append(phase())
    assert [tool.seconds for tool in board.rows()[0].tools] == [None]
    account.end_call(ToolRecord("files", "read", "1", 1, 15.0, 3.0, "done"))
    assert board.rows()[0].tools[0].status == "done"
    account.note_first_token()
    seen.append(phase())
    account.prefix_broken = PrefixBroken(1, "rewritten")
    record = account.record()
    assert seen == [
        ("receiving", None),
        ("loading", None),
        ("queued", None),
        ("reading", 0.25),
        ("asked_again", None),
        ("running_tool", None),
        ("streaming", None),
    ]
    assert phase() == ("over", None)
    assert (record.number, board.rows()[0].client) == (1, "anna")
    assert [tool.name for tool in record.tools] == ["read"]
    assert record.prefix_broken == PrefixBroken(1, "rewritten")


def test_prompt_progress_is_published_once_a_second() -> None:
    board, now = Board(clock=lambda: 0.0), [100.0]
    account = LiveRequest("r", clock=lambda: now[0], link=BoardLink(board))
    changes = board.number
    for processed in range(10):
        account.note_progress(PromptProgress(total=10, cached=0, processed=processed))
    assert board.number == changes + 1
    now[0] += 1.0
    account.note_progress(PromptProgress(total=0, cached=0, processed=10))
    assert board.number == changes + 2
    assert account.snapshot()[1:] == (RequestStage.RECEIVING, 1.0)
    account.note_progress(PromptProgress(total=10, cached=0, processed=10))
    assert board.number == changes + 3  # the end of the prompt is published at once


def test_events_of_a_turn_are_visible_while_it_runs() -> None:
    account = an_account()
    account.reply = Reply()
    with account.attempt({}):
        record, _, _ = account.snapshot()
    (attempt,) = record.attempts
    assert (attempt.defect, attempt.seconds) == ("prose", 1.0)
    assert record.tokens == Tokens(output=7)
    account.usage = UsageReported({"prompt_tokens": 5, "completion_tokens": 8})
    assert account.snapshot()[0].tokens == Tokens(5, None, 8)


class Reply:
    """A reply that is still being generated."""

    facts = (AskedFact("as_asked"), RejectedReply("prose"))
    tokens = 7


@pytest.mark.parametrize("leaves", [True, False])
def test_canceling_a_request_is_like_a_disconnect(*, leaves: bool) -> None:
    left: list[bool] = []
    link = BoardLink(Board(), leave=(lambda: left.append(True)) if leaves else None)
    account = LiveRequest("r", link=link)
    assert account.cancel() is leaves
    assert left == [True] * leaves
    assert account.record().status == CLIENT_LEFT
    assert not LiveRequest("r").cancel()


def test_a_request_waits_for_approval_while_any_of_its_calls_does() -> None:
    board = Board()
    live = LiveRequest("r", clock=iter(range(100)).__next__, link=BoardLink(board))
    live.wait_for_person("1", "search", "delete")
    live.begin_call("2", "find")
    record, stage, _ = live.snapshot()
    assert stage is RequestStage.WAITING_FOR_PERSON
    assert [(tool.server, tool.name, tool.status) for tool in record.tools] == [
        ("search", "delete", "waiting"),
        ("", "find", "running"),
    ]
    live.end_call(ToolRecord("search", "find", "2", 1, 7.0, 0.5, "done"))
    assert live.snapshot()[1] is RequestStage.WAITING_FOR_PERSON
    live.begin_call("1", "delete")
    assert live.snapshot()[1] is RequestStage.RUNNING_TOOL
    live.end_call(ToolRecord("search", "delete", "1", 1, 9.0, 0.5, "done", waited=3.0))
    done = live.record().tools[1]
    assert (done.waited, done.begun, done.span_id != 0) == (3.0, 9.0, True)


def test_a_request_has_the_name_of_its_row() -> None:
    board = Board()
    assert LiveRequest("r", link=BoardLink(board)).row_name == board.name_of(1)
    assert LiveRequest("r").row_name == ""
