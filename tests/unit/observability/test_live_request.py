import logging
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field

import pytest

from proxy import errors
from proxy.context.prefix import PrefixBroken
from proxy.conversation.replies import PromptProgress, UsageReported
from proxy.errors import BackendReplyInvalid, BackendTimedOut, BackendUnavailable, TemperError
from proxy.facts import Asked as AskedFact
from proxy.facts import RejectedReply
from proxy.observability.board import Board
from proxy.observability.live_request import BoardLink, LiveRequest, RequestTarget, word_for
from proxy.observability.record import CLIENT_LEFT, AttemptRecord, RequestStage, Tokens, ToolRecord
from proxy.observability.trace_context import TraceContext, trace_of

TARGET = RequestTarget("m", "default", "http://b", stream=True)


@dataclass
class FakeLoad:
    """Counts waiting and running requests, and stores the counts after each change in `seen`."""

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


def seconds_from_100() -> Iterator[float]:
    """Yield 100.0, 101.0, ...: the times of a clock that advances by a second at each reading."""
    now = 100.0
    while True:
        yield now
        now += 1.0


def make_request(trace: TraceContext | None = None) -> LiveRequest:
    request = LiveRequest("r", trace, clock=seconds_from_100().__next__)
    request.target = TARGET
    return request


def run_attempts(request: LiveRequest, *failures: TemperError | None) -> None:
    for failure in failures:
        with suppress(TemperError), request.attempt({}):
            if failure is not None:
                raise failure


def test_a_record_has_queue_time_first_token_time_and_total_time_in_seconds() -> None:
    request = make_request()
    request.wait(None)
    request.admit(0.0)
    run_attempts(request, None)
    request.note_first_token()
    request.note_first_token()
    request.facts = (AskedFact("as_asked"),)
    request.status = 200
    record = request.record()
    assert (record.queued, record.first_token, record.seconds) == (1.0, 5.0, 6.0)
    assert record.attempts == (AttemptRecord("as_asked", 3.0, 1.0),)
    assert (record.model, record.service, record.backend) == ("m", "default", "http://b")
    assert record.left is None


def test_each_attempt_has_only_its_own_defect_or_error() -> None:
    request = make_request()
    run_attempts(request, None, BackendTimedOut("b", "was slow"))
    request.facts = (AskedFact("as_asked"), RejectedReply("prose"), AskedFact("nudged"))
    assert [
        (attempt.kind, attempt.defect, attempt.error) for attempt in request.record().attempts
    ] == [
        ("as_asked", "prose", None),
        ("nudged", None, "timed_out"),
    ]


def test_an_invalid_upstream_response_is_logged_at_debug_level_escaped_and_truncated(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, "proxy")
    invalid_response = BackendReplyInvalid("b", "sent no valid reply", b"\x1b[31m" + b"x" * 9_000)
    run_attempts(make_request(), invalid_response, BackendUnavailable("b", "is down"))
    (log_record,) = caplog.records
    assert log_record.levelno == logging.DEBUG
    assert "b'\\x1b[31mxxx" in log_record.getMessage()
    assert len(log_record.getMessage()) < 3_000


def test_an_attempt_that_overflowed_the_context_is_recorded() -> None:
    request = make_request()
    run_attempts(request, errors.ContextOverflow("too long", 9, 8), None)
    request.facts = (AskedFact("as_asked"),)
    assert [(attempt.kind, attempt.error) for attempt in request.record().attempts] == [
        ("as_asked", "context_overflow"),
        ("as_asked", None),
    ]


def test_a_token_count_that_the_backend_did_not_report_is_none() -> None:
    request = make_request()
    request.usage = UsageReported({"prompt_tokens": 3, "prompt_tokens_details": None})
    assert request.record().tokens == Tokens(3, None, None)


