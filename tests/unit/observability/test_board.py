import random
import time
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from proxy.facts import ReplyOutcome
from proxy.observability.board import Board, steady_clock
from proxy.observability.history import totals_of
from proxy.observability.record import CLIENT_LEFT, RequestRecord, RequestStage

RECORD = RequestRecord(
    id="r", begun_at=0.0, seconds=1.0, status=200, outcome=ReplyOutcome.CLEAN, client="anna"
)
STAGES = [*RequestStage]


@dataclass
class RunningRequest:
    """The methods of a running request that a board calls."""

    stage: RequestStage = RequestStage.RECEIVING
    cancelled: list[bool] = field(default_factory=list)
    can_be_cancelled: bool = True

    def snapshot(self) -> tuple[RequestRecord, RequestStage, float | None]:
        return replace(RECORD, outcome=None, status=CLIENT_LEFT), self.stage, None

    def cancel(self) -> bool:
        self.cancelled.append(True)
        return self.can_be_cancelled


def make_board(most: int = 3) -> Board:
    return Board(most, clock=lambda: 0.0)


def test_the_row_of_a_request_shows_its_phase_until_it_ends_and_then_its_outcome() -> None:
    board, request = make_board(), RunningRequest()
    number = board.open(request)
    request.stage = RequestStage.QUEUED
    board.advance(number, RequestStage.QUEUED)
    (row,) = board.rows()
    assert (row.phase, row.client, row.id) == ("queued", "anna", f"{board.instance}-1")
    assert board.running_rows() == (row,)
    board.close(number, RECORD)
    (row,) = board.rows()
    assert (row.phase, row.outcome) == ("over", "clean")
    assert board.running_rows() == ()


def test_changes_returns_only_the_rows_that_changed_after_the_given_number() -> None:
    board = make_board()
    first, second = (board.open(RunningRequest()) for _ in range(2))
    seen = board.changes(0)
    assert [row.id for row in seen.rows] == [board.name_of(first), board.name_of(second)]
    assert board.changes(seen.number).rows == ()
    board.advance(first, RequestStage.READING)
    board.advance(first, RequestStage.STREAMING)
    (row,) = board.changes(seen.number).rows
    assert row.id == board.name_of(first)


def test_a_change_is_reported_as_lost_if_its_row_was_removed_before_it_was_read() -> None:
    board = make_board(most=1)
    seen = board.number
    for _ in range(2):
        board.close(board.open(RunningRequest()), RECORD)
    assert board.changes(seen).is_lost
    assert not board.changes(board.number).is_lost
    assert board.row(1) is None
    assert board.cancel(1) is None


def test_the_argument_before_selects_the_rows_older_than_this_number() -> None:
    board = make_board(most=9)
    for _ in range(5):
        board.close(board.open(RunningRequest()), RECORD)
    assert [row.id for row in board.rows(2)] == [board.name_of(5), board.name_of(4)]
    assert [row.id for row in board.rows(2, before=4)] == [board.name_of(3), board.name_of(2)]


def test_latest_returns_the_latest_rows_and_all_running_requests() -> None:
    board = make_board(most=9)
    stuck = board.open(RunningRequest())
    for _ in range(5):
        board.close(board.open(RunningRequest()), RECORD)
    assert [board.number_of(row.id) for row in board.latest(2)] == [6, 5, stuck]


def test_changes_are_reported_as_lost_if_they_exceed_the_given_limit() -> None:
    board = make_board(most=9)
    for _ in range(3):
        board.close(board.open(RunningRequest()), RECORD)
    assert len(board.changes(0, 3).rows) == 3
    assert (board.changes(0, 2).rows, board.changes(0, 2).is_lost) == ((), True)


def test_cancel_returns_whether_the_running_request_was_canceled() -> None:
    board, request = make_board(), RunningRequest()
    number = board.open(request)
    assert board.cancel(number) is True
    request.can_be_cancelled = False
    assert board.cancel(number) is False
    board.close(number, RECORD)
    assert board.cancel(number) is False
    assert len(request.cancelled) == 2


def test_has_exchange_of_a_row_is_true_after_its_exchange_was_stored() -> None:
    exchanges = set[int]()
    board = Board(has_exchange=exchanges.__contains__)
    number = board.open(RunningRequest())
    board.close(number, RECORD)
    assert not board.rows()[0].has_exchange
    exchanges.add(number)
    assert board.rows()[0].has_exchange


@pytest.mark.parametrize(
    "name", ["", "1", "zzz-1", "{own}-", "{own}-x", "{own}-²", "{own}-" + "9" * 40]
)
def test_number_of_returns_none_for_an_invalid_name_or_a_row_of_another_board(
    name: str,
) -> None:
    board = make_board()
    assert board.number_of(name.format(own=board.instance)) is None
    assert board.number_of(board.name_of(12)) == 12


@given(st.lists(st.integers(min_value=0, max_value=99), max_size=80), st.randoms())
def test_in_any_order_of_events_each_request_has_one_row_and_is_counted_once(
    steps: list[int], chance: random.Random
) -> None:
    now = [0.0]
    board, running_requests, finished_count = (
        Board(4, clock=lambda: now[0]),
        dict[int, RunningRequest](),
        0,
    )
    for step in steps:
        if step < 40 or not running_requests:
            request = RunningRequest()
            running_requests[board.open(request)] = request
        else:
            number = chance.choice([*running_requests])
            if step < 80:
                running_requests[number].stage = STAGES[step % len(STAGES)]
                board.advance(number, running_requests[number].stage)
            else:
                del running_requests[number]
                board.close(number, RECORD)
                finished_count += 1
    rows = board.rows()
    numbers = [board.number_of(row.id) or 0 for row in rows]
    assert numbers == sorted(set(numbers), reverse=True)
    assert len(rows) == len(running_requests) + min(finished_count, 4)
    assert totals_of([board.history.counts()], board.clock()).start[""].requests == finished_count
    running = [request for request in running_requests.values() if request.stage not in STAGES[:3]]
    waiting = [request for request in running_requests.values() if request.stage in STAGES[1:3]]
    now[0] = 60.0  # a later bucket without events: its peaks are the current load
    (point,) = board.history.points(board.clock(), 1)
    assert (point.running, point.waiting) == (len(running), len(waiting))


def test_the_steady_clock_is_monotonic_and_near_unix_time() -> None:
    clock = steady_clock()
    first, second = clock(), clock()
    assert first <= second
    assert abs(first - time.time()) < 3600
