"""Threads that wait for the event loop: only one of the loop and its threads runs at a time.

Functions that never wait run in the loop (`loop.run_in_executor`). The reading functions of
`proxy.state.shared_responses` wait for coroutines, so each runs in a thread. The loop stands still
until the function ends, or calls `Future.result`; then the thread stands still until that future is
done, or the virtual time of its timeout has come. So the order of all events depends on the seed
only.
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
    """Runs `work` in turns with the loop."""

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
        """Let the thread run until it waits or ends; called in the loop."""
        self._turn.release()
        self._is_over.acquire()

    def wait_for(self, future: Future[_T], timeout: float | None) -> None:
        """Let the loop run until a future is done; called in the thread."""
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
    """Let threads give their turn to the loop when they wait for a future."""

    def result(future: Future[_T], timeout: float | None = None) -> _T:
        thread = threading.current_thread()
        if not isinstance(thread, _Thread):
            return _result(future, timeout)
        if not future.done():
            thread.wait_for(future, timeout)
        return _result(future, 0)

    with patch.object(Future, "result", result):
        yield
