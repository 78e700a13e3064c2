import sys
import threading

from proxy.api.warming import GENTLE_WORK, warm_up


def usual() -> float:
    """Return how long threads have their turn, once nothing is warmed up that others began."""
    with GENTLE_WORK:
        return sys.getswitchinterval()


def test_work_is_done_in_another_thread_that_leaves_others_their_turn() -> None:
    before = usual()
    seen: list[tuple[threading.Thread, bool]] = []

    def work() -> None:
        seen.append((threading.current_thread(), sys.getswitchinterval() < before))

    with warm_up(work, delay=0) as thread:
        thread.join()
    assert seen == [(thread, True)]
    assert thread.daemon
    assert usual() == before


def test_who_is_warmed_up_while_another_is_leaves_everything_as_it_was() -> None:
    before = usual()
    began, may_end = threading.Event(), threading.Event()

    def work() -> None:
        began.set()
        may_end.wait()

    with warm_up(work, delay=0) as first:
        began.wait()
        with warm_up(lambda: None, delay=0) as second:
            may_end.set()
            first.join()
            second.join()
    assert usual() == before


def test_what_has_not_begun_at_the_end_never_does() -> None:
    seen: list[str] = []
    with warm_up(lambda: seen.append("done"), delay=3600) as thread:
        pass
    thread.join()
    assert seen == []
