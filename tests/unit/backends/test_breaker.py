from typing import Final

import pytest

from proxy.backends.breaker import Breaker, BreakerState

CLOSED: Final = "closed"
OPEN: Final = "open"
HALF_OPEN: Final = "half-open"

PLAYBOOKS = {
    "a breaker without failures stays closed": [
        (0, "begin", CLOSED),
        (1, "succeeded", CLOSED),
        (2, "begin", CLOSED),
        (3, "succeeded", CLOSED),
    ],
    "a success resets the number of failures": [
        (0, "failed", CLOSED),
        (1, "succeeded", CLOSED),
        (2, "failed", CLOSED),
    ],
    "two failures in a row open the breaker for two seconds": [
        (0, "failed", CLOSED),
        (1, "failed", OPEN),
        (2.9, None, OPEN),
        (3, None, HALF_OPEN),
    ],
    "a successful trial closes the breaker": [
        (0, "failed", CLOSED),
        (0, "failed", OPEN),
        (2, "begin", HALF_OPEN),
        (3, "succeeded", CLOSED),
        (4, "failed", CLOSED),
    ],
    "a failed trial opens the breaker for twice as long": [
        (0, "failed", CLOSED),
        (0, "failed", OPEN),
        (2, "begin", HALF_OPEN),
        (3, "failed", OPEN),
        (6.9, None, OPEN),
        (7, None, HALF_OPEN),
    ],
    "the breaker is open for at most the longest cooldown": [
        (0, "failed", CLOSED),
        (0, "failed", OPEN),
        (100, "failed", OPEN),
        (200, "failed", OPEN),
        (300, "failed", OPEN),
        (400, "failed", OPEN),
        (429, None, OPEN),
        (430, None, HALF_OPEN),
    ],
    "a failure while the breaker is open does not extend the cooldown": [
        (0, "failed", CLOSED),
        (0, "failed", OPEN),
        (1, "failed", OPEN),
        (1, "failed", OPEN),
        (2, None, HALF_OPEN),
    ],
    "a success while the breaker is open closes the breaker": [
        (0, "failed", CLOSED),
        (0, "failed", OPEN),
        (1, "succeeded", CLOSED),
    ],
}


@pytest.mark.parametrize("steps", PLAYBOOKS.values(), ids=PLAYBOOKS)
def test_a_breaker_has_the_expected_state_after_each_step(
    steps: list[tuple[float, str | None, BreakerState]],
) -> None:
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
