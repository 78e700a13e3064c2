from proxy.doctor.finding import fail, ok, skip, warn


def test_what_is_not_fine_comes_with_a_remedy() -> None:
    assert (ok("a").status, ok("a").remedy) == ("ok", "")
    assert (warn("a", "b").status, warn("a", "b").remedy) == ("warn", "b")
    assert (fail("a", "b").status, fail("a", "b").remedy) == ("fail", "b")
    assert skip("a").status == "skipped"


def test_figures_add_up() -> None:
    found = ok("a", window=1, calls="at once")
    assert (found.said, found.measured) == ("a", {"window": 1, "calls": "at once"})
