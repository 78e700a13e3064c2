"""One tool server: its owner task connects and reconnects, and requests call its tools.

A call is sent at most once. If the connection ends during a call, the result says that it is
unknown whether the call had an effect. During a restart, new calls wait for a few seconds.
"""

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import cast

import mcp_types as types
from mcp import Client, MCPError
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from pydantic import ValidationError

from proxy.conversation import json
from proxy.conversation.json import JsonObject
from proxy.mcp.connecting import connect, list_tools
from proxy.mcp.definitions import Definition, Selection, ServedTool, find_changed_tools, select
from proxy.mcp.specification import (
    DISCONNECTED,
    LOST,
    TOOL_WITHDRAWN,
    UNREACHABLE,
    CallLimits,
    ServerSpec,
    ToolCallResult,
)
from proxy.processes.process import LogTail
from proxy.processes.restarts import RestartPolicy, Restarts, RestartState
from proxy.tools.executor import Status
from proxy.tools.results import DONE, cut, failure


def text_of(result: types.CallToolResult, longest: int) -> str:
    """Return a result as text of at most `longest` characters.

    Images, audio and files are replaced by a line such as `[image: image/png, 1024 bytes; not
    shown]`. If a result has only structured content, the content is written as JSON. A failure
    starts with `Error:`.
    """
    text = "\n".join(map(_part, result.content))
    if not result.content and result.structured_content is not None:
        text = json.dump_text(result.structured_content)
    if result.is_error:
        text = text if text.startswith("Error") else failure(text or "the tool failed")
    return cut(text or DONE, longest)


def _part(part: types.ContentBlock) -> str:
    match part:
        case types.TextContent():
            return part.text
        case types.ImageContent() | types.AudioContent():
            return f"[{part.type}: {part.mime_type}, {_size(part.data)}; not shown]"
        case types.ResourceLink():
            return _line("link", part.name, part.uri, part.mime_type)
        case types.EmbeddedResource(resource=types.TextResourceContents() as resource):
            return resource.text
        case types.EmbeddedResource(resource=resource):
            size = _size(resource.blob) if isinstance(resource, types.BlobResourceContents) else ""
            return _line("file", resource.uri, resource.mime_type, size, "not shown")


def _line(kind: str, *parts: object) -> str:
    return f"[{kind}: {', '.join(str(part) for part in parts if part)}]"


def _size(base64: str) -> str:
    return f"{len(base64) * 3 // 4} bytes"


logger = logging.getLogger(__name__)

_LAST_LINES = 3
_INVALID_RESULT = "Error: the tool server sent an invalid result"


@dataclass(frozen=True, slots=True)
class ServerTimeouts:
    """Timeouts in seconds; only tests change them."""

    start: float = 30.0
    call: float = 5.0  # how long a call waits for a restart
    restarts: RestartPolicy = field(default_factory=RestartPolicy)
    clock: Callable[[], float] = time.monotonic
    send: float = 5.0  # for sending a call; the SDK has no timeout for this


