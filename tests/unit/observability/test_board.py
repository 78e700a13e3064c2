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
class Living:
    """A running request in the form that a board reads."""

    stage: RequestStage = RequestStage.RECEIVING
    cancelled: list[bool] = field(default_factory=list)
    can_be_cancelled: bool = True

    def snapshot(self) -> tuple[RequestRecord, RequestStage, float | None]:
        return replace(RECORD, outcome=None, status=CLIENT_LEFT), self.stage, None

    def cancel(self) -> bool:
        self.cancelled.append(True)
        return self.can_be_cancelled


def a_board(most: int = 3) -> Board:
    return Board(most, clock=lambda: 0.0)


def test_a_request_is_a_row_while_it_runs_and_afterwards() -> None:
    board, living = a_board(), Living()
    number = board.open(living)
    living.stage = RequestStage.QUEUED
    board.advance(number, RequestStage.QUEUED)
    (row,) = board.rows()
    assert (row.phase, row.client, row.id) == ("queued", "anna", f"{board.instance}-1")
    assert board.living() == (row,)
    board.close(number, RECORD)
    (row,) = board.rows()
    assert (row.phase, row.outcome) == ("over", "clean")
    assert board.living() == ()


def test_a_watcher_gets_only_changes_after_its_position() -> None:
    board = a_board()
    first, second = (board.open(Living()) for _ in range(2))
    seen = board.changes(0)
    assert [row.id for row in seen.rows] == [board.name_of(first), board.name_of(second)]
    assert board.changes(seen.number).rows == ()
    board.advance(first, RequestStage.READING)
    board.advance(first, RequestStage.STREAMING)
    (row,) = board.changes(seen.number).rows
    assert row.id == board.name_of(first)


def test_a_slow_watcher_learns_of_dropped_rows() -> None:
    board = a_board(most=1)
    seen = board.number
    for _ in range(2):
        board.close(board.open(Living()), RECORD)
    assert board.changes(seen).is_lost
    assert not board.changes(board.number).is_lost
    assert board.row(1) is None
    assert board.cancel(1) is None


def test_older_rows_continue_where_the_newer_ones_end() -> None:
    board = a_board(most=9)
    for _ in range(5):
        board.close(board.open(Living()), RECORD)
    assert [row.id for row in board.rows(2)] == [board.name_of(5), board.name_of(4)]
    assert [row.id for row in board.rows(2, before=4)] == [board.name_of(3), board.name_of(2)]


def test_the_latest_rows_include_every_running_request() -> None:
    board = a_board(most=9)
    stuck = board.open(Living())
    for _ in range(5):
        board.close(board.open(Living()), RECORD)
    assert [board.number_of(row.id) for row in board.latest(2)] == [6, 5, stuck]


def test_rows_are_not_built_if_more_has_changed_than_requested() -> None:
    board = a_board(most=9)
    for _ in range(3):
        board.close(board.open(Living()), RECORD)
    assert len(board.changes(0, 3).rows) == 3
    assert (board.changes(0, 2).rows, board.changes(0, 2).is_lost) == ((), True)


def test_a_running_request_can_be_canceled_once_it_is_cancelable() -> None:
    board, living = a_board(), Living()
    number = board.open(living)
    assert board.cancel(number) is True
    living.can_be_cancelled = False
    assert board.cancel(number) is False
    board.close(number, RECORD)
    assert board.cancel(number) is False
    assert len(living.cancelled) == 2


def test_a_row_says_whether_its_exchange_is_stored() -> None:
    kept = set[int]()
    board = Board(has_exchange=kept.__contains__)
    number = board.open(Living())
    board.close(number, RECORD)
    assert not board.rows()[0].has_exchange
    kept.add(number)
    assert board.rows()[0].has_exchange


@pytest.mark.parametrize(
    "name", ["", "1", "zzz-1", "{own}-", "{own}-x", "{own}-²", "{own}-" + "9" * 40]
)
def test_a_name_of_another_board_is_unknown(name: str) -> None:
    board = a_board()
    assert board.number_of(name.format(own=board.instance)) is None
    assert board.number_of(board.name_of(12)) == 12


@given(st.lists(st.integers(min_value=0, max_value=99), max_size=80), st.randoms())
def test_in_any_order_of_events_each_request_counts_once_within_the_bounds(
    steps: list[int], chance: random.Random
) -> None:
    now = [0.0]
    board, alive, over = Board(4, clock=lambda: now[0]), dict[int, Living](), 0
    for step in steps:
        if step < 40 or not alive:
            living = Living()
            alive[board.open(living)] = living
        else:
            number = chance.choice([*alive])
            if step < 80:
                alive[number].stage = STAGES[step % len(STAGES)]
                board.advance(number, alive[number].stage)
            else:
                del alive[number]
                board.close(number, RECORD)
                over += 1
    rows = board.rows()
    numbers = [board.number_of(row.id) or 0 for row in rows]
    assert numbers == sorted(set(numbers), reverse=True)
    assert len(rows) == len(alive) + min(over, 4)
    assert totals_of([board.history.counts()], board.clock()).start[""].requests == over
    running = [request for request in alive.values() if request.stage not in STAGES[:3]]
    waiting = [request for request in alive.values() if request.stage in STAGES[1:3]]
    now[0] = 60.0  # a bucket in which nothing but the current state stood
    (point,) = board.history.points(board.clock(), 1)
    assert (point.running, point.waiting) == (len(running), len(waiting))


def test_the_clock_of_rows_is_monotonic() -> None:
    clock = steady_clock()
    first, second = clock(), clock()
    assert first <= second
    assert abs(first - time.time()) < 3600