def test_the_field_left_of_a_record_is_the_stage_in_which_the_client_disconnected() -> None:
    disconnected = LiveRequest("r")
    assert disconnected.record().left == "receiving"
    request = make_request()
    request.wait(None)
    assert request.record().left == "queued"
    request.admit(0.0)
    run_attempts(request, None)
    request.facts = (AskedFact("as_asked"),)
    assert request.record().left == "before_first_token"
    run_attempts(request, None)
    request.facts = (AskedFact("as_asked"), AskedFact("nudged"))
    assert request.record().left == "between_attempts"
    request.note_first_token()
    assert request.record().left == "streaming"


def test_the_load_counts_waiting_and_running_requests() -> None:
    load = FakeLoad()
    request = make_request()
    request.wait(load)
    request.admit(0.25)
    request.record()
    assert load.seen == [(1, 0, 0.0), (0, 0, 0.0), (0, 1, 0.25), (0, 0, 0.0)]
    queued_request = make_request()
    queued_request.wait(load)
    queued_request.record()
    assert (load.waiting, load.running) == (0, 0)


def test_waiting_for_the_model_to_load_is_queue_time() -> None:
    load = FakeLoad()
    request = make_request()
    with request.wait_for_model(load):
        assert load.waiting == 1
    request.wait(load)
    request.admit(0.0)
    assert request.record().queued == 2.0
    assert (load.waiting, load.running) == (0, 0)


def test_a_request_that_never_got_a_slot_has_queue_time() -> None:
    loading = make_request()
    with suppress(BackendTimedOut), loading.wait_for_model(None):
        raise BackendTimedOut("b", "was slow")
    record = loading.record()
    assert (record.queued, record.seconds, record.overhead) == (1.0, 3.0, 2.0)
    queueing = make_request()
    queueing.wait(None)
    record = queueing.record()
    assert (record.queued, record.seconds, record.overhead) == (1.0, 2.0, 1.0)
    assert make_request().record().queued is None


def test_the_traceparent_sent_upstream_has_the_span_id_of_the_attempt() -> None:
    with make_request().attempt({"traceparent": "theirs"}) as headers:
        assert headers == {"traceparent": "theirs"}
    trace = trace_of("")
    request = make_request(trace)
    request.facts = (AskedFact("as_asked"),)
    with request.attempt({"traceparent": "theirs", "x": "y"}) as headers:
        ours = trace_of(headers["traceparent"])
    assert headers["x"] == "y"
    assert ours.trace_id == trace.trace_id
    record = request.record()
    assert record.trace == trace
    assert record.attempts[0].span_id == ours.parent_id


@pytest.mark.parametrize(
    ("error", "word"),
    [
        (errors.BackendUnavailable("b", "loads", loading=True), "loading"),
        (errors.BackendUnavailable("b", "is down"), "unavailable"),
        (errors.BackendTimedOut("b", "was slow"), "timed_out"),
        (errors.BackendRefused("b", 500, "no"), "refused"),
        (errors.BackendReplyInvalid("b", "babbled"), "nonsense"),
        (errors.ContextOverflow("long", 9, 8), "context_overflow"),
        (errors.InvalidRequest("odd"), "invalid_request"),
        (errors.BackendFailed("b", "failed"), "failed"),
    ],
)
def test_each_error_has_a_short_name_for_logs_and_metrics(error: TemperError, word: str) -> None:
    assert word_for(error) == word


def test_the_wait_for_a_second_slot_is_added_to_the_queue_time() -> None:
    load, live = FakeLoad(), LiveRequest("r", clock=iter(range(100)).__next__)
    live.wait(load)  # the clock shows 1
    live.admit(0.5)  # the clock shows 2
    live.release()
    assert (load.waiting, load.running, load.share) == (0, 0, 0.0)
    live.wait(load)
    assert (load.waiting, load.running) == (1, 0)
    live.admit(0.5)
    record = live.record()
    assert record.queued == 2
    assert (load.waiting, load.running) == (0, 0)


def test_time_after_the_slot_was_released_is_not_queue_time() -> None:
    live = LiveRequest("r", clock=iter(range(100)).__next__)
    live.wait(None)
    live.admit(0.0)
    live.release()
    assert live.record().queued == 1


