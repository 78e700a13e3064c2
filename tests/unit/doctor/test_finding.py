from proxy.doctor.finding import Status, doubtful, fine, skipped, wrong


def test_what_is_not_fine_comes_with_a_remedy() -> None:
    assert (fine("a").status, fine("a").remedy) == (Status.OK, "")
    assert (doubtful("a", "b").status, doubtful("a", "b").remedy) == (Status.WARN, "b")
    assert (wrong("a", "b").status, wrong("a", "b").remedy) == (Status.FAIL, "b")
    assert skipped("a").status is Status.SKIPPED


def test_figures_add_up() -> None:
    found = fine("a").measuring(window=1).measuring(calls="at once")
    assert (found.said, found.measured) == ("a", {"window": 1, "calls": "at once"})
