from proxy.doctor.finding import Severity, fail, ok, skip, warn


def test_what_is_not_fine_comes_with_a_remedy() -> None:
    assert (ok("a").status, ok("a").remedy) == (Severity.OK, "")
    assert (warn("a", "b").status, warn("a", "b").remedy) == (Severity.WARN, "b")
    assert (fail("a", "b").status, fail("a", "b").remedy) == (Severity.FAIL, "b")
    assert skip("a").status is Severity.SKIPPED


def test_figures_add_up() -> None:
    found = ok("a", window=1, calls="at once")
    assert (found.said, found.measured) == ("a", {"window": 1, "calls": "at once"})
