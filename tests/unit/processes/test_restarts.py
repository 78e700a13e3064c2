"""Tests of the restart policy with sequences of crashes and the expected delays."""

from typing import TypeAlias

import pytest

from proxy.processes.restarts import RestartPolicy, Restarts, RestartState

POLICY = RestartPolicy(first_delay=1.0, longest_delay=6.0, most_failures=5, window=60.0)

# the seconds from ready to the crash (None: the server was never ready), and the expected delay
# before the restart (None: the server stays down)
Crash: TypeAlias = tuple[float | None, float | None]


def run_crashes(crashes: list[Crash], chance: float = 0.0, load_seconds: float = 0.0) -> Restarts:
    restarts, now = Restarts(POLICY), 1000.0
    for uptime, expected in crashes:
        restarts.begin()
        now += load_seconds
        if uptime is not None:
            restarts.become_ready(now)
            now += uptime
        delay = restarts.fail(now, chance)
        assert delay == expected
        now += delay or 0.0
    return restarts


@pytest.mark.parametrize(
    "crashes",
    [
        pytest.param([(1, 1), (1, 2), (1, 4), (1, 6), (1, None)], id="crashes in a row"),
        pytest.param(
            [(None, 1), (None, 2), (None, 4), (None, 6), (None, None)], id="failed starts"
        ),
        pytest.param(
            [(1, 1), (None, 2), (1, 4), (None, 6), (1, None)],
            id="crashes and failed starts in turns",
        ),
        pytest.param([(14, 1), (14, 2), (14, 4), (14, 6), (14, None)], id="within the window"),
    ],
)
def test_the_delay_doubles_up_to_a_limit_and_the_fifth_failure_is_final(
    crashes: list[Crash],
) -> None:
    assert run_crashes(crashes).state is RestartState.DOWN


def test_failures_older_than_the_window_are_not_counted() -> None:
    assert (
        run_crashes([(30, 1), (30, 2), (30, 2), (30, 2), (30, 2), (30, 2)]).state
        is RestartState.WAITING
    )
    assert (
        run_crashes([(1, 1), (1, 2), (1, 4), (1, 6), (100, 1), (1, 2)]).state
        is RestartState.WAITING
    )


def test_the_time_of_loading_is_not_counted_as_uptime() -> None:
    crashes: list[Crash] = [(1, 1), (1, 2), (1, 4), (1, 6), (1, None)]
    assert run_crashes(crashes, load_seconds=90).state is RestartState.DOWN


@pytest.mark.parametrize(("chance", "delay"), [(0.0, 1.0), (0.5, 0.75), (1.0, 0.5)])
def test_jitter_shortens_a_delay_by_at_most_half(chance: float, delay: float) -> None:
    assert run_crashes([(1, delay)], chance).state is RestartState.WAITING


@pytest.mark.parametrize("was_ready", [True, False])
def test_a_permanent_failure_is_never_retried(was_ready: bool) -> None:
    restarts = Restarts(POLICY)
    restarts.begin()
    if was_ready:
        restarts.become_ready(1.0)
    assert restarts.fail(2.0, 0.0, is_lasting=True) is None
    assert restarts.state is RestartState.DOWN


def test_a_stop_resets_the_failures() -> None:
    restarts = run_crashes([(1, 1), (1, 2), (1, 4), (1, 6), (1, None)])
    restarts.stop()
    restarts.stop()
    assert restarts.state is RestartState.STOPPED
    restarts.begin()
    assert restarts.fail(2000.0, 0.0) == 1


def test_every_state_except_stopped_can_be_stopped() -> None:
    starting, ready, delay = Restarts(POLICY), Restarts(POLICY), Restarts(POLICY)
    for restarts in (starting, ready, delay):
        restarts.begin()
    ready.become_ready(0)
    delay.fail(0, 0)
    for restarts in (starting, ready, delay):
        restarts.stop()
        assert restarts.state is RestartState.STOPPED


def test_an_invalid_transition_raises_assertion_error() -> None:
    with pytest.raises(AssertionError):
        Restarts(POLICY).become_ready(0)
    with pytest.raises(AssertionError):
        Restarts(POLICY).fail(0, 0)
    delay = run_crashes([(1, 1)])
    with pytest.raises(AssertionError):
        delay.become_ready(0)
