"""Calls that wait for the consent of a person: each is asked about once, and answered once.

The request waits here; the transport of the question and of the answer is not known here. A request
that is canceled while it waits withdraws its question.
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
from proxy.mcp.specification import Ended
from proxy.observability.rows import PendingCall
from proxy.observability.sentences import escape, visible_json
from proxy.shares import find_displaced
from proxy.tools.executor import Status

logger = logging.getLogger(__name__)

MOST_PENDING = 100  # more cannot be read before they time out
_REFUSED = "Error: a person refused this call; it was not made"
_UNANSWERED = "Error: this call needs the consent of a person, and got no answer; it was not made"


class Decision(Enum):
    """The result of a question."""

    ALLOWED = "allowed"
    REFUSED = "refused"
    UNANSWERED = "unanswered"

    @property
    def refusal(self) -> Ended | None:
        """The result for the model of a call that was not allowed; None if it may be made."""
        if self is Decision.ALLOWED:
            return None
        text = _REFUSED if self is Decision.REFUSED else _UNANSWERED
        return Ended(text, Status.REFUSED, self.value)


@dataclass(frozen=True, slots=True)
class Requester:
    """The origin of a call: the owner of the key, the row of the request, and its id."""

    client: str = ""
    request: str = ""
    request_id: str = ""


@dataclass(frozen=True, slots=True)
class _WaitingCall:
    """A call that waits until a moment of the clock."""

    call: PendingCall
    until: float
    answer: asyncio.Future[bool]


@dataclass(eq=False, slots=True)
class Confirmations:
    """All calls of one process that wait for a person; `number` increases with every change.

    At most `most` calls wait, as many as a person can read. Beyond that, a call of a client with
    few waiting calls displaces the newest call of the client with the most.
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

    def answer(self, name: str, *, allow: bool, who: str) -> bool:
        """Answer a question; False if it is already decided or withdrawn."""
        question = self._forget(name)
        if question is None:
            return False
        question.answer.set_result(allow)
        call, decided = question.call, "allowed" if allow else "refused"
        logger.info("a call of %s.%s was %s by %s", call.server, call.tool, decided, who)
        return True

    async def ask(
        self, tool: ServedTool, arguments: JsonObject, of: Requester, seconds: float
    ) -> Decision:
        """Wait for the decision of a person, at most `seconds`."""
        if len(self._open) >= self.most and not self._displace(escape(of.client)):
            logger.warning(
                "%d calls are already waiting for approval; the next call is refused", self.most
            )
            return Decision.UNANSWERED
        own_name, shown_arguments = escape(tool.own_name), visible_json(arguments)
        name = secrets.token_hex(8)  # unguessable, so an answer cannot reach another call
        call = PendingCall(
            name, tool.server, own_name, shown_arguments, escape(of.client), of.request, seconds
        )
        answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._open[name] = _WaitingCall(call, self.clock() + seconds, answer)
        self.number += 1
        tool_name = f"{call.server}.{call.tool}"
        template = "a call of %s is waiting for approval at /ui (request %s)"
        logger.info(template, tool_name, of.request_id)
        try:
            await asyncio.wait((answer,), timeout=seconds)
        finally:
            self._forget(name)  # also if the request was canceled: nobody would run the call
        if not answer.done() or answer.cancelled():
            logger.info("%s: no decision in time; the call is refused", tool_name)
            return Decision.UNANSWERED
        return Decision.ALLOWED if answer.result() else Decision.REFUSED

    def _displace(self, client: str) -> bool:
        """Withdraw the newest call of the client with the most; False if no client has more."""
        waiting = [*self._open.items()]
        displaced = find_displaced([call.call.client for _, call in waiting], client)
        if displaced is None:
            return False
        name, waiting_call = waiting[displaced]
        self._forget(name)
        return waiting_call.answer.cancel()

    def _forget(self, name: str) -> _WaitingCall | None:
        if (forgotten := self._open.pop(name, None)) is not None:
            self.number += 1
        return forgotten


@dataclass(slots=True)
class RequestConfirmations:
    """The decisions about the calls of one request; they hold for repeated calls."""

    confirmations: Confirmations
    requester: Requester
    seconds: float
    _decided: dict[bytes, Decision] = field(default_factory=dict)
    _locks: dict[bytes, asyncio.Lock] = field(default_factory=dict)

    async def ask(self, tool: ServedTool, arguments: JsonObject) -> Decision:
        """Have a person decide about a call, unless the same call is already decided."""
        identity = (tool.server, tool.own_name, arguments)
        key = msgspec.json.encode(identity, order="deterministic")
        # Equal calls of one reply share a question.
        async with self._locks.setdefault(key, asyncio.Lock()):
            if key not in self._decided:
                asking = self.confirmations.ask(tool, arguments, self.requester, self.seconds)
                self._decided[key] = await asking
            return self._decided[key]
