"""Settings of tool servers (MCP), and checks of their combination."""

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
# A name has no dot, because SERVER.TOOL is split at the first dot.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


class Tools(Section):
    """Access to the tools of [mcp.NAME], and limits per request."""

    # not `always`: models choose worse among many tools, and adding tools changes the start of the
    # prompt, so its cache is lost (decision 0023)
    offer: Literal["asked", "toolless", "always"] = setting(
        "asked",
        "requests that receive the tools: asked (those that name a server), toolless (also "
        "those without tools) or always",
    )
    owners: list[str] = setting(
        [], "names in api_keys_file whose keys may use the tools; [] allows every key"
    )
    rounds: Count = setting(
        10, "maximum number of tool rounds per request; then the model must answer in text", ge=1
    )
    parallel: Count = setting(8, "maximum number of calls of one reply that run concurrently", ge=1)
    call_seconds: Seconds = setting(60, "time limit for a call, in seconds")
    result_chars: Count = setting(
        16_000, "maximum length of a result in the prompt, in characters", ge=100
    )
    narrate: bool = setting(False, "add a line to the streamed reasoning for each call")
    confirm_seconds: Seconds = setting(
        60, "time that a call waits for approval before it is refused, in seconds"
    )
    hosted: dict[str, str] = setting(
        {}, "hosted tools of client APIs, mapped to tools: web_search = 'SERVER.TOOL'"
    )


class ToolServer(Section):
    """An MCP server: a program that Temper starts, or an address."""

    url: ToolServerUrl = setting(None, "address of a running MCP server (streamable HTTP)")
    headers: ToolServerHeaders = setting(
        {}, "headers that Temper sends to the MCP server, e.g. authorization"
    )
    command: list[str] = setting(
        [], "program to start as an MCP server over stdio, with its arguments"
    )
    env: Environment = setting({}, "environment variables of the program")
    cwd: str = setting("", "working directory of the program")
    # empty by default: the operator must list each tool that Temper may run (decision 0023)
    tools: list[str] = setting([], 'names of the tools to offer; ["*"] means all, [] none')
    ask: list[str] = setting(
        [], 'names of the tools whose calls need approval on the dashboard; ["*"] means all'
    )
    prefix: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{0,32}$")] = setting(
        "", "prefix of the tool names"
    )
    digest: str = setting(
        "",
        "digest of the reviewed tool definitions, as temper tools prints it; if it differs, "
        "no tools are offered",
    )


def tool_server_contradictions(
    tools: Tools, servers: Mapping[str, ToolServer], listener: Server
) -> Iterator[Contradiction]:
    """Find invalid combinations of settings of the tool servers."""
    for name, server in servers.items():
        yield from _contradictions_within(f"mcp.{name}", name, server)
        yield from _find_unoffered_tools(f"mcp.{name}", server)
        if server.command and listener.workers > 1:
            problem = "must be 1 with a command: each worker would start a copy of the program"
            yield ("server.workers", f"mcp.{name}.command"), problem
    offered = [
        (server.prefix + tool, name)
        for name, server in servers.items()
        for tool in server.tools
        if tool != ALL
    ]
    for shared, name, owner in find_shared(offered):
        problem = f"mcp.{owner} also has a tool {shared!r}; set a prefix"
        yield (f"mcp.{name}.tools", f"mcp.{owner}.tools"), problem
    for kind, target in tools.hosted.items():
        yield from _check_hosted_tool(kind, target, servers)
    if tools.owners and listener.api_keys_file is None:
        problem = "requires server.api_keys_file, which gives names to keys"
        yield ("tools.owners", "server.api_keys_file"), problem


def find_approval_conflicts(
    servers: Mapping[str, ToolServer], server: Server, ui: Ui
) -> Iterator[Contradiction]:
    """Find settings that require approval of calls on the dashboard, but make it impossible.

    Each call would wait for `tools.confirm_seconds` and then be refused.
    """
    ask_setting = next(
        (f"mcp.{name}.ask" for name, tool_server in servers.items() if tool_server.ask), None
    )
    if ask_setting is None:
        return
    if server.workers > 1:
        problem = (
            f"must be 1 with {ask_setting}: the dashboard of a worker shows only its own calls"
        )
        yield ("server.workers", ask_setting), problem
    if not ui.enabled:
        problem = "requires ui.enabled = true: calls are approved on the dashboard"
        yield (ask_setting, "ui.enabled"), problem
    elif ui.read_only:
        problem = "requires ui.read_only = false: calls are approved on the dashboard"
        yield (ask_setting, "ui.read_only"), problem
    elif server.api_keys_file is not None and server.api_key is None and not ui.owners:
        problem = "requires access to the dashboard; set server.api_key or ui.owners"
        yield (ask_setting, "ui.owners"), problem


def _contradictions_within(section: str, name: str, server: ToolServer) -> Iterator[Contradiction]:
    url, command = f"{section}.url", f"{section}.command"
    if not _NAME.fullmatch(name):
        yield (section,), "is not a valid name of a tool server; use letters, digits, _ and -"
    if server.url is None and not server.command:
        yield (url, command), f"is missing; set an address, or a program with {command}"
    if server.url is not None and server.command:
        yield (command, url), f"cannot be combined with {url}; remove one of the two"
    if server.headers and server.url is None:
        yield (f"{section}.headers", url), f"requires {url}; programs do not receive headers"
    for setting_name, is_set in (("env", bool(server.env)), ("cwd", bool(server.cwd))):
        if is_set and not server.command:
            yield (
                (f"{section}.{setting_name}", command),
                f"requires {command}; it applies only to programs",
            )


def _find_unoffered_tools(section: str, server: ToolServer) -> Iterator[Contradiction]:
    for setting_name, tools in (("tools", server.tools), ("ask", server.ask)):
        if ALL in tools and len(tools) > 1:
            problem = 'contains "*" and names; "*" means all tools, so remove the names'
            yield (f"{section}.{setting_name}",), problem
    offered = {*server.tools, ALL} if server.tools else set()
    for tool in server.ask:
        if ALL not in server.tools and tool not in offered:
            problem = f"{tool!r} is not in {section}.tools; add it there"
            yield (f"{section}.ask", f"{section}.tools"), problem


def _check_hosted_tool(
    kind: str, target: str, servers: Mapping[str, ToolServer]
) -> Iterator[Contradiction]:
    server, _, tool = target.partition(".")
    if not tool:
        yield ("tools.hosted",), f"{kind}: {target!r} does not have the form SERVER.TOOL"
    elif server not in servers:
        similar = difflib.get_close_matches(server, servers, 1)
        hint = f"; did you mean {similar[0]!r}?" if similar else ""
        yield ("tools.hosted",), f"{kind}: section mcp.{server} does not exist{hint}"
    elif not {tool, ALL} & set(servers[server].tools):
        problem = f"{kind}: {tool!r} is not in mcp.{server}.tools; add it there"
        yield ("tools.hosted", f"mcp.{server}.tools"), problem
