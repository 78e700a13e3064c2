"""Calls that wait for approval by a person.

A request waits in `ask` until the dashboard calls `answer`, or until a time limit. When the request
itself is canceled, its call is removed from the waiting calls.
"""

import asyncio
import logging
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

import msgspec

from proxy.conversation.json import JsonObject
from proxy.mcp.definitions import ServedTool
from proxy.mcp.specification import ToolCallResult
from proxy.observability.rows import PendingCall
from proxy.observability.sentences import escape, visible_json
from proxy.shares import find_displaced
from proxy.tools.executor import Status

logger = logging.getLogger(__name__)

MOST_PENDING = 100  # a person cannot decide about more calls before their time limit
_REFUSED = "Error: a person refused this call; it was not made"
_UNANSWERED = "Error: this call needs the consent of a person, and got no answer; it was not made"


class Decision(Enum):
    """The decision about a call."""

    ALLOWED = "allowed"
    REFUSED = "refused"
    UNANSWERED = "unanswered"

    @property
    def refusal(self) -> ToolCallResult | None:
        """The result that the model receives for a refused call; None for an allowed call."""
        if self is Decision.ALLOWED:
            return None
        text = _REFUSED if self is Decision.REFUSED else _UNANSWERED
        return ToolCallResult(text, Status.REFUSED, self.value)


@dataclass(frozen=True, slots=True)
class Requester:
    """The origin of a call: the owner of the API key, the dashboard row, and the request id."""

    client: str = ""
    request: str = ""
    request_id: str = ""


@dataclass(frozen=True, slots=True)
class _WaitingCall:
    """A call that waits for `answer`, at most until the time `until` of the clock."""

    call: PendingCall
    until: float
    answer: asyncio.Future[bool]


@dataclass(eq=False, slots=True)
class Confirmations:
    """All calls of one process that wait for approval.

    `number` increases with every change, so that the dashboard's feed notices the change.
    At most `most` calls wait. When this limit is reached, a new call of a client with few waiting
    calls displaces the newest call of the client with the most waiting calls.
    """

    clock: Callable[[], float] = time.monotonic
    most: int = MOST_PENDING
    number: int = 0
    _open: dict[str, _WaitingCall] = field(default_factory=dict)

    @property
    def pending(self) -> tuple[PendingCall, ...]:
        now = self.clock()
        return tuple(
            msgspec.structs.replace(
                waiting.call, seconds_left=round(max(0.0, waiting.until - now), 1)
            )
            for waiting in self._open.values()
        )

    def answer(self, name: str, *, allow: bool, decided_by: str) -> bool:
        """Decide about a call; returns False if the call is no longer waiting."""
        waiting = self._remove(name)
        if waiting is None:
            return False
        waiting.answer.set_result(allow)
        call, decided = waiting.call, "allowed" if allow else "refused"
        logger.info("a call of %s.%s was %s by %s", call.server, call.tool, decided, decided_by)
        return True

    async def ask(
        self, tool: ServedTool, arguments: JsonObject, requester: Requester, seconds: float
    ) -> Decision:
        """Wait for the decision of a person, at most `seconds`."""
        if len(self._open) >= self.most and not self._displace(escape(requester.client)):
            logger.warning(
                "%d calls are already waiting for approval; the next call is refused", self.most
            )
            return Decision.UNANSWERED
        upstream_name, shown_arguments = escape(tool.upstream_name), visible_json(arguments)
        name = secrets.token_hex(8)  # unguessable, so that a client cannot approve its own call
        call = PendingCall(
            name,
            tool.server,
            upstream_name,
            shown_arguments,
            escape(requester.client),
            requester.request,
            seconds,
        )
        answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._open[name] = _WaitingCall(call, self.clock() + seconds, answer)
        self.number += 1
        tool_name = f"{call.server}.{call.tool}"
        template = "a call of %s is waiting for approval at /ui (request %s)"
        logger.info(template, tool_name, requester.request_id)
        try:
            await asyncio.wait((answer,), timeout=seconds)
        finally:
            self._remove(name)  # also if the request was canceled: its call will not be executed
        if not answer.done() or answer.cancelled():
            logger.info("%s: no decision in time; the call is refused", tool_name)
            return Decision.UNANSWERED
        return Decision.ALLOWED if answer.result() else Decision.REFUSED

    def _displace(self, client: str) -> bool:
        """Refuse the newest call of the client with the most waiting calls.

        Returns False if no other client has more waiting calls than `client` with its new call.
        """
        waiting = [*self._open.items()]
        displaced = find_displaced([call.call.client for _, call in waiting], client)
        if displaced is None:
            return False
        name, waiting_call = waiting[displaced]
        self._remove(name)
        return waiting_call.answer.cancel()

    def _remove(self, name: str) -> _WaitingCall | None:
        if (removed := self._open.pop(name, None)) is not None:
            self.number += 1
        return removed


@dataclass(slots=True)
class RequestConfirmations:
    """The decisions about the calls of one request; equal calls share one decision."""

    confirmations: Confirmations
    requester: Requester
    seconds: float
    _decided: dict[bytes, Decision] = field(default_factory=dict)
    _locks: dict[bytes, asyncio.Lock] = field(default_factory=dict)

    async def ask(self, tool: ServedTool, arguments: JsonObject) -> Decision:
        """Return the earlier decision about an equal call, or else wait for a new decision."""
        identity = (tool.server, tool.upstream_name, arguments)
        key = msgspec.json.encode(identity, order="deterministic")
        # equal calls of one reply wait for the same decision
        async with self._locks.setdefault(key, asyncio.Lock()):
            if key not in self._decided:
                self._decided[key] = await self.confirmations.ask(
                    tool, arguments, self.requester, self.seconds
                )
            return self._decided[key]
