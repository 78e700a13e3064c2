from proxy.serving.fallback import Fallback


class Clock:
    """A clock in seconds that a test sets."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_the_budget_of_a_fallback_applies_to_any_60_minutes() -> None:
    clock = Clock()
    fallback = Fallback("big", 2, clock)
    assert fallback.take()
    clock.now = 3_000.0
    assert [fallback.take(), fallback.take()] == [True, False]
    clock.now = 3_599.0
    assert not fallback.take()
    clock.now = 3_600.0
    assert [fallback.take(), fallback.take()] == [True, False]
    clock.now = 6_600.0
    assert fallback.take()


def test_a_fallback_with_a_budget_of_0_has_no_limit() -> None:
    fallback = Fallback("big", 0)
    assert all(fallback.take() for _ in range(1_000))
