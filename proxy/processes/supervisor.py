"""Supervises one server: starts it on demand, restarts it after a failure, and stops it."""

# Only one task, the owner, starts the server, waits for its exit and gives up. The owner runs from
# the first `ready` until `stop`. `stop` cancels the owner, which stops the server. The lock
# `_alone` makes an owner wait until the previous owner has ended. The callers of `ready` wait for a
# future; the owner sets its result, and creates a new future when the server fails.

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
    """The state of a server; it has an `address` only while the server is ready.

    `reason` describes the last failure in one sentence, and `log` contains the last lines of the
    server's output before that failure. Before the first failure, `reason` and `log` are empty.
    `retry_after` is the delay of the next restart in seconds.
    """

    state: RestartState = RestartState.STOPPED
    address: ServerAddress | None = None
    reason: str = ""
    log: tuple[str, ...] = ()
    restarts: int = 0
    retry_after: float | None = None


StatusListener: TypeAlias = Callable[[ServerStatus], None]


class Supervisor:
    """Starts, restarts and stops one server.

    `start` returns a context manager. Its entry waits until the server is ready, and raises
    subclasses of `ProcessFailed`; its exit stops the server. `on_change` receives every status and
    must not raise.
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
        """Start the server if it is stopped; return it as soon as it is ready.

        Raises `ProcessFailed` with the reason if the server is down.
        """
        if self._is_closed:
            raise NeverBecameReady(self.name, "was stopped")
        if self._owner is None:
            self._readiness = asyncio.get_running_loop().create_future()
            self._owner = asyncio.create_task(self._supervise(), name=f"owner of {self.name}")
            self._owner.add_done_callback(self._note_end)
        server = await asyncio.shield(self._readiness)
        if isinstance(server, ProcessFailed):
            # every task that raises the error would add its frames to it
            raise server.with_traceback(None)
        return server

    async def stop(self) -> None:
        """Stop the server: waiting calls of `ready` fail, and later calls start it again."""
        owner, self._owner = self._owner, None
        if owner is not None:
            owner.cancel()
            self._settle(NeverBecameReady(self.name, "was stopped"))
            if owner.done():  # the owner gave up, so its cancellation does not reset the state
                self._reset()
        async with self._alone:  # wait until the owner has stopped the server
            pass

    async def close(self) -> None:
        self._is_closed = True
        await self.stop()

    async def _supervise(self) -> None:
        async with self._alone:
            try:
                while True:
                    self._restarts.begin()
                    self._publish(replace(self.status, address=None, retry_after=None))
                    delay = self._report_failure(await self._serve())
                    if delay is None:
                        return
                    await asyncio.sleep(delay)
                    self.status = replace(self.status, restarts=self.status.restarts + 1)
            except asyncio.CancelledError:
                self._reset()
                raise

    async def _serve(self) -> ProcessFailed:
        """Start the server and wait for its exit; return the error of its start or of its exit."""
        try:
            async with self._start() as server:
                self._restarts.become_ready(now())
                address = ServerAddress(server.base_url, server.api_key)
                self._publish(replace(self.status, address=address))
                self._settle(server)
                logger.info("%s: listening at %s", self.name, server.base_url)
                exit_code = await server.process.wait()
                # new callers must wait for the next start, even while this server is being stopped
                self._readiness = asyncio.get_running_loop().create_future()
                problem = explain_exit(exit_code, server.process.tail)
                return ExitedUnexpectedly(self.name, problem, server.process.tail)
        except ProcessFailed as failure:
            return failure

    def _report_failure(self, failure: ProcessFailed) -> float | None:
        """Report a failure; return the seconds until a restart, None if the server stays down."""
        chance = random.random()  # noqa: S311 - no secret depends on it
        delay = self._restarts.fail(now(), chance, is_lasting=failure.is_lasting)
        status = replace(self.status, address=None, reason=str(failure), log=failure.log)
        self._publish(replace(status, retry_after=delay))
        if delay is None:
            count = status.restarts
            logger.error("%s %s; giving up after %d restarts", self.name, failure.problem, count)
            self._settle(failure)
        else:
            logger.warning("%s %s; restarting in %.1f s", self.name, failure.problem, delay)
        return delay

    def _reset(self) -> None:
        self._restarts.stop()
        self._publish(ServerStatus())

    def _publish(self, status: ServerStatus) -> None:
        self.status = replace(status, state=self._restarts.state)
        self._on_change(self.status)

    def _settle(self, outcome: RunningServer | ProcessFailed) -> None:
        if not self._readiness.done():
            self._readiness.set_result(outcome)

    def _note_end(self, owner: "asyncio.Task[None]") -> None:
        """Fail the waiting callers if the owner task crashed."""
        if not owner.cancelled() and (bug := owner.exception()) is not None:
            problem = "will not be restarted: its supervisor crashed"
            logger.error("%s %s", self.name, problem, exc_info=bug)
            self._settle(ExitedUnexpectedly(self.name, problem))


def now() -> float:
    return asyncio.get_running_loop().time()


class RemoteStatus:
    """The latest status of a server in another process."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.status = ServerStatus()
        self._change = asyncio.Event()

    def note(self, status: ServerStatus) -> None:
        self.status = status
        self._change.set()
        self._change = asyncio.Event()

    async def ready(self) -> ServerAddress:
        while (address := self.status.address) is None:
            if self.status.state is RestartState.DOWN:
                raise NeverBecameReady(self.name, f"is down: {self.status.reason}")
            await self._change.wait()
        return address
