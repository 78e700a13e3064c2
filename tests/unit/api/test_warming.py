import sys
import threading

from proxy.api.warming import warming_up


def test_work_is_done_in_another_thread_that_leaves_others_their_turn() -> None:
    before = sys.getswitchinterval()
    seen: list[tuple[threading.Thread, bool]] = []

    def work() -> None:
        seen.append((threading.current_thread(), sys.getswitchinterval() < before))

    with warming_up(work, delay=0) as thread:
        thread.join()
    assert seen == [(thread, True)]
    assert thread.daemon
    assert sys.getswitchinterval() == before


def test_what_has_not_begun_at_the_end_never_does() -> None:
    seen: list[str] = []
    with warming_up(lambda: seen.append("done"), delay=3600) as thread:
        pass
    thread.join()
    assert seen == []
