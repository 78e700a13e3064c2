from typing import Final

import pytest

from proxy.backends.breaker import Breaker, BreakerState

CLOSED: Final = "closed"
OPEN: Final = "open"
HALF_OPEN: Final = "half-open"

PLAYBOOKS = {
    "a healthy server is asked for ever": [
        (0, "begin", CLOSED),
        (1, "succeeded", CLOSED),
        (2, "begin", CLOSED),
        (3, "succeeded", CLOSED),
    ],
    "one failure is forgiven after a success": [
        (0, "failed", CLOSED),
        (1, "succeeded", CLOSED),
        (2, "failed", CLOSED),
    ],
    "two in a row open it for two seconds": [
        (0, "failed", CLOSED),
        (1, "failed", OPEN),
        (2.9, None, OPEN),
        (3, None, HALF_OPEN),
    ],
    "a trial that succeeds closes it": [
        (0, "failed", CLOSED),
        (0, "failed", OPEN),
        (2, "begin", HALF_OPEN),
        (3, "succeeded", CLOSED),
        (4, "failed", CLOSED),
    ],
    "a trial that fails opens it for twice as long": [
        (0, "failed", CLOSED),
        (0, "failed", OPEN),
        (2, "begin", HALF_OPEN),
        (3, "failed", OPEN),
        (6.9, None, OPEN),
        (7, None, HALF_OPEN),
    ],
    "it never stays open for longer than the longest": [
        (0, "failed", CLOSED),
        (0, "failed", OPEN),
        (100, "failed", OPEN),
        (200, "failed", OPEN),
        (300, "failed", OPEN),
        (400, "failed", OPEN),
        (429, None, OPEN),
        (430, None, HALF_OPEN),
    ],
    "failures of requests from before prove nothing new": [
        (0, "failed", CLOSED),
        (0, "failed", OPEN),
        (1, "failed", OPEN),
        (1, "failed", OPEN),
        (2, None, HALF_OPEN),
    ],
    "a success from before closes it, for it came later than the failures": [
        (0, "failed", CLOSED),
        (0, "failed", OPEN),
        (1, "succeeded", CLOSED),
    ],
}


@pytest.mark.parametrize("steps", PLAYBOOKS.values(), ids=PLAYBOOKS)
def test_a_breaker_has_these_states(steps: list[tuple[float, str | None, BreakerState]]) -> None:
    breaker = Breaker(threshold=2, cooldown=2.0, longest=30.0)
    for now, happened, state in steps:
        match happened:
            case "begin":
                breaker.begin(now)
            case "succeeded":
                breaker.record_success()
            case "failed":
                breaker.record_failure(now)
            case _:
                assert happened is None
        assert breaker.state(now) == state, f"at {now}"
        if state != HALF_OPEN:
            assert breaker.allows(now) is (state == CLOSED)


def test_only_one_request_probes_a_server_after_the_cooldown() -> None:
    breaker = Breaker(threshold=1, cooldown=2.0)
    breaker.record_failure(0)
    assert breaker.allows(2)
    breaker.begin(2)
    assert not breaker.allows(2)
    breaker.record_abandoned()
    assert breaker.allows(2)
