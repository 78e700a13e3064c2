"""Servers without processes for a fleet: each becomes ready, or fails, on command."""

import asyncio

from proxy.errors import ProcessFailed
from proxy.processes.restarts import RestartState
from proxy.processes.supervisor import ServerStatus


class Server:
    """One server; counts its starts and stops."""

    def __init__(self) -> None:
        self.status = ServerStatus()
        self.starts = 0
        self.stops = 0
        self.outcome = asyncio.get_running_loop().create_future()
        self.wanted = asyncio.Event()
        self.stopped = asyncio.Event()

    async def ready(self) -> None:
        self.starts += 1
        self.status = ServerStatus(RestartState.STARTING)
        self.wanted.set()
        failure: ProcessFailed | None = await asyncio.shield(self.outcome)
        if failure is not None:
            raise failure
        self.status = ServerStatus(RestartState.READY)

    async def stop(self) -> None:
        self.stops += 1
        self.stopped.set()
        self.status = ServerStatus()
        self.wanted.clear()

    def finish(self, failure: ProcessFailed | None = None) -> None:
        """Finish this and every later start."""
        self.outcome.set_result(failure)
