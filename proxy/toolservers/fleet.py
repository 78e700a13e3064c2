"""All tool servers together: started at once, called by their tools' names, closed at once."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

from proxy.conversation.json import JsonObject
from proxy.processes.restarts import State
from proxy.toolservers.calling import Ended
from proxy.toolservers.definitions import ServedTool
from proxy.toolservers.server import Patience, ToolServer
from proxy.toolservers.specification import CallLimits, ServerSpec

# The SDK logs every request, and with a traceback every line of a program that is no message; what
# matters of it comes as an error, and is told by us.
_TALKATIVE = ("mcp", "httpx2", "httpcore2")


class Fleet:
    """The tool servers that are configured, in that order."""

    def __init__(self, specs: Sequence[ServerSpec], patience: Patience | None = None) -> None:
        self._servers = {spec.name: ToolServer(spec, patience) for spec in specs}

    @property
    def servers(self) -> tuple[ToolServer, ...]:
        """All of them."""
        return tuple(self._servers.values())

    @property
    def names(self) -> tuple[str, ...]:
        """What they are called."""
        return tuple(self._servers)

    def tools_of(self, server: str) -> tuple[ServedTool, ...] | None:
        """Return what a server offers; None while nobody knows, and when it is down."""
        return self._servers[server].tools

    def is_ready(self, server: str) -> bool:
        """Tell whether a server would take a call now."""
        return self._servers[server].state is State.READY

    def protocol_of(self, server: str) -> tuple[str, str]:
        """Return how a server is reached, and by which version of the protocol."""
        known = self._servers[server]
        return known.spec.transport, known.protocol

    def condition_of(self, server: str) -> tuple[str, str]:
        """Return a server's state, and why it cannot be used, "" where it can."""
        known = self._servers[server]
        return known.state.value, known.problem

    async def call(
        self, tool: ServedTool, arguments: JsonObject, limits: CallLimits, meta: JsonObject
    ) -> Ended:
        """Call a tool once; nothing that it does raises."""
        return await self._servers[tool.server].call(tool.tool.name, arguments, limits, meta)

    async def settled(self, seconds: float) -> None:
        """Wait until each server is ready or down, at most so long."""
        await asyncio.gather(*(server.settled(seconds) for server in self.servers))

    async def close(self) -> None:
        """Close all at once; a program that heeds nothing is killed after four seconds."""
        for server in self.servers:
            server.stop()
        await asyncio.gather(*(server.ended() for server in self.servers))


@asynccontextmanager
async def open_fleet(
    specs: Sequence[ServerSpec], patience: Patience | None = None
) -> AsyncGenerator[Fleet, None]:
    """Start tool servers, which holds nobody up, and close them at the end."""
    for name in _TALKATIVE:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    fleet = Fleet(specs, patience)
    for server in fleet.servers:
        server.start()
    try:
        yield fleet
    finally:
        await fleet.close()
