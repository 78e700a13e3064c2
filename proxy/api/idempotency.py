"""One generation for each `Idempotency-Key`: a repeated request gets the same answer.

    request with `Idempotency-Key: 5c1d`     generates the answer
    the same request again                   gets the same answer, even while it is being generated,
                                             with the header `Idempotent-Replayed: true`
    another body with the same key           422

A separate task produces the answer, and all clients follow it, including the first client. If a
client disconnects, the other clients still get the whole answer. If all clients have disconnected,
the task receives a disconnect, and the key can be used again. The key can also be used again after
an error, because clients retry after errors.

Requests are handled as bytes and answers as ASGI messages, independent of their content. Answers
are stored in this process. Another worker does not know the key, unless workers share answers
(`shared_answers`).
"""

import asyncio
import hashlib
import logging
import re
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field
from typing import TypeAlias

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.types import Message, Scope

from proxy.api.client_connection import ClientConnection, Endpoint, headers_of
from proxy.api.dialects import Sharing
from proxy.api.edge import IDEMPOTENCY_KEY, serve
from proxy.api.errors import refuse
from proxy.api.request_reader import BodyLimits, read_body
from proxy.errors import InvalidRequest, KeyReused, TemperError
from proxy.shares import find_excess

logger = logging.getLogger(__name__)

_KEY = re.compile(r"[!-~]{1,255}")
_OPTIONS = b"x-temper-"  # headers that change an answer
REPLAYED = (b"idempotent-replayed", b"true")
ALONE = (b"x-temper-state", b"alone")
_MOST_UNREAD = 64 * 1024  # bytes that may be generated before the fastest client has read them

Clock: TypeAlias = Callable[[], float]
IsComplete: TypeAlias = Callable[[bytes], bool]  # whether a stream with this end is complete
Name: TypeAlias = tuple[str, str]  # the owner, and the idempotency key


@dataclass(frozen=True, slots=True)
class RetentionLimits:
    """Limits of the stored answers: their age, their number, and their bytes."""

    seconds: float = 300.0
    answers: int = 1000
    bytes_of_one: int = 4 * 2**20
    bytes_of_all: int = 32 * 2**20


@dataclass(eq=False, slots=True)
class _Follower:
    """A client that follows an answer; counts the messages and bytes that were sent to it."""

    messages: int = 0
    size: int = 0


@dataclass(eq=False, slots=True)
class SharedAnswer:
    """The answer to one request, while it is produced and afterwards."""

    fingerprint: bytes
    request_id: str
    is_complete: IsComplete
    size: int = 0
    ended_at: float | None = None
    _messages: list[Message] = field(default_factory=list)
    _followers: list[_Follower] = field(default_factory=list)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _abandoned: asyncio.Event = field(default_factory=asyncio.Event)
    _making: asyncio.Task[None] | None = None

    @property
    def is_shareable_now(self) -> bool:
        """True if another client may receive the answer.

        An abandoned answer is incomplete. An error is not repeated, because clients retry with the
        same key.
        """
        is_good = self.ended_at is None or is_shareable(self._messages, self.is_complete)
        return is_good and not self._abandoned.is_set()

    def begin(self, endpoint: Endpoint, scope: Scope, body: bytes, clock: Clock) -> None:
        """Produce the answer while clients follow it; the first client must follow immediately."""
        requests: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> Message:
            if requests:
                return requests.pop()
            await self._abandoned.wait()
            return {"type": "http.disconnect"}

        async def make() -> None:
            try:
                # the endpoint must not write directly to the wire of one client
                detached = {**scope, "extensions": {}}
                await serve(endpoint, ClientConnection(detached, receive, self._append))
            finally:
                self.ended_at = clock()
                self._notify()

        self._making = asyncio.create_task(make())

    async def follow(self, connection: ClientConnection) -> None:
        """Send the whole answer to a connected client; raises the errors of the endpoint."""
        making = self._making
        assert making is not None  # noqa: S101 - it has begun
        with self._count_follower() as follower:
            try:
                await connection.while_connected(self._pass_on(follower, connection))
            except asyncio.CancelledError:  # the server stops, so the generation ends as well
                if not making.cancelling():
                    making.cancel()
                await self._pass_on(follower, connection)
                raise
        if self._abandoned.is_set():
            await asyncio.wait((making,))
        if making.done():
            making.result()

    async def _append(self, message: Message) -> None:
        """Store a message; wait while no client reads, so that the backend is read slowly, too."""
        self._messages.append(message)
        self.size += len(message.get("body", b""))
        self._notify()
        while self._followers:
            if self.size - max(follower.size for follower in self._followers) <= _MOST_UNREAD:
                return
            await self._changed.wait()

    @contextmanager
    def _count_follower(self) -> Generator[_Follower, None, None]:
        """Count a client while the block runs; when no client is left, the answer is abandoned."""
        follower = _Follower()
        self._followers.append(follower)
        try:
            yield follower
        finally:
            self._followers.remove(follower)
            if not self._followers and self.ended_at is None:
                self._abandoned.set()
            self._notify()

    async def _pass_on(self, follower: _Follower, connection: ClientConnection) -> None:
        while True:
            while follower.messages < len(self._messages):
                message = self._messages[follower.messages]
                await connection.send({**message})  # a copy, because `send` adds headers
                follower.messages += 1
                follower.size += len(message.get("body", b""))
                self._notify()
            if self.ended_at is not None:
                return
            await self._changed.wait()

    def _notify(self) -> None:
        """Wake all waiting tasks; the new event is for their next wait."""
        self._changed.set()
        self._changed = asyncio.Event()


