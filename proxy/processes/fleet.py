"""Loads and stops servers that do not all fit into memory.

`swapping` decides which servers to load and to stop (decision 0010).

    with fleet.lease("qwen3", key) as lease:     the request joins the queue
        await lease.wait_until_granted()         the model is loaded
        ...                                      and stays loaded until the block ends

A model that failed is not loaded again for ten seconds.
"""

import asyncio
import logging
from collections.abc import Coroutine, Generator, Mapping
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field
from typing import Literal, Protocol, TypeAlias

from proxy.errors import BackendUnavailable, ExitedUnexpectedly, ProcessFailed, QueueFull
from proxy.processes.restarts import RestartState
from proxy.processes.supervisor import ServerStatus, now
from proxy.processes.swapping import Orders, QueueTicket, SwapPlanner
from proxy.shares import find_displaced

logger = logging.getLogger(__name__)

MOST_WAITING = 256  # default of `server.max_waiting`
_RETRY_AFTER_SECONDS = 5  # for the client of a request that was refused or displaced


class StartableServer(Protocol):
    """A server that is started on demand; see `Supervisor`."""

    @property
    def status(self) -> ServerStatus: ...

    async def ready(self) -> object:
        """Start the server and wait until it is ready; raises subclasses of `ProcessFailed`."""

    async def stop(self) -> None: ...


# The state of a model in responses to clients.
Condition: TypeAlias = Literal["loaded", "loading", "unloaded", "failed"]


@dataclass(eq=False, slots=True)
class Lease:
    """A request's claim to a model: first it waits in the queue, then it keeps the model loaded."""

    _ticket: QueueTicket
    _swapping: SwapPlanner
    _outcome: "asyncio.Future[ProcessFailed | QueueFull | None]"  # None: the model can be used
    key: str = ""

    @property
    def ahead(self) -> int:
        """The number of older requests in the queue, for any model."""
        return self._swapping.ahead(self._ticket)

    @property
    def news(self) -> str:
        name = self._ticket.model
        if self._swapping.presence(name) == "loading":
            status = f"loading {name}"
        elif busy := self._swapping.busy_blockers(name):
            status = (
                f"waiting for requests to {', '.join(busy)} to end, because {name} needs the memory"
            )
        else:
            status = f"waiting for {name}"
        if not (ahead := self.ahead):
            return status
        return f"{status}, {ahead} {'request' if ahead == 1 else 'requests'} ahead"

    def timeout_error(self) -> BackendUnavailable:
        return BackendUnavailable(self._ticket.model, "is being loaded", loading=True)

    @property
    def is_granted(self) -> bool:
        return self._ticket.is_served

    async def wait_until_granted(self) -> None:
        """Wait until the model can be used; raises `ProcessFailed` or `QueueFull`."""
        # A stream waits in short intervals, and sends an SSE comment after each. With `shield`, the
        # end of an interval does not cancel the future.
        failure = await asyncio.shield(self._outcome)
        if failure is not None:
            raise failure.with_traceback(None)  # otherwise each task would add its frames to it

    @property
    def is_settled(self) -> bool:
        """True if the model can be used, or loading it has failed."""
        return self._outcome.done()

    def settle(self, failure: ProcessFailed | QueueFull | None = None) -> None:
        if not self._outcome.done():
            self._outcome.set_result(failure)


