"""A server that another process of ours looks after, as far as that process tells of it."""

import asyncio

from proxy.errors import NeverBecameReady
from proxy.processes.process import ServerAddress
from proxy.processes.restarts import State
from proxy.processes.supervisor import Status


class RemoteStatus:
    """The server's latest status; whoever wants the server waits for a better one."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._status = Status()
        self._news = asyncio.Event()

    @property
    def status(self) -> Status:
        """How the server did when somebody told."""
        return self._status

    def note(self, status: Status) -> None:
        """Take over a status."""
        self._status = status
        self._news.set()
        self._news = asyncio.Event()

    async def ready(self) -> ServerAddress:
        """Return where the server answers, as soon as it does; raises `ProcessFailed` if not."""
        while (address := self._status.address) is None:
            if self._status.state is State.DOWN:
                raise NeverBecameReady(self.name, f"is down: {self._status.reason}")
            await self._news.wait()
        return address
