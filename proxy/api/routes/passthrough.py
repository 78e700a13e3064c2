"""Passes requests through without guardrails, such as `POST /v1/embeddings` and `/v1/rerank`.

    {"model": "e5", "input": ["a text"]}    only `model` and `stream` are read

Like chats, these requests wait for a slot and end when their client disconnects. Requests and
responses are not changed. If Temper did not have these paths, a client that needs embeddings or
reranking would have to know the backend's address as well.
"""

import asyncio
import logging
from collections.abc import Awaitable
from contextlib import aclosing
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import ClassVar

from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Message

from proxy.api.client_connection import ClientConnection
from proxy.api.dialects import CHAT
from proxy.api.errors import describe, refuse
from proxy.api.request_reader import (
    RequestReader,
    begin_live_request,
    client_of,
    note_status,
    queue_key_of,
)
from proxy.api.streaming import Deadline, StreamTimeouts
from proxy.backends.client import PassthroughRequest, Pieces
from proxy.conversation import json
from proxy.dialects import sse
from proxy.dialects.raw_json import nodes_in, read_object
from proxy.errors import BackendReplyInvalid, TemperError
from proxy.observability.live_request import LiveRequest, RequestTarget
from proxy.observability.observers import Observers
from proxy.observability.record import CHAT_DIALECT
from proxy.serving.request_preparation import RequestPreparation
from proxy.serving.services import Service, load_wait

logger = logging.getLogger(__name__)

# by path: the field that the model reads, and whether the response can be a stream
PASSTHROUGH_PATHS = MappingProxyType(
    {
        "/v1/completions": ("prompt", True),
        "/v1/embeddings": ("input", False),
        # llama-server lacks /v2/rerank, and vLLM lacks the two `reranking` paths
        **dict.fromkeys(
            ("/v1/rerank", "/v2/rerank", "/rerank", "/v1/reranking", "/reranking"),
            ("documents", False),
        ),
        **dict.fromkeys(("/v1/score", "/score"), ("text_1", False)),
    }
)