def test_begin_call_returns_a_traceparent_with_the_span_id_of_the_tool_call() -> None:
    live = LiveRequest("r", trace_of(""), clock=iter(range(100)).__next__)
    sent = live.begin_call("1", "find")
    live.end_call(ToolRecord("search", "find", "1", 1, 7.0, 0.5, "done"))
    live.end_call(ToolRecord("search", "find", "2", 1, 8.0, 0.5, "done"))
    first, second = live.record().tools
    assert (first.begun, second.begun) == (7.0, 8.0)
    assert f"-{first.span_id:016x}-" in str(sent["traceparent"])
    assert second.span_id == 0
    assert LiveRequest("r").begin_call("1", "find") == {}


def test_the_board_shows_each_stage_of_a_request_and_its_tool_calls() -> None:
    board = Board(clock=lambda: 0.0)
    request = LiveRequest("r", clock=seconds_from_100().__next__, link=BoardLink(board))
    request.client = "anna"

    def phase() -> tuple[str, float | None]:
        (row,) = board.rows()
        return row.phase, row.progress

    seen = [phase()]
    request.target = TARGET
    with request.wait_for_model(None):
        seen.append(phase())
    request.wait(None)
    seen.append(phase())
    request.admit(0.0)
    request.note_progress(PromptProgress(total=8, cached=0, processed=2))
    seen.append(phase())
    run_attempts(request, None, None)
    seen.append(phase())
    request.begin_call("1", "read")
    seen.append(phase())
    assert [tool.seconds for tool in board.rows()[0].tools] == [None]
    request.end_call(ToolRecord("files", "read", "1", 1, 15.0, 3.0, "done"))
    assert board.rows()[0].tools[0].status == "done"
    request.note_first_token()
    seen.append(phase())
    request.prefix_broken = PrefixBroken(1, "rewritten")
    record = request.record()
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


def test_prompt_progress_changes_the_row_once_a_second_and_at_the_end_of_the_prompt() -> None:
    board, now = Board(clock=lambda: 0.0), [100.0]
    request = LiveRequest("r", clock=lambda: now[0], link=BoardLink(board))
    changes = board.number
    for processed in range(10):
        request.note_progress(PromptProgress(total=10, cached=0, processed=processed))
    assert board.number == changes + 1
    now[0] += 1.0
    request.note_progress(PromptProgress(total=0, cached=0, processed=10))
    assert board.number == changes + 2
    assert request.snapshot()[1:] == (RequestStage.RECEIVING, 1.0)
    request.note_progress(PromptProgress(total=10, cached=0, processed=10))
    assert (
        board.number == changes + 3
    )  # the last progress of a prompt does not wait for the next second


def test_a_snapshot_during_a_reply_has_the_defects_and_tokens_so_far() -> None:
    request = make_request()
    request.reply = Reply()
    with request.attempt({}):
        record, _, _ = request.snapshot()
    (attempt,) = record.attempts
    assert (attempt.defect, attempt.seconds) == ("prose", 1.0)
    assert record.tokens == Tokens(output=7)
    request.usage = UsageReported({"prompt_tokens": 5, "completion_tokens": 8})
    assert request.snapshot()[0].tokens == Tokens(5, None, 8)


class Reply:
    """A reply that is still being generated."""

    facts = (AskedFact("as_asked"), RejectedReply("prose"))
    tokens = 7


@pytest.mark.parametrize("can_leave", [True, False])
def test_a_canceled_request_is_recorded_with_status_499(*, can_leave: bool) -> None:
    left: list[bool] = []
    link = BoardLink(Board(), leave=(lambda: left.append(True)) if can_leave else None)
    request = LiveRequest("r", link=link)
    assert request.cancel() is can_leave
    assert left == [True] * can_leave
    assert request.record().status == CLIENT_LEFT
    assert not LiveRequest("r").cancel()


def test_the_stage_is_waiting_for_person_while_any_call_waits_for_approval() -> None:
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


def test_row_name_is_the_name_of_the_row_or_empty_without_a_board() -> None:
    board = Board()
    assert LiveRequest("r", link=BoardLink(board)).row_name == board.name_of(1)
    assert LiveRequest("r").row_name == ""
