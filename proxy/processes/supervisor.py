"""One server, looked after: started when it is wanted, again when it fails, stopped on demand."""

# One owner task at a time, from the first wish until the stop, holds `_alone` and is the only one
# who starts, waits and gives up. A stop cancels it, and so stops what it had started; its successor
# begins when it has let go. Whoever wants the server waits for one future, which the owner settles
# and replaces when the server fails. Nobody else reads the state in order to act on it.

import asyncio
import logging
import random
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from typing import TypeAlias

from proxy.errors import ExitedUnexpectedly, NeverBecameReady, ProcessFailed
from proxy.processes.llama_server import explain_exit
from proxy.processes.process import RunningServer, ServerAddress
from proxy.processes.restarts import RestartPolicy, Restarts, RestartState

logger = logging.getLogger(__name__)

_POLICY = RestartPolicy()

Start: TypeAlias = Callable[[], AbstractAsyncContextManager[RunningServer]]


@dataclass(frozen=True, slots=True)
class ServerStatus:
    """How a server does, since a moment of the event loop's clock.

    `address` is where it answers, only while it is ready. `reason` tells in one sentence why it
    last failed and `log` holds its last lines then, both empty if it never did. It was started
    again `restarts` times; the next start is `retry_after` seconds away from `since`.
    """

    state: RestartState = RestartState.STOPPED
    since: float = 0.0
    address: ServerAddress | None = None
    reason: str = ""
    log: tuple[str, ...] = ()
    restarts: int = 0
    retry_after: float | None = None


StatusListener: TypeAlias = Callable[[ServerStatus], None]


class Supervisor:
    """Looks after one server.

    `start` makes a context that is entered when the server is ready and stops it when it is left;
    it raises `ProcessFailed` kinds of errors. `on_change` hears of every status and must not raise.
    """

    def __init__(
        self,
        name: str,
        start: Start,
        *,
        policy: RestartPolicy = _POLICY,
        on_change: StatusListener = lambda _status: None,
    ) -> None:
        self.name = name
        self._start = start
        self._restarts = Restarts(policy)
        self._on_change = on_change
        self.status = ServerStatus()
        self._owner: asyncio.Task[None] | None = None
        self._alone = asyncio.Lock()
        self._readiness: asyncio.Future[RunningServer | ProcessFailed]
        self._is_closed = False

    async def ready(self) -> RunningServer:
        """Return the server as soon as it is ready; one that is stopped is started.

        Raises the `ProcessFailed` kind of error for which it stays down, until it is stopped.
        """
        if self._is_closed:
            raise NeverBecameReady(self.name, "was stopped")
        if self._owner is None:
            self._readiness = asyncio.get_running_loop().create_future()
            self._owner = asyncio.create_task(self._look_after(), name=f"owner of {self.name}")
            self._owner.add_done_callback(self._note_end)
        server = await asyncio.shield(self._readiness)
        if isinstance(server, ProcessFailed):
            # many raise it, and each would leave its trace in it
            raise server.with_traceback(None)
        return server

    async def stop(self) -> None:
        """Stop the server; whoever waits for it is told, and whoever asks again starts it again."""
        owner, self._owner = self._owner, None
        if owner is not None:
            owner.cancel()
            self._settle(NeverBecameReady(self.name, "was stopped"))
            if owner.done():  # it had given up
                self._reset()
        async with self._alone:
            pass

    async def close(self) -> None:
        self._is_closed = True
        await self.stop()

    async def _look_after(self) -> None:
        async with self._alone:
            try:
                while True:
                    self._restarts.begin()
                    self._publish(replace(self.status, address=None, retry_after=None))
                    waiting = self._report_failure(await self._serve())
                    if waiting is None:
                        return
                    await asyncio.sleep(waiting)
                    self.status = replace(self.status, restarts=self.status.restarts + 1)
            except asyncio.CancelledError:
                self._reset()
                raise

    async def _serve(self) -> ProcessFailed:
        """Start the server and wait for its end; returns why it ended."""
        try:
            async with self._start() as server:
                self._restarts.become_ready(now())
                address = ServerAddress(server.base_url, server.api_key)
                self._publish(replace(self.status, address=address))
                self._settle(server)
                logger.info("%s listens at %s", self.name, server.base_url)
                exit_code = await server.process.wait()
                # from here on it is ready for nobody, however long the rest takes
                self._readiness = asyncio.get_running_loop().create_future()
                problem = explain_exit(exit_code, server.process.tail)
                return ExitedUnexpectedly(self.name, problem, server.process.tail)
        except ProcessFailed as failure:
            return failure

    def _report_failure(self, failure: ProcessFailed) -> float | None:
        """Report a failure; returns the seconds until the next start, None for never."""
        chance = random.random()  # noqa: S311 - no secret depends on it
        waiting = self._restarts.fail(now(), chance, is_lasting=failure.is_lasting)
        told = replace(self.status, address=None, reason=str(failure), log=failure.log)
        self._publish(replace(told, retry_after=waiting))
        if waiting is None:
            tried = f" after {told.restarts} restarts" if told.restarts else ""
            logger.error("%s stays down%s: it %s", self.name, tried, failure.problem)
            self._settle(failure)
        else:
            logger.warning("%s %s: starts again in %.1f s", self.name, failure.problem, waiting)
        return waiting

    def _reset(self) -> None:
        self._restarts.stop()
        self._publish(ServerStatus())

    def _publish(self, status: ServerStatus) -> None:
        self.status = replace(status, state=self._restarts.state, since=now())
        self._on_change(self.status)

    def _settle(self, outcome: RunningServer | ProcessFailed) -> None:
        if not self._readiness.done():
            self._readiness.set_result(outcome)

    def _note_end(self, owner: "asyncio.Task[None]") -> None:
        """Wake everyone who waits for a server whose owner task crashed."""
        if not owner.cancelled() and (bug := owner.exception()) is not None:
            logger.error("%s is no longer looked after", self.name, exc_info=bug)
            self._settle(ExitedUnexpectedly(self.name, "is no longer looked after"))


def now() -> float:
    return asyncio.get_running_loop().time()


class RemoteStatus:
    """The server's latest status; whoever wants the server waits for a better one."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.status = ServerStatus()
        self._news = asyncio.Event()

    def note(self, status: ServerStatus) -> None:
        self.status = status
        self._news.set()
        self._news = asyncio.Event()

    async def ready(self) -> ServerAddress:
        while (address := self.status.address) is None:
            if self.status.state is RestartState.DOWN:
                raise NeverBecameReady(self.name, f"is down: {self.status.reason}")
            await self._news.wait()
        return address