@dataclass(frozen=True, slots=True)
class Relay:
    """Passes requests through to the same `path` at the backend of the requested model.

    A subclass may translate requests and responses.
    """

    dialect: ClassVar[str] = CHAT_DIALECT

    path: str
    reader: RequestReader
    preparation: RequestPreparation
    timeouts: StreamTimeouts
    process_count: int = 1
    observers: Observers = field(default_factory=Observers)

    def read(self, body: bytes) -> PassthroughRequest:
        """Read only the model and `stream`; raises `InvalidRequest`.

        `stream` is ignored at a path whose responses are never streamed, such as embeddings.
        """
        nodes, (text_field, may_stream) = (
            nodes_in(read_object(body), body),
            PASSTHROUGH_PATHS[self.path],
        )
        model, stream = nodes.word("model"), nodes.value("stream")
        fields = json.split_object(body)
        return PassthroughRequest(
            self.path, text_field, model, fields, stream=may_stream and stream is True
        )

    async def put(self, forwarded: PassthroughRequest, service: Service) -> PassthroughRequest:
        """Translate a client's request for the backend of a service."""
        del service
        return forwarded

    def write(
        self, request: PassthroughRequest, forwarded: PassthroughRequest, body: bytes
    ) -> bytes:
        """Translate the response to a client's `request`; raises ValueError if it is invalid."""
        del request, forwarded
        return body

    async def __call__(self, connection: ClientConnection) -> None:
        live = begin_live_request(connection, self.observers, self.dialect)
        try:
            client = client_of(connection.scope)
            request = await self.reader.read(connection, client, lambda body, _: self.read(body))
            await self._answer(request, connection, live)
        except ClientDisconnect:
            return
        except TemperError as error:
            await refuse(connection, error)
        except Exception:
            live.status = 500
            raise
        finally:
            note_status(live, connection)
            self.observers.take(live.record())

    async def _answer(
        self, request: PassthroughRequest, connection: ClientConnection, live: LiveRequest
    ) -> None:
        forwarded, service = self.preparation.relay(request)
        forwarded = await self.put(await service.choose_model(forwarded), service)
        backend = service.backend.name
        headers = {"x-temper-backend": backend}
        live.target = RequestTarget(forwarded.model, service.title, backend, forwarded.stream)
        parts = self._response_parts(forwarded, service, connection, live)

        async def work() -> None:
            if forwarded.stream:
                response = await self._stream(parts, backend, headers)
            else:
                async with Deadline(self.timeouts.deadline, backend):
                    body = b"".join([part async for part in parts])
                try:
                    body = self.write(request, forwarded, body)
                except ValueError as error:
                    raise BackendReplyInvalid(backend, "sent an invalid response", body) from error
                response = Response(body, 200, headers, "application/json")
            await response(connection.scope, _never, connection.send)

        async with aclosing(parts):  # ends the backend's work as soon as the client disconnects
            await connection.while_connected(work())

    async def _stream(self, parts: Pieces, backend: str, headers: dict[str, str]) -> Response:
        """Wait for the first part of the response, so that an early failure has its own status.

        If it does not arrive within `keep_alive` seconds, the stream begins without it.
        """
        first = asyncio.ensure_future(anext(parts, b""))
        try:
            await asyncio.wait((first,), timeout=self.timeouts.keep_alive)
            if first.done():
                first.result()
        except BaseException:
            first.cancel()
            await asyncio.wait((first,))  # a generator that still runs cannot be closed
            raise
        return EventSourceResponse(
            _relay_stream(first, parts, Deadline(self.timeouts.deadline, backend)),
            headers={"cache-control": "no-cache", **headers},
            sep="\n",
            ping=self.timeouts.keep_alive,
            ping_message_factory=_KeepAlive,
            shutdown_grace_period=self.timeouts.grace,
        )

    async def _response_parts(
        self,
        forwarded: PassthroughRequest,
        service: Service,
        connection: ClientConnection,
        live: LiveRequest,
    ) -> Pieces:
        """Stream the response once the model is loaded and has a slot."""
        load = self.observers.load(service.title)
        scope = connection.scope
        client = client_of(scope)
        upstream, key = self.reader.upstream_headers(scope), queue_key_of(client, scope)
        priority = self.preparation.priority_of(client)
        live.priority = priority.value
        with service.lease(key) as claim:
            if claim is not None:
                with live.wait_for_model(load):
                    async with load_wait(claim, self.timeouts.load_wait):
                        await claim.wait_until_granted()
            # the engine may report the number of slots only after it has loaded the model
            service.resize(await service.look_up(forwarded.model), self.process_count)
            live.wait(load)
            async with service.admission.slot(key, priority, live.number):
                live.admit(0.0)  # the tokens of a passthrough prompt are not counted
                with live.attempt(upstream) as headers:
                    async with aclosing(service.backend.relay(forwarded, headers)) as answer:
                        async for part in answer:
                            live.note_first_token()
                            yield part


async def _relay_stream(first: Awaitable[bytes], parts: Pieces, deadline: Deadline) -> Pieces:
    """Pass a stream through; a stream that fails ends with an error event."""
    try:
        async with deadline:
            part = await first
            while part:
                yield part
                part = await anext(parts, b"")
    except TemperError as error:
        yield _encode_error_event(error)
    except Exception:
        logger.exception("internal error in a passthrough stream; it was ended with an error event")
        yield _encode_error_event(TemperError())


async def _never() -> Message:
    """Serve as a `receive` without messages: the connection itself notices disconnects."""
    await asyncio.Event().wait()
    raise AssertionError


def _encode_error_event(error: TemperError) -> bytes:
    # the line break ends an event that the backend has left incomplete
    return b"\n" + sse.encode_data(CHAT.error(describe(error), "").body)


class _KeepAlive(ServerSentEvent):
    """An SSE comment without a blank line; a blank line would end an event that is being sent."""

    def encode(self) -> bytes:
        return b": the backend works\n"
