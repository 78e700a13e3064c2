"""Opens the configured store of responses, and delays an answer's end until it is stored.

The store is memory, a file, a store that replicas share, or none. An answer ends only when it is
stored, so that its client can continue from it at once, on any replica.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias, Union

from starlette.types import Message

from proxy.api.client_connection import ClientConnection, Endpoint
from proxy.api.edge import serve
from proxy.api.fronts import FrontRoute, WrittenStore
from proxy.conversation import json
from proxy.settings import Settings
from proxy.state.memory_responses import Bounds, MemoryStore

if TYPE_CHECKING:  # each is imported where it is used
    from proxy.state.responses_file import ResponsesFile
    from proxy.state.shared_responses import SharedResponses

Kept: TypeAlias = Union[MemoryStore, "ResponsesFile", "SharedResponses", None]

REFERENCES = (b'"previous_response_id"', b'"item_reference"', b"\\u00")
"""What stands in a request that cannot be read without what was kept, also if it is escaped."""

ALONE = (b"x-temper-state", b"alone")


@contextmanager
def open_response_store(
    settings: Settings,
    on_loss: Callable[[str], None] = lambda _reason: None,
    share: "Callable[[Bounds, MemoryStore], SharedResponses] | None" = None,
) -> Iterator[Kept]:
    """Open what keeps responses, None where nothing does; raises `InvalidConfiguration`.

    Several workers need a file or a shared store (`share`), because any of them may get the next
    request. `on_loss` is called from any thread with the reason that a response was not stored.
    """
    kept = settings.responses
    bounds = Bounds(kept.store_responses, kept.store_bytes, kept.store_seconds)
    if kept.path is not None:
        from proxy.state.responses_file import open_responses

        with open_responses(kept.path, bounds, on_loss) as file:
            yield file
    elif kept.store == "off":
        yield None
    elif share is not None:
        yield share(bounds, MemoryStore(time.monotonic, bounds))
    elif settings.server.workers > 1:
        yield None
    else:
        yield MemoryStore(time.monotonic, bounds)


def examine_keeping(settings: Settings) -> None:
    """Find out whether a file could be opened; raises `InvalidConfiguration`."""
    if settings.responses.path is not None:
        from proxy.state.responses_file import examine_responses

        examine_responses(settings.responses.path)


def keep_answers(route: FrontRoute, endpoint: Endpoint) -> Endpoint:
    """Delay the end of an answer until its route has stored it, if it stores responses."""
    if route.file is not None:
        endpoint = WaitForWriting(endpoint, route.file)
    return endpoint if route.is_shared is None else TellWhenAlone(endpoint, route.is_shared)


@dataclass(frozen=True, slots=True)
class WaitForWriting:
    """Ends an answer when its response has been written to the `file`."""

    endpoint: Endpoint
    file: WrittenStore

    async def __call__(self, connection: ClientConnection) -> None:
        async def send_when_written(message: Message) -> None:
            if message["type"] == "http.response.body" and not message.get("more_body", False):
                await self.file.flush()
            await connection.send(message)

        await serve(self.endpoint, connection.behind(send=send_when_written))


@dataclass(frozen=True, slots=True)
class TellWhenAlone:
    """Says of an answer that it is kept by this replica only, unless `is_shared`.

    A stream begins before it is stored; for a whole answer the result is known.
    """

    endpoint: Endpoint
    is_shared: Callable[[], bool]

    async def __call__(self, connection: ClientConnection) -> None:
        answer = _TellingAnswer(connection, self.is_shared)
        await serve(self.endpoint, connection.behind(answer.receive, answer.send))


@dataclass(slots=True)
class _TellingAnswer:
    """One request and its answer, the head of which waits for the body unless it is a stream's."""

    connection: ClientConnection
    is_shared: Callable[[], bool]
    _pieces: list[bytes] = field(default_factory=list)
    _head: Message | None = None

    async def receive(self) -> Message:
        """Receive a part of the request; it counts where its answer is not shared."""
        message = await self.connection.receive()
        if not self.is_shared():
            self._pieces.append(message.get("body", b""))
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._head = message
            if not _is_stream(message):
                return
        if (head := self._head) is not None:
            self._head = None
            if not self.is_shared() and head["status"] == 200 and _is_stored(self._pieces):
                head["headers"] = [*head["headers"], ALONE]
            await self.connection.send(head)
        if message is not head:
            await self.connection.send(message)


def _is_stream(start: Message) -> bool:
    return (b"content-type", b"text/event-stream; charset=utf-8") in start["headers"]


def _is_stored(pieces: Sequence[bytes]) -> bool:
    """Whether an answer to a request is kept; one that was not seen, or is wrong, may be."""
    try:
        return json.split_object(b"".join(pieces)).get("store") != b"false"
    except ValueError:
        return True
