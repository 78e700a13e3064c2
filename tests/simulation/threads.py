"""Threads that take turns with the event loop: at any time, only one of them runs.

`loop.run_in_executor` runs most functions in the loop. The functions of
`proxy.state.shared_responses` that read wait for coroutines, so each needs a thread. The loop is
blocked until the function returns or calls `Future.result`. Then the thread is blocked until that
future is done, or until the virtual time of its timeout. So the order of all events depends only on
the seed.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import TypeVar, TypeVarTuple, Unpack
from unittest.mock import patch

_T = TypeVar("_T")
_Ts = TypeVarTuple("_Ts")

_result = Future.result


class _Thread(threading.Thread):
    """Runs `work`; while it runs, the loop is blocked."""

    def __init__(self, loop: asyncio.AbstractEventLoop, work: Callable[[], None]) -> None:
        super().__init__(daemon=True)
        self._loop, self._work = loop, work
        self._turn, self._is_over = threading.Semaphore(0), threading.Semaphore(0)
        self._waits = 0

    def run(self) -> None:
        self._turn.acquire()
        self._work()
        self._is_over.release()

    def resume(self) -> None:
        """Let the thread run until it waits or ends. The loop calls this."""
        self._turn.release()
        self._is_over.acquire()

    def wait_for(self, future: Future[_T], timeout: float | None) -> None:
        """Let the loop run until a future is done. The thread calls this."""
        self._waits += 1
        number = self._waits

        def resume() -> None:
            if number == self._waits:
                self._waits += 1
                self.resume()

        future.add_done_callback(lambda _: self._loop.call_soon(resume))
        timer = None if timeout is None else self._loop.call_later(timeout, resume)
        self._is_over.release()
        self._turn.acquire()
        if timer is not None:
            timer.cancel()


def run_in_thread(
    loop: asyncio.AbstractEventLoop,
    delay: float,
    function: Callable[[Unpack[_Ts]], _T],
    *args: *_Ts,
) -> "asyncio.Future[_T]":
    """Run a function that may wait for the loop, after a delay in seconds."""
    future: asyncio.Future[_T] = loop.create_future()

    def work() -> None:
        try:
            result = function(*args)
        except Exception as error:  # noqa: BLE001 - goes to the caller
            if not future.done():
                future.set_exception(error)
        else:
            if not future.done():
                future.set_result(result)

    def start() -> None:
        thread = _Thread(loop, work)
        thread.start()
        thread.resume()

    loop.call_later(delay, start)
    return future


@contextlib.contextmanager
def installed() -> Iterator[None]:
    """Patch `Future.result`, so that the loop can run while a thread waits for a future."""

    def result(future: Future[_T], timeout: float | None = None) -> _T:
        thread = threading.current_thread()
        if not isinstance(thread, _Thread):
            return _result(future, timeout)
        if not future.done():
            thread.wait_for(future, timeout)
        return _result(future, 0)

    with patch.object(Future, "result", result):
        yield
