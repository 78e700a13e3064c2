"""Shares answers between replicas: requests with equal `Idempotency-Key` cause one generation.

`idempotency` uses this module only for keys that its own process does not know. If another replica
is generating the answer, the client gets the whole answer when it is complete. Until then, a client
that expects a stream gets SSE comments as keep-alives. If the store is down, answers are not
shared, and are marked with `x-temper-state: alone`.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec
from starlette.types import Message

from proxy.api.client_connection import ClientConnection, Endpoint
from proxy.api.edge import serve
from proxy.api.errors import refuse
from proxy.api.idempotency import ALONE, REPLAYED, is_shareable
from proxy.api.streaming import STREAM_HEADERS
from proxy.conversation import json
from proxy.dialects import sse
from proxy.dialects.lenient_json import as_object
from proxy.errors import KeyReused, StateUnavailable
from proxy.observability.record import CHAT_DIALECT
from proxy.state.claims import Claims, OwnClaim, StoredAnswer

logger = logging.getLogger(__name__)

_MOST_BYTES = 4 * 2**20  # a longer answer is not stored for other replicas
_LAST_SECONDS = 2.0  # seconds for background tasks when the replica stops
_KEEP_ALIVE = b": another replica is answering this request\n\n"

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class SharedAnswers:
    """Shares the answers of one dialect.

    A client that waits for a stream is sent a keep-alive every `silence` seconds; `silence` is None
    if the dialect has no comments. `background` stores answers and releases claims after the
    response.
    """

    claims: Claims
    language: str
    is_complete: Callable[[bytes], bool]
    silence: float | None
    background: "BackgroundTasks"

    def __call__(self, endpoint: Endpoint, name: tuple[str, str], fingerprint: bytes) -> Endpoint:
        """Return an endpoint that replays another replica's answer, or calls `endpoint`."""

        async def answer(connection: ClientConnection) -> None:
            request = await connection.receive()  # the whole body, see `SharedAnswer.begin`

            async def receive_again() -> Message:
                return received.pop() if received else await connection.receive()

            received = [request]
            body = request.get("body", b"")
            client = WaitingClient(connection, self.language, self.silence, body)
            inner = connection.wrap(receive_again, client.send)
            key = (self.language, *name)
            settling = self.claims.settle(key, fingerprint, lambda: not client.is_disconnected)
            match await self._settle(client, asyncio.ensure_future(settling)):
                case OwnClaim() as claim:
                    await self._answer_and_store(claim, endpoint, inner)
                case StoredAnswer() as answer:
                    logger.info(
                        "idempotency key: returning the response stored by replica %s",
                        answer.replica,
                    )
                    await client.replay(answer)
                case KeyReused() as error:
                    await refuse(inner, error)
                case StateUnavailable():
                    client.headers.append(ALONE)
                    await serve(endpoint, inner)
                case None:  # the client has disconnected
                    pass

        return answer

    async def _settle(
        self,
        client: "WaitingClient",
        settling: "asyncio.Future[OwnClaim | StoredAnswer | None]",
    ) -> OwnClaim | StoredAnswer | KeyReused | StateUnavailable | None:
        """Return the claim to a key or its stored answer; errors are returned, not raised.

        Returns None if the client has disconnected while it waited.
        """
        settled: OwnClaim | StoredAnswer | KeyReused | StateUnavailable | None = None

        async def settle() -> None:
            nonlocal settled
            try:
                settled = await client.wait_for(settling)
            except (KeyReused, StateUnavailable) as error:
                settled = error

        try:
            await client.connection.while_connected(settle())
            return settled
        finally:
            if settled is None:
                # the claim may still be granted, and would then block the key until it expires
                client.is_disconnected = True
                self.background.add(_release_abandoned(settling))

    async def _answer_and_store(
        self, claim: OwnClaim, endpoint: Endpoint, connection: ClientConnection
    ) -> None:
        """Answer, and store a successful answer for the other replicas."""
        messages: list[Message] = []

        async def record(message: Message) -> None:
            messages.append({**message})  # a copy, because `send` adds headers
            await connection.send(message)

        try:
            async with claim.hold():  # renews the claim, which expires if this replica is killed
                await serve(endpoint, connection.wrap(send=record))
        finally:
            body = b"".join(message.get("body", b"") for message in messages)
            if is_shareable(messages, self.is_complete) and len(body) <= _MOST_BYTES:
                self.background.add(claim.finish([*messages[0]["headers"]], body))
            else:
                self.background.add(claim.release())


@dataclass(slots=True)
class WaitingClient:
    """The connection to a client that waits for an answer; `headers` are added to the answer.

    A client that waits for a stream gets the head of the response after `silence` seconds. A later
    error is sent as an event, because the status was already sent.
    """

    connection: ClientConnection
    language: str
    silence: float | None
    body: bytes
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    is_disconnected: bool = False
    _has_begun: bool = False
    _has_failed: bool = False

    async def wait_for(self, work: "asyncio.Future[Result]") -> Result:
        """Wait for `work` without canceling it; a client of a stream gets keep-alives."""
        while not (await asyncio.wait((work,), timeout=self.silence))[0]:
            with suppress(msgspec.DecodeError):  # the endpoint refuses an invalid body
                if json.split_object(self.body).get("stream") == b"true":
                    if not self._has_begun:
                        self._has_begun = True
                        await self.connection.start(200, STREAM_HEADERS)
                    await self.connection.write(_KEEP_ALIVE)
        return work.result()

    async def replay(self, answer: StoredAnswer) -> None:
        self.headers.append(REPLAYED)
        await self.send({"type": "http.response.start", "status": 200, "headers": answer.headers})
        await self.send({"type": "http.response.body", "body": answer.body, "more_body": False})

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._has_failed = message["status"] != 200
            if not self._has_begun:
                sent = message["headers"]
                message["headers"] = [*sent, *(pair for pair in self.headers if pair not in sent)]
                await self.connection.send(message)
        elif self._has_begun and self._has_failed:
            event = _error_event(self.language, message.get("body", b""))
            await self.connection.send({**message, "body": event})
        else:
            await self.connection.send(message)


def _error_event(language: str, body: bytes) -> bytes:
    """Convert the body of an error response to the error event of the dialect's streams."""
    if language == CHAT_DIALECT:  # chunks of chat completions have no event names
        return sse.encode_data(body)
    if language == "responses":
        error = as_object(as_object(json.parse(body)).get("error"))
        members = {name: error.get(name) for name in ("code", "message", "param")}
        body = json.dump({"type": "error", **members, "sequence_number": 0})
    return b"event: error\n" + sse.encode_data(body)


class BackgroundTasks:
    """Tasks that outlive an answer; their failures are logged."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def add(self, work: Awaitable[object]) -> None:
        task = asyncio.ensure_future(_log_failure(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def drain(self) -> None:
        """Wait two seconds for all tasks, then cancel those that still run."""
        if self._tasks:
            _, unfinished = await asyncio.wait(self._tasks, timeout=_LAST_SECONDS)
            for task in unfinished:
                task.cancel()
            await asyncio.gather(*unfinished, return_exceptions=True)


async def _log_failure(work: Awaitable[object]) -> None:
    try:
        await work
    except StateUnavailable:
        logger.debug("idempotency key: a claim could not be released; it will expire")


async def _release_abandoned(settling: "asyncio.Future[OwnClaim | StoredAnswer | None]") -> None:
    """Release the claim to a key, because its client has disconnected."""
    with suppress(KeyReused):
        claim = await settling
        if isinstance(claim, OwnClaim):
            await claim.release()