class McpServer:
    """A tool server; its owner task connects to it again after each failure, until `stop`."""

    def __init__(self, spec: ServerSpec, timeouts: ServerTimeouts | None = None) -> None:
        self.spec = spec
        self.definitions: tuple[Definition, ...] = ()
        self.protocol = ""
        self.problem = ""
        self._timeouts = timeouts or ServerTimeouts()
        self._restarts = Restarts(self._timeouts.restarts)
        self._tail = LogTail()
        self._selection: Selection | None = None
        self._withdrawn: frozenset[str] = frozenset()
        self._client: Client | None = None
        self._is_stopping = False
        self._is_down = False
        self._is_closing = False
        self._lost = asyncio.Event()
        self._lost_by = ""  # the violation because of which the connection was closed
        self._settled = asyncio.Event()  # set while the server is ready, and while it is down
        self._calls = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._owner = asyncio.create_task(self._supervise(), name=f"owner of {spec.name}")

    def stop(self) -> None:
        """Request the end of the owner task; `wait_closed` waits until it has ended."""
        if self._is_stopping:
            return  # canceling the owner while it stops the program would leave the program running
        self._is_stopping = True
        self._lost.set()
        if self._client is None and not self._is_closing:
            self._owner.cancel()  # it is starting the server, or waiting for the next start

    async def retire(self) -> None:
        """Wait for the running calls, which have time limits, and then end the server."""
        await self._idle.wait()
        self.stop()
        await self.wait_closed()

    def accept(self) -> None:
        """Offer all tools with their current definitions, including withdrawn tools."""
        if self._selection is not None:
            self._select()

    async def wait_closed(self) -> None:
        await asyncio.wait({self._owner})

    @property
    def state(self) -> RestartState:
        return RestartState.DOWN if self._is_down else self._restarts.state

    @property
    def tools(self) -> tuple[ServedTool, ...] | None:
        """The offered tools; None before the server has listed its tools, and while it is down."""
        if self._selection is None or self._is_down:
            return None
        return tuple(
            tool for tool in self._selection.tools if tool.tool.name not in self._withdrawn
        )

    @property
    def log(self) -> tuple[str, ...]:
        """The last lines that a program wrote to its standard error."""
        return self._tail.lines

    async def wait_settled(self, seconds: float) -> bool:
        """Wait until the server is ready or down; return whether it is ready."""
        try:
            async with asyncio.timeout(seconds):
                await self._settled.wait()
        except TimeoutError:
            return False
        return self._client is not None

    async def call(
        self,
        name: str,
        arguments: JsonObject,
        limits: CallLimits,
        meta: JsonObject,
        *,
        digest: str = "",
    ) -> ToolCallResult:
        """Call the tool that is offered as `name`, once; a failure is a result, not an exception.

        With a `digest`, the tool is called only if its definition still has this digest.
        """
        self._calls += 1  # `retire` waits for running calls after a reload of the settings
        self._idle.clear()
        try:
            await self.wait_settled(self._timeouts.call)
            client = self._client
            if client is None:
                return ToolCallResult(UNREACHABLE, Status.FAILED, "unreachable", is_counted=False)
            tool = next(
                (offered for offered in self.tools or () if offered.tool.name == name), None
            )
            if tool is None or (digest and tool.digest != digest):
                return TOOL_WITHDRAWN
            result = client.call_tool(
                tool.upstream_name,
                arguments,
                read_timeout_seconds=limits.seconds,
                meta=cast("types.RequestParamsMeta", meta) if meta else None,
            )
            return await self._await_result(result, limits)
        finally:
            self._calls -= 1
            if not self._calls:
                self._idle.set()

    async def _await_result(
        self, arriving: Awaitable[types.CallToolResult], limits: CallLimits
    ) -> ToolCallResult:
        try:
            async with asyncio.timeout(limits.seconds + self._timeouts.send):
                result = await arriving
        except MCPError as error:
            return self._as_failure(error, limits)
        except TimeoutError:
            return _timed_out(limits)
        except (ValidationError, RuntimeError, ValueError) as error:
            logger.debug("tool server %s violated the protocol: %s", self.spec.name, error)
            return ToolCallResult(_INVALID_RESULT, Status.FAILED, type(error).__name__)
        text = text_of(result, limits.result_chars)
        return (
            ToolCallResult(text, Status.FAILED, "tool_error")
            if result.is_error
            else ToolCallResult(text)
        )

    def _as_failure(self, error: MCPError, limits: CallLimits) -> ToolCallResult:
        # in protocol versions before 2026, HTTP servers have sessions, which end at a restart
        has_session = self.spec.url is not None and self.protocol in HANDSHAKE_PROTOCOL_VERSIONS
        match error.code:
            case types.REQUEST_TIMEOUT:
                return _timed_out(limits)
            case types.CONNECTION_CLOSED:
                text = DISCONNECTED.format(self._lost_by) if self._lost_by else LOST
                return ToolCallResult(text, Status.LOST, "connection_closed", is_counted=False)
            case types.INVALID_REQUEST if has_session:
                self._lost.set()  # the owner task reconnects and thereby gets a new session
                return ToolCallResult(UNREACHABLE, Status.FAILED, "session", is_counted=False)
            case code:
                text = cut(f"Error: {error.message}", limits.result_chars)
                return ToolCallResult(text, Status.FAILED, str(code))

    async def _supervise(self) -> None:
        try:
            while not self._is_stopping:
                self._restarts.begin()
                problem = await self._serve()
                if not self._is_stopping:
                    await self._wait(problem)
        finally:
            self._restarts.stop()
            self._settled.set()

    async def _serve(self) -> str:
        """Connect, list the tools and wait for the end; return the reason for the end."""
        self._lost.clear()
        self._lost_by = ""
        limit = asyncio.timeout(self._timeouts.start)

        def close() -> None:
            """Prevent that `stop` or the time limit cancels this task from now on."""
            self._is_closing = True
            if not limit.expired():
                limit.reschedule(None)

        try:
            async with limit, connect(self.spec, self._tail, self._lose, close) as client:
                try:
                    self._update_definitions(await list_tools(client))
                    limit.reschedule(None)
                    self._become_ready(client)
                    await self._lost.wait()
                finally:
                    self._is_closing = True
                    if self._client is not None:
                        self._client = None
                        self._settled.clear()
            return self._ending or "ended"
        except TimeoutError:
            return f"did not list its tools within {self._timeouts.start:g} seconds"
        except Exception as error:  # noqa: BLE001 - the SDK raises groups of arbitrary exceptions
            return self._ending or f"cannot be used: {_describe_error(error)}"
        finally:
            self._is_closing = False

    def _lose(self, problem: str) -> None:
        self._lost_by = self._lost_by or problem
        self._lost.set()

    @property
    def _ending(self) -> str:
        return f"was disconnected: it {self._lost_by}" if self._lost_by else ""

    async def _wait(self, problem: str) -> None:
        """Wait until the next start is due; wait forever if there is none.

        After repeated failures, a program is not started again. A connection to an address is
        retried without end, because others run the server there and may restart it at any time. But
        if the server flooded the connection, it is not retried.
        """
        # jitter, so that servers that failed together do not restart together
        chance = random.random()  # noqa: S311 - not for security
        delay = self._restarts.fail(self._timeouts.clock(), chance)
        self._is_down = self._is_down or delay is None
        last = " | ".join(self._tail.lines[-_LAST_LINES:])
        self.problem = f"{problem}; end of its log: {last}" if last else problem
        if delay is None:
            logger.error(
                "tool server %s %s; giving up after repeated failures", self.spec.name, self.problem
            )
            self._settled.set()
            self._restarts.stop()
            is_final = self.spec.command or self._lost_by
            delay = None if is_final else self._timeouts.restarts.longest_delay
        else:
            template = "tool server %s %s; restarting in %.1f s"
            logger.warning(template, self.spec.name, self.problem, delay)
        with suppress(TimeoutError):
            async with asyncio.timeout(delay):
                await asyncio.Event().wait()  # until the delay is over, or `stop` cancels the task

    def _update_definitions(self, listed: Sequence[types.Tool]) -> None:
        """Store the definitions; withdraw tools whose definition changed since the first start."""
        self.definitions = tuple(map(_definition, listed))
        if self._selection is None:
            self._select()
            return
        # The operator has not reviewed the new definitions, which may contain a prompt injection.
        # They are offered only after a reload of the settings (decision 0023).
        changed = find_changed_tools(self._selection.tools, self.definitions) - self._withdrawn
        self._withdrawn |= changed
        for name in sorted(changed):
            template = "tool server %s changed the definition of %r: the tool is withdrawn"
            logger.warning(template, self.spec.name, name)

    def _select(self) -> None:
        selection = self._selection = select(self.definitions, self.spec)
        self._withdrawn = frozenset()
        for warning in selection.warnings:
            logger.warning("tool server %s %s", self.spec.name, warning)

    def _become_ready(self, client: Client) -> None:
        if self._is_stopping:
            self._lost.set()
        self._client, self.protocol = client, client.protocol_version
        self._is_down, self.problem = False, ""
        self._restarts.become_ready(self._timeouts.clock())
        self._settled.set()


def _timed_out(limits: CallLimits) -> ToolCallResult:
    text = f"Error: no result within {limits.seconds:g} seconds; the call was cancelled"
    return ToolCallResult(text, Status.TIMED_OUT, "timeout")


def _definition(tool: types.Tool) -> Definition:
    hints = tool.annotations
    parameters = json.parse(json.dump_text(tool.input_schema))
    assert isinstance(parameters, dict)  # noqa: S101 - the SDK has checked it
    is_read_only = hints is not None and hints.read_only_hint is True
    return Definition(tool.name, tool.description or "", parameters, is_read_only)


def _describe_error(error: BaseException) -> str:
    """Return one line about an exception, or about the first exception of a group."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    first, *_ = str(error).splitlines() or [""]
    return f"{type(error).__name__}: {first}".rstrip(": ")
