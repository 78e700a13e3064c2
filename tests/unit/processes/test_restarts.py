"""Scenarios: events of a server by second, and the decisions."""

from typing import TypeAlias

import pytest

from proxy.processes.restarts import RestartPolicy, Restarts, RestartState

POLICY = RestartPolicy(first_delay=1.0, longest_delay=6.0, most_failures=5, window=60.0)

# (seconds from ready to the crash, None if it never became ready), the wait or None for "down"
Scene: TypeAlias = tuple[float | None, float | None]


def play(scenes: list[Scene], chance: float = 0.0, load_seconds: float = 0.0) -> Restarts:
    restarts, now = Restarts(POLICY), 1000.0
    for served, expected in scenes:
        restarts.begin()
        now += load_seconds
        if served is not None:
            restarts.become_ready(now)
            now += served
        waiting = restarts.fail(now, chance)
        assert waiting == expected
        now += waiting or 0.0
    return restarts


@pytest.mark.parametrize(
    "scenes",
    [
        pytest.param([(1, 1), (1, 2), (1, 4), (1, 6), (1, None)], id="crashes in a row"),
        pytest.param([(None, 1), (None, 2), (None, 4), (None, 6), (None, None)], id="bad starts"),
        pytest.param([(1, 1), (None, 2), (1, 4), (None, 6), (1, None)], id="both in turns"),
        pytest.param([(14, 1), (14, 2), (14, 4), (14, 6), (14, None)], id="within the window"),
    ],
)
def test_the_wait_doubles_up_to_a_limit_and_the_fifth_failure_is_the_last(
    scenes: list[Scene],
) -> None:
    assert play(scenes).state is RestartState.DOWN


def test_old_failures_are_forgotten() -> None:
    assert (
        play([(30, 1), (30, 2), (30, 2), (30, 2), (30, 2), (30, 2)]).state is RestartState.WAITING
    )
    assert play([(1, 1), (1, 2), (1, 4), (1, 6), (100, 1), (1, 2)]).state is RestartState.WAITING


def test_a_long_load_does_not_excuse_a_crash_loop() -> None:
    scenes: list[Scene] = [(1, 1), (1, 2), (1, 4), (1, 6), (1, None)]
    assert play(scenes, load_seconds=90).state is RestartState.DOWN


@pytest.mark.parametrize(("chance", "wait"), [(0.0, 1.0), (0.5, 0.75), (1.0, 0.5)])
def test_jitter_is_up_to_half_of_the_delay(chance: float, wait: float) -> None:
    assert play([(1, wait)], chance).state is RestartState.WAITING


@pytest.mark.parametrize("was_ready", [True, False])
def test_a_permanent_failure_is_never_retried(was_ready: bool) -> None:
    restarts = Restarts(POLICY)
    restarts.begin()
    if was_ready:
        restarts.become_ready(1.0)
    assert restarts.fail(2.0, 0.0, is_lasting=True) is None
    assert restarts.state is RestartState.DOWN


def test_a_stopped_server_starts_without_history() -> None:
    restarts = play([(1, 1), (1, 2), (1, 4), (1, 6), (1, None)])
    restarts.stop()
    restarts.stop()
    assert restarts.state is RestartState.STOPPED
    restarts.begin()
    assert restarts.fail(2000.0, 0.0) == 1


def test_every_state_except_stopped_can_be_stopped() -> None:
    starting, ready, waiting = Restarts(POLICY), Restarts(POLICY), Restarts(POLICY)
    for restarts in (starting, ready, waiting):
        restarts.begin()
    ready.become_ready(0)
    waiting.fail(0, 0)
    for restarts in (starting, ready, waiting):
        restarts.stop()
        assert restarts.state is RestartState.STOPPED


def test_an_impossible_transition_is_an_internal_error() -> None:
    with pytest.raises(AssertionError):
        Restarts(POLICY).become_ready(0)
    with pytest.raises(AssertionError):
        Restarts(POLICY).fail(0, 0)
    waiting = play([(1, 1)])
    with pytest.raises(AssertionError):
        waiting.become_ready(0)