@dataclass(eq=False, slots=True)
class Fleet:
    """Loads the models that requests have leased, within the memory budget of `swapping`.

    `servers` and `swapping` contain the same models. At most `most_waiting` requests wait. If the
    queue is full, a new request displaces the newest request of the key with the most waiting
    requests. The new request is refused if its own key, with this request, has at least as many
    waiting requests as every other key (see `find_displaced`).
    """

    servers: Mapping[str, StartableServer]
    swapping: SwapPlanner
    _: KW_ONLY
    most_waiting: int = MOST_WAITING
    _leases: dict[QueueTicket, Lease] = field(default_factory=dict)
    _failures: dict[str, ProcessFailed] = field(default_factory=dict)
    _loading: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _alarm: asyncio.TimerHandle | None = None
    _is_closed: bool = False

    @contextmanager
    def lease(self, name: str, key: str = "") -> Generator[Lease, None, None]:
        """Claim a model for a client's `key` while the block runs; raises `QueueFull`."""
        if self.swapping.waiting >= self.most_waiting:
            self._displace(key)
        self._stop_if_down(name)
        ticket, orders = self.swapping.ask(name, now())
        lease = self._leases[ticket] = Lease(
            ticket, self.swapping, asyncio.get_running_loop().create_future(), key
        )
        self._obey(orders)
        try:
            yield lease
        finally:
            del self._leases[ticket]
            self._obey(self.swapping.leave(ticket, now()))

    def preload(self, name: str) -> None:
        """Load a model before the first request for it; a failure is logged."""
        self._run(self._preload(name))

    def keep(self, name: str, seconds: float | None) -> None:
        """Stop a model after `seconds` without requests.

        A negative number means never, and None means the configured time.
        """
        self.swapping.keep(name, seconds)
        self._set_alarm()

    def can_start_now(self, name: str) -> bool:
        """Return True if a request for a model would not wait for requests to other models."""
        return self.swapping.can_start_now(name, now())

    def condition(self, name: str) -> Condition:
        state = self.servers[name].status.state
        match self.swapping.presence(name):
            case "loaded" if state is RestartState.READY:
                return "loaded"
            case "loaded" if state is RestartState.DOWN:
                return "failed"
            case "loaded" | "loading":
                return "loading"
            case _:
                return "failed" if self.swapping.has_failed(name, now()) else "unloaded"

    def problem(self, name: str) -> str:
        """Return why loading a model failed, "" if it has not failed."""
        failure = self._failures.get(name)
        has_failed = failure is not None and self.condition(name) == "failed"
        return str(failure) if has_failed else ""

    async def close(self) -> None:
        self._is_closed = True
        if self._alarm is not None:
            self._alarm.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(server.stop() for server in self.servers.values()))

    def _displace(self, key: str) -> None:
        """Remove another key's request from the full queue; raises `QueueFull` if impossible."""
        waiting = [item for item in self._leases.items() if not item[1].is_settled]
        displaced = find_displaced([lease.key for _, lease in waiting], key)
        full = QueueFull(self.swapping.waiting, _RETRY_AFTER_SECONDS)
        if displaced is None:
            raise full
        ticket, lease = waiting[displaced]
        lease.settle(full)
        self._obey(self.swapping.leave(ticket, now()))

    def _stop_if_down(self, name: str) -> None:
        """Stop a crashed server that is not restarted any more, so that it can be loaded again."""
        status = self.servers[name].status
        if status.state is RestartState.DOWN and self.swapping.presence(name) == "loaded":
            problem = f"is down and will be restarted later: {status.reason}"
            self._failures[name] = ExitedUnexpectedly(f"The server of {name}", problem)
            self._obey(self.swapping.note_failed(name, now()))

    def _obey(self, orders: Orders) -> None:
        # leases end during the shutdown; their end must not start the model of a waiting request
        if self._is_closed:
            return
        for ticket in (*orders.served, *orders.refused):
            if ticket in self._leases:
                self._leases[ticket].settle(
                    None if ticket.is_served else self._failures[ticket.model]
                )
        for name in orders.stop:
            # a model that is still loading is stopped if its requests have left the queue
            if (loading := self._loading.pop(name, None)) is not None:
                loading.cancel()
            self._run(self._stop(name))
        for name in orders.start:
            self._loading[name] = self._run(self._load(name))
        self._set_alarm()

    async def _load(self, name: str) -> None:
        begun = now()
        logger.info("%s: loading", name)
        try:
            await self.servers[name].ready()
        except ProcessFailed as failure:
            self._failures[name] = failure
            report = self.swapping.note_failed
        else:
            logger.info("%s: loaded in %.1f s", name, now() - begun)
            report = self.swapping.note_loaded
        del self._loading[name]
        self._obey(report(name, now()))

    async def _preload(self, name: str) -> None:
        try:
            with self.lease(name) as lease:
                await lease.wait_until_granted()
        except (ProcessFailed, QueueFull) as failure:
            logger.warning("%s: not loaded: %s", name, failure)

    async def _stop(self, name: str) -> None:
        logger.info("%s: unloading", name)
        await self.servers[name].stop()
        self._obey(self.swapping.note_stopped(name, now()))

    def _run(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _set_alarm(self) -> None:
        """Schedule the next check for idle models."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        if (moment := self.swapping.next_expiry()) is not None:
            loop = asyncio.get_running_loop()
            self._alarm = loop.call_at(
                moment, lambda: self._obey(self.swapping.stop_expired(now()))
            )