@dataclass(eq=False, slots=True)
class Idempotency:
    """An endpoint that answers each idempotency key once; see the module."""

    endpoint: Endpoint
    limits: BodyLimits
    is_complete: IsComplete
    memory: RetentionLimits = field(default_factory=RetentionLimits)
    _: KW_ONLY
    clock: Clock = time.monotonic
    sharing: Sharing | None = None
    _answers: dict[Name, SharedAnswer] = field(default_factory=dict)

    async def __call__(self, connection: ClientConnection) -> None:
        try:
            name = _name_of(connection)
            body = await read_body(connection.scope, connection.receive, self.limits)
            shared, is_known = self._find(name, connection.scope, body)
        except ClientDisconnect:
            return
        except TemperError as error:
            await refuse(connection, error)
            return
        if is_known:
            connection.own_headers.append(REPLAYED)
        try:
            await shared.follow(connection)
        finally:
            self._drop_expired()
        if connection.has_begun and not connection.is_over:
            # the generation failed; the client must not take the incomplete answer for complete
            connection.break_off()

    def _find(self, name: Name, scope: Scope, body: bytes) -> tuple[SharedAnswer, bool]:
        """Return the answer to a request, and whether it existed; otherwise, begin a new answer."""
        self._drop_expired()
        request_id = scope["state"]["request_id"]
        # two requests share an answer only if their bodies and options are equal
        options = sorted(pair for pair in scope["headers"] if pair[0].startswith(_OPTIONS))
        fingerprint = hashlib.sha256(repr(options).encode() + b"\n" + body).digest()
        known = self._answers.get(name)
        if known is None:
            begun = self._answers[name] = SharedAnswer(fingerprint, request_id, self.is_complete)
            endpoint, sharing = self.endpoint, self.sharing
            if sharing is not None:
                endpoint = sharing(endpoint, name, fingerprint)
            begun.begin(endpoint, scope, body, self.clock)
            return begun, False
        if known.fingerprint != fingerprint:
            raise KeyReused
        logger.info("%s: idempotency key: sending the response to %s", request_id, known.request_id)
        return known, True

    def _drop_expired(self) -> None:
        """Drop answers that failed, are too old or exceed an owner's share."""
        memory, now = self.memory, self.clock()

        def should_keep(answer: SharedAnswer) -> bool:
            ended = answer.ended_at
            is_recent = ended is None or now - ended <= memory.seconds
            is_small = ended is None or answer.size <= memory.bytes_of_one
            return answer.is_shareable_now and is_recent and is_small

        remaining = {name: answer for name, answer in self._answers.items() if should_keep(answer)}
        # unfinished answers are not counted, because the number of connections limits them
        ended = [
            (name, name[0], answer.size)
            for name, answer in remaining.items()
            if answer.ended_at is not None
        ]
        for name in find_excess(ended, memory.answers, memory.bytes_of_all):
            del remaining[name]
        self._answers = remaining


def is_shareable(messages: Sequence[Message], is_complete: IsComplete) -> bool:
    """Return whether a finished answer may be repeated: it is complete and has status 200.

    A stream that failed also has status 200, so its last bytes show whether it is complete.
    """
    if not messages or messages[0]["status"] != 200:
        return False
    headers, last = Headers(raw=messages[0]["headers"]), messages[-1]
    is_stream = not headers["content-type"].startswith("application/json")
    return not last.get("more_body", False) and (not is_stream or is_complete(last["body"]))


def _name_of(connection: ClientConnection) -> Name:
    """Return the owner and the idempotency key; raises `InvalidRequest` for a malformed key."""
    headers = headers_of(connection.scope)
    key = headers[IDEMPOTENCY_KEY]
    if not _KEY.fullmatch(key):
        raise InvalidRequest("Use 1 to 255 visible ASCII characters.", IDEMPOTENCY_KEY)
    # If Temper has no API keys, clients are distinguished by the backend key that they send.
    credentials = headers.get("authorization", headers.get("x-api-key", ""))
    return connection.owner or credentials, key
