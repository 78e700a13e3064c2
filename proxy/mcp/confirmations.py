"""Calls that wait for a person's yes: each is asked once, answered once, and then forgotten.

Whoever asks waits here; whoever answers, and how they were asked, is not known. Who goes while
waiting takes the question along.
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

MOST_PENDING = 100
_REFUSED = "Error: a person refused this call; it was not made"
_UNANSWERED = "Error: nobody answered whether this call may be made; it was not made"


class Decision(Enum):
    """What came of a question."""

    ALLOWED = "allowed"
    REFUSED = "refused"
    UNANSWERED = "unanswered"

    @property
    def refusal(self) -> Ended | None:
        """What the model gets in place of a result; None if the call may be made."""
        if self is Decision.ALLOWED:
            return None
        text = _REFUSED if self is Decision.REFUSED else _UNANSWERED
        return Ended(text, Status.REFUSED, self.value)


@dataclass(frozen=True, slots=True)
class Requester:
    """Who wants a call: the owner of a key, the row of the request, and the request's own id."""

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
    """All calls of one process that wait for a person; `number` grows with every change.

    No more than `most` wait, which is as many as a person can read; then a call of a client with
    few of them takes the place of the newest of the client with the most.
    """

    clock: Callable[[], float] = time.monotonic
    most: int = MOST_PENDING
    number: int = 0
    _open: dict[str, _WaitingCall] = field(default_factory=dict)

    @property
    def pending(self) -> tuple[PendingCall, ...]:
        now = self.clock()
        return tuple(
            msgspec.structs.replace(one.call, seconds_left=round(max(0.0, one.until - now), 1))
            for one in self._open.values()
        )

    def answer(self, name: str, *, allow: bool, who: str) -> bool:
        """Answer a question; False where it is decided, or nobody waits for the answer any more."""
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
        """Wait until a person has decided, for at most so many `seconds`."""
        if len(self._open) >= self.most and not self._displace(escape(of.client)):
            logger.warning("%d calls wait for a person: no other one may", self.most)
            return Decision.UNANSWERED
        own_name, said = escape(tool.own_name), visible_json(arguments)
        name = secrets.token_hex(8)  # an answer that was meant for another call finds none
        call = PendingCall(
            name, tool.server, own_name, said, escape(of.client), of.request, seconds
        )
        answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._open[name] = _WaitingCall(call, self.clock() + seconds, answer)
        self.number += 1
        tool_name = f"{call.server}.{call.tool}"
        told = "a call of %s waits for a person's yes at /ui, asked by %s"
        logger.info(told, tool_name, of.request_id)
        try:
            await asyncio.wait((answer,), timeout=seconds)
        finally:
            self._forget(name)
        if not answer.done() or answer.cancelled():
            logger.info("nobody answered whether %s may be called", tool_name)
            return Decision.UNANSWERED
        return Decision.ALLOWED if answer.result() else Decision.REFUSED

    def _displace(self, client: str) -> bool:
        """Give up the newest call of the client with the most; report whether one had more."""
        waiting = [*self._open.items()]
        displaced = find_displaced([one.call.client for _, one in waiting], client)
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
    """What a person said to the calls of one request: it holds for the same call again."""

    confirmations: Confirmations
    requester: Requester
    seconds: float
    _decided: dict[bytes, Decision] = field(default_factory=dict)
    _locks: dict[bytes, asyncio.Lock] = field(default_factory=dict)

    async def ask(self, tool: ServedTool, arguments: JsonObject) -> Decision:
        """Have a person decide, unless one has."""
        said = (tool.server, tool.own_name, arguments)
        key = msgspec.json.encode(said, order="deterministic")
        async with self._locks.setdefault(key, asyncio.Lock()):  # two of one reply are one question
            if key not in self._decided:
                asking = self.confirmations.ask(tool, arguments, self.requester, self.seconds)
                self._decided[key] = await asking
            return self._decided[key]
