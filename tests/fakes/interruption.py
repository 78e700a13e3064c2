"""Interrupts a request at its k-th step, in any of its tasks.

A step is one resumption of a coroutine: its start, or its continuation after an await. Tasks
started within the request belong to it; all others belong to a server or to the test.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from contextlib import asynccontextmanager
from contextvars import Context, ContextVar
from typing import TypeAlias, TypeVar

import pytest

from tests.timeouts import TIMEOUT_SECONDS

Result = TypeVar("Result")

Strike: TypeAlias = Callable[[asyncio.Task[None]], None]

# If a connection attempt of anyio is interrupted, some of its coroutines are never started, and
# Python warns about them.
IGNORES_HALF_CONNECTIONS = pytest.mark.filterwarnings(
    "ignore:Exception ignored in. <coroutine object connect_tcp"
)

_current: ContextVar["Interruption | None"] = ContextVar("_current", default=None)


class Boom(Exception):
    """The error that an interruption raises."""


def cancelled(_: object) -> Strike:
    def strike(root: asyncio.Task[None]) -> None:
        root.cancel()

    return strike


def raised(_: object) -> Strike:
    def strike(_: asyncio.Task[None]) -> None:
        raise Boom

    return strike


class Interruption:
    """Interrupts once, at step `at`; `strike` raises an error into the step, or cancels a task."""

    def __init__(self, at: int, strike: Strike) -> None:
        self.has_struck = False
        self.tasks: set[asyncio.Task[object]] = set()
        self._at = at
        self._strike = strike
        self._steps = 0
        self._root: asyncio.Task[None] | None = None

    async def run(self, request: Coroutine[None, None, None]) -> None:
        """Run a request, then wait until all tasks that it started are done."""

        async def observed() -> None:
            _current.set(self)
            self._root = asyncio.create_task(request)
            await asyncio.wait((self._root,))

        await asyncio.create_task(observed())
        assert self._root is not None
        if not self._root.cancelled():
            self._root.exception()  # an error of any kind may end the request
        while unfinished := [task for task in self.tasks if not task.done()]:
            _, pending = await asyncio.wait(unfinished, timeout=TIMEOUT_SECONDS)
            assert not pending, pending

    def step(self) -> None:
        self._steps += 1
        if self._steps == self._at and self._root is not None:
            self.has_struck = True
            self._strike(self._root)


class _Interruptible(Coroutine[object, object, Result]):
    """A coroutine with counted steps."""

    def __init__(self, inner: Coroutine[object, object, Result], by: Interruption) -> None:
        self._inner = inner
        self._by = by

    def send(self, value: object) -> object:
        try:
            self._by.step()
        except Exception as error:  # noqa: BLE001 - the error of the interruption
            return self._inner.throw(error)
        return self._inner.send(value)

    def throw(self, *error: object) -> object:
        return self._inner.throw(*error)  # type: ignore[call-overload]

    def close(self) -> None:
        self._inner.close()

    def __await__(self) -> Generator[object, object, Result]:
        return self._inner.__await__()


@asynccontextmanager
async def interruptible() -> AsyncGenerator[None, None]:
    """Count the steps of every task that is started within a request."""

    def make(
        loop: asyncio.AbstractEventLoop,
        inner: Coroutine[object, object, Result],
        *,
        context: Context | None = None,
    ) -> asyncio.Task[Result]:
        by = _current.get()
        if by is None:
            return asyncio.Task(inner, loop=loop, context=context)
        task = asyncio.Task(_Interruptible(inner, by), loop=loop, context=context)
        by.tasks.add(task)
        return task

    loop = asyncio.get_running_loop()
    loop.set_task_factory(make)  # type: ignore[arg-type]
    try:
        yield
    finally:
        loop.set_task_factory(None)
