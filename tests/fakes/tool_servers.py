"""Tool servers for tests: programs that misbehave on demand, and a source without a server."""

import asyncio
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from proxy.conversation import json
from proxy.conversation.json import JsonObject
from proxy.conversation.tools import Tool
from proxy.mcp.definitions import ServedTool
from proxy.mcp.server import ServerTimeouts
from proxy.mcp.specification import CallLimits, ServerSpec, ToolCallResult
from proxy.processes.restarts import RestartPolicy
from tests.timeouts import TIMEOUT_SECONDS

PROGRAM = str(Path(__file__).with_name("tool_server.py"))
QUICK = RestartPolicy(first_delay=0.01)
LONG_TIMEOUTS = ServerTimeouts(TIMEOUT_SECONDS, TIMEOUT_SECONDS, QUICK)


def program(
    *options: str,
    name: str = "fake",
    tools: tuple[str, ...] = ("*",),
    env: Mapping[str, str] | None = None,
    prefix: str = "",
) -> ServerSpec:
    """Describe a `tool_server` program; its module lists the options."""
    command = (sys.executable, "-P", PROGRAM, *options)
    return ServerSpec(name, command=command, tools=tools, env=env or {}, prefix=prefix)


def served(
    name: str, server: str = "fake", upstream_name: str = "", *, needs_approval: bool = False
) -> ServedTool:
    """Return a tool that accepts any arguments."""
    parameters: JsonObject = {"type": "object", "properties": {}}
    function: JsonObject = {"name": name, "parameters": parameters}
    source = json.dump({"type": "function", "function": function})
    tool = Tool(name, parameters, source)
    return ServedTool(server, upstream_name or name, tool, "", needs_approval=needs_approval)


@dataclass(slots=True)
class FakeSource:
    """Tools without a server, by the name of the server; None stands for an unavailable server.

    A tool returns its result in `answers`, or else waits for `released`.
    """

    offers: Mapping[str, tuple[ServedTool, ...] | None]
    answers: Mapping[str, ToolCallResult] = field(default_factory=dict)
    released: asyncio.Event = field(default_factory=asyncio.Event)
    calls: list[tuple[str, JsonObject, CallLimits, JsonObject]] = field(default_factory=list)
    most: int = 0
    running: int = 0

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.offers)

    def tools_of(self, server: str) -> tuple[ServedTool, ...] | None:
        return self.offers[server]

    def is_ready(self, server: str) -> bool:
        return self.offers[server] is not None

    def protocol_of(self, server: str) -> tuple[str, str]:
        return "pipe", f"version of {server}"

    def condition_of(self, server: str) -> tuple[str, str]:
        return ("ready", "") if self.is_ready(server) else ("waiting", "cannot be used: it is gone")

    async def call(
        self, tool: ServedTool, arguments: JsonObject, limits: CallLimits, meta: JsonObject
    ) -> ToolCallResult:
        self.calls.append((tool.upstream_name, arguments, limits, meta))
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            if tool.upstream_name not in self.answers:
                await self.released.wait()
            return self.answers.get(
                tool.upstream_name, ToolCallResult(f"{tool.upstream_name} is done")
            )
        finally:
            self.running -= 1


async def until(path: Path, word: str) -> None:
    """Poll a log file until a program has written a word."""
    while not has(path, word):  # noqa: ASYNC110
        await asyncio.sleep(0.01)


def has(path: Path, word: str) -> bool:
    """Return whether a log file has a word as a line."""
    return path.exists() and word in path.read_text().splitlines()
