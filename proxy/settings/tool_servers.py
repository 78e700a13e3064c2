"""Tool servers (MCP): their settings, and contradictions between these."""

import difflib
import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Literal

from pydantic import StringConstraints

from proxy.settings.models import Contradiction, find_shared
from proxy.settings.sections import Section, Server, Ui
from proxy.settings.values import (
    Count,
    Environment,
    Seconds,
    ToolServerHeaders,
    ToolServerUrl,
    setting,
)

ALL = "*"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


class Tools(Section):
    """The users of tools from [mcp.NAME], and the limits of a request with them."""

    offer: Literal["asked", "toolless", "always"] = setting(
        "asked",
        "to whom tools are offered: asked (requests that name a server), toolless (also those "
        "without tools) or always",
    )
    owners: list[str] = setting(
        [], "whose keys may use them, by the names of api_keys_file; [] is all"
    )
    rounds: Count = setting(
        10, "rounds of calls in one request; then the model has to answer", ge=1
    )
    parallel: Count = setting(8, "calls of one reply that run at once", ge=1)
    call_seconds: Seconds = setting(60, "how long a call may take, in seconds")
    result_chars: Count = setting(
        16_000, "longest result that the model gets, in characters", ge=100
    )
    narrate: bool = setting(False, "tell people who watch of each call, in a line of reasoning")
    confirm_seconds: Seconds = setting(
        60, "how long a call that needs a person's yes waits for it, in seconds; then it is refused"
    )
    hosted: dict[str, str] = setting(
        {}, "tools that clients expect to be hosted, by what does it: web_search = 'SERVER.TOOL'"
    )


class ToolServer(Section):
    """One MCP server: a program that Temper starts, or an address."""

    url: ToolServerUrl = setting(None, "address of a running MCP server (streamable HTTP)")
    headers: ToolServerHeaders = setting({}, "headers that Temper sends to it, e.g. authorization")
    command: list[str] = setting(
        [], "program to start, with its arguments; it speaks over its pipes"
    )
    env: Environment = setting({}, "environment variables for the program")
    cwd: str = setting("", "working directory of the program")
    tools: list[str] = setting([], 'which of its tools are offered; ["*"] is all, [] none')
    ask: list[str] = setting(
        [], 'which of these need a person\'s yes at the dashboard, each time; ["*"] is all'
    )
    prefix: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{0,32}$")] = setting(
        "", "put before the names of its tools"
    )
    digest: str = setting(
        "", "of the definitions you looked at (temper tools prints it); others are not offered"
    )


def tool_server_contradictions(
    tools: Tools, servers: Mapping[str, ToolServer], server_settings: Server
) -> Iterator[Contradiction]:
    """Yield contradictions between settings that are valid one by one."""
    for name, server in servers.items():
        yield from _wrong_within(f"mcp.{name}", name, server)
        yield from _find_misnamed_tools(f"mcp.{name}", server)
        if server.command and server_settings.workers > 1:
            problem = "must be 1 with a command: each worker would start the program again"
            yield ("server.workers", f"mcp.{name}.command"), problem
    offered = [
        (server.prefix + tool, name)
        for name, server in servers.items()
        for tool in server.tools
        if tool != ALL
    ]
    for shared, name, owner in find_shared(offered):
        problem = f"mcp.{owner} has a tool {shared!r} too: set a prefix"
        yield (f"mcp.{name}.tools", f"mcp.{owner}.tools"), problem
    for kind, target in tools.hosted.items():
        yield from _misleading(kind, target, servers)
    if tools.owners and server_settings.api_keys_file is None:
        problem = "needs server.api_keys_file: without it keys have no names"
        yield ("tools.owners", "server.api_keys_file"), problem


def unanswerable_questions(
    servers: Mapping[str, ToolServer], server: Server, ui: Ui
) -> Iterator[Contradiction]:
    """Yield settings that leave no person to consent to a tool call."""
    asking = next((f"mcp.{name}.ask" for name, tools in servers.items() if tools.ask), None)
    if asking is None:
        return
    if server.workers > 1:
        problem = f"must be 1 with {asking}: a worker cannot show the waiting calls of others"
        yield ("server.workers", asking), problem
    if not ui.enabled:
        problem = "needs ui.enabled = true: calls are allowed at the dashboard, nowhere else"
        yield (asking, "ui.enabled"), problem
    elif ui.read_only:
        problem = "needs ui.read_only = false: otherwise no call can be allowed"
        yield (asking, "ui.read_only"), problem
    elif server.api_keys_file is not None and server.api_key is None and not ui.owners:
        problem = "needs a person who may open the dashboard: set server.api_key or ui.owners"
        yield (asking, "ui.owners"), problem


def _wrong_within(section: str, name: str, server: ToolServer) -> Iterator[Contradiction]:
    url, command = f"{section}.url", f"{section}.command"
    if not _NAME.fullmatch(name):
        yield (section,), "is not a valid name for a tool server: use letters, digits, _ and -"
    if server.url is None and not server.command:
        yield (url, command), f"is missing: name an address, or a program as {command}"
    if server.url is not None and server.command:
        yield (command, url), f"cannot be combined with {url}: remove one of the two"
    if server.headers and server.url is None:
        yield (f"{section}.headers", url), f"needs {url}: a program gets no headers"
    for setting_name, is_given in (("env", bool(server.env)), ("cwd", bool(server.cwd))):
        if is_given and not server.command:
            yield (
                (f"{section}.{setting_name}", command),
                f"needs {command}: without it Temper starts no program",
            )


def _find_misnamed_tools(section: str, server: ToolServer) -> Iterator[Contradiction]:
    for setting_name, tools in (("tools", server.tools), ("ask", server.ask)):
        if ALL in tools and len(tools) > 1:
            problem = 'has "*" next to names: "*" means all tools, so remove the names'
            yield (f"{section}.{setting_name}",), problem
    offered = {*server.tools, ALL} if server.tools else set()
    for tool in server.ask:
        if ALL not in server.tools and tool not in offered:
            problem = f"{tool!r} is not among {section}.tools, so it is not offered"
            yield (f"{section}.ask", f"{section}.tools"), problem


def _misleading(
    kind: str, target: str, servers: Mapping[str, ToolServer]
) -> Iterator[Contradiction]:
    server, _, tool = target.partition(".")
    if not tool:
        yield ("tools.hosted",), f"{kind}: {target!r} is not of the form SERVER.TOOL"
    elif server not in servers:
        near = difflib.get_close_matches(server, servers, 1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        yield ("tools.hosted",), f"{kind}: there is no section mcp.{server}{hint}"
    elif not {tool, ALL} & set(servers[server].tools):
        problem = f"{kind}: {tool!r} is not among mcp.{server}.tools, so it is not offered"
        yield ("tools.hosted", f"mcp.{server}.tools"), problem
