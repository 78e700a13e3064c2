"""All tool servers together: started at once, called by their tools' names, closed at once.

They may become others while they are used: those that stay as they are notice nothing of it.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

from proxy.conversation.json import JsonObject
from proxy.mcp.definitions import ServedTool
from proxy.mcp.server import McpServer, ServerTimeouts
from proxy.mcp.specification import GONE, CallLimits, Ended, ServerSpec
from proxy.processes.restarts import RestartState

# The SDK logs every request, and with a traceback every line of a program that is no message; what
# matters of it comes as an error, and is told by us.
_TALKATIVE = ("mcp", "httpx2", "httpcore2")


class ToolServerFleet:
    """The tool servers that are configured, in that order."""

    def __init__(self, patience: ServerTimeouts | None = None) -> None:
        for name in _TALKATIVE:
            logging.getLogger(name).setLevel(logging.CRITICAL)
        self._patience = patience
        self._servers: dict[str, McpServer] = {}
        self._retiring: dict[asyncio.Task[None], McpServer] = {}

    def renew(self, specs: Sequence[ServerSpec]) -> None:
        """Keep these servers going from now on, which holds nobody up.

        One that is described as before goes on, unless it is down, and its tools are offered as
        they are defined by now. All others end when their calls are over.
        """
        before = self._servers
        self._servers = {spec.name: self._server(before.get(spec.name), spec) for spec in specs}
        for name, server in before.items():
            if self._servers.get(name) is not server:
                retiring = asyncio.create_task(server.retire(), name=f"end of {name}")
                self._retiring[retiring] = server
                retiring.add_done_callback(self._retiring.pop)

    def _server(self, known: McpServer | None, spec: ServerSpec) -> McpServer:
        if known is not None and known.spec == spec and known.state is not RestartState.DOWN:
            known.accept()
            return known
        return McpServer(spec, self._patience)

    @property
    def servers(self) -> tuple[McpServer, ...]:
        return tuple(self._servers.values())

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._servers)

    def tools_of(self, server: str) -> tuple[ServedTool, ...] | None:
        return self._servers[server].tools

    def is_ready(self, server: str) -> bool:
        return self._servers[server].state is RestartState.READY

    def protocol_of(self, server: str) -> tuple[str, str]:
        known = self._servers.get(server)
        return (known.spec.transport, known.protocol) if known is not None else ("", "")

    def condition_of(self, server: str) -> tuple[str, str]:
        known = self._servers[server]
        return known.state.value, known.problem

    async def call(
        self, tool: ServedTool, arguments: JsonObject, limits: CallLimits, meta: JsonObject
    ) -> Ended:
        """Call a tool once, as it was offered; nothing that it does raises."""
        server = self._servers.get(tool.server)
        if server is None:
            return GONE
        return await server.call(tool.tool.name, arguments, limits, meta, digest=tool.digest)

    async def wait_settled(self, seconds: float) -> None:
        """Wait until each server is ready or down, at most so long."""
        await asyncio.gather(*(server.wait_settled(seconds) for server in self.servers))

    async def close(self) -> None:
        """Close all at once; a program that heeds nothing is killed after four seconds."""
        everybody = (*self.servers, *self._retiring.values())
        for server in everybody:
            server.stop()
        await asyncio.gather(*(server.wait_closed() for server in everybody), *self._retiring)


@asynccontextmanager
async def open_fleet(
    specs: Sequence[ServerSpec], patience: ServerTimeouts | None = None
) -> AsyncGenerator[ToolServerFleet, None]:
    """Start tool servers, which holds nobody up, and close them at the end."""
    fleet = ToolServerFleet(patience)
    fleet.renew(specs)
    try:
        yield fleet
    finally:
        await fleet.close()
