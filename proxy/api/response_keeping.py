"""Opens the shared state and the store of responses, and delays answers until they are stored.

The store of responses is in memory, in a file, or shared by replicas; there may also be no store.
An answer ends only when it is stored, so that the client's next request can refer to it at once, on
any replica. Without the setting `state.url`, nothing is shared, and the modules of the shared store
are not imported.
"""

import os
import socket
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, TypeAlias, Union
from urllib.parse import parse_qs, urlsplit

from starlette.types import Message

from proxy.api.client_connection import ClientConnection, Endpoint
from proxy.api.dialects import DialectRoute, Dialects, WrittenStore, all_dialects
from proxy.api.edge import serve
from proxy.api.idempotency import ALONE
from proxy.conversation import json
from proxy.dialects import sse
from proxy.dialects.dialect import Dialect
from proxy.errors import InvalidConfiguration
from proxy.observability.observers import Observers
from proxy.settings import Settings
from proxy.state.memory_responses import Bounds, MemoryStore

if TYPE_CHECKING:  # at runtime, each of these is imported only where it is used
    from proxy.state.responses_file import ResponsesFile
    from proxy.state.shared_responses import SharedResponses

Kept: TypeAlias = Union[MemoryStore, "ResponsesFile", "SharedResponses", None]

# A request with one of these marks refers to stored items. JSON may escape a letter of the names,
# for example as `\u0070`; `\u00` covers this case.
REFERENCES = (b'"previous_response_id"', b'"item_reference"', b"\\u00")

_STREAM = (b"content-type", sse.MEDIA_TYPE.encode())


@contextmanager
def open_response_store(
    settings: Settings,
    on_loss: Callable[[str], None] = lambda _reason: None,
    share: "Callable[[Bounds, MemoryStore], SharedResponses] | None" = None,
) -> Iterator[Kept]:
    """Open the configured store of responses; None if there is no store.

    Several workers need a file or a shared store (`share`), because any worker may get the next
    request. `on_loss` is called from any thread with the reason why a response was not stored.
    Raises `InvalidConfiguration`.
    """
    section = settings.responses
    bounds = Bounds(section.store_responses, section.store_bytes, section.store_seconds)
    if section.path is not None:
        from proxy.state.responses_file import open_responses

        with open_responses(section.path, bounds, on_loss) as file:
            yield file
    elif section.store == "off":
        yield None
    elif share is not None:
        yield share(bounds, MemoryStore(time.monotonic, bounds))
    elif settings.server.workers > 1:
        yield None  # a store in memory is useless: most requests would reach another worker
    else:
        yield MemoryStore(time.monotonic, bounds)


def examine_keeping(settings: Settings) -> None:
    """Check that the file of responses can be opened; raises `InvalidConfiguration`."""
    if settings.responses.path is not None:
        from proxy.state.responses_file import examine_responses

        examine_responses(settings.responses.path)


def keep_answers(route: DialectRoute, endpoint: Endpoint) -> Endpoint:
    """Return an endpoint whose answers end only after they are stored, if the route stores them.

    With a shared store, an answer is marked if only this replica could store it.
    """
    if route.written_store is not None:
        endpoint = wait_for_writing(endpoint, route.written_store)
    return endpoint if route.is_shared is None else mark_unshared_answers(endpoint, route.is_shared)


def wait_for_writing(endpoint: Endpoint, store: WrittenStore) -> Endpoint:
    """Delay the end of an answer until its response has been written to the `store`."""

    async def answer(connection: ClientConnection) -> None:
        async def send(message: Message) -> None:
            if message["type"] == "http.response.body" and not message.get("more_body", False):
                await store.flush()
            await connection.send(message)

        await serve(endpoint, connection.wrap(send=send))

    return answer


def mark_unshared_answers(endpoint: Endpoint, is_shared: Callable[[], bool]) -> Endpoint:
    """Mark an answer that only this replica has stored, because `is_shared` returned False.

        x-temper-state: alone

    The mark is a header. The head of a stream is sent before the answer is stored, so its mark says
    whether answers were shared at that time. The head of a whole answer is sent after the answer
    was stored.
    """

    async def answer(connection: ClientConnection) -> None:
        body_parts: list[bytes] = []  # of a request whose answer is not shared
        head: Message | None = None  # the head of a whole answer, delayed until it is stored

        async def receive() -> Message:
            message = await connection.receive()
            if not is_shared():
                body_parts.append(message.get("body", b""))
            return message

        async def send(message: Message) -> None:
            nonlocal head
            is_start = message["type"] == "http.response.start"
            if is_start and _STREAM not in message["headers"]:
                head = message
                return
            delayed_head, head = head, None
            start = message if is_start else delayed_head
            needs_no_mark = start is None or start["status"] != 200 or is_shared()
            if start is not None and not needs_no_mark and _is_stored(body_parts):
                start["headers"] = [*start["headers"], ALONE]
            if delayed_head is not None:
                await connection.send(delayed_head)
            await connection.send(message)

        await serve(endpoint, connection.wrap(receive, send))

    return answer


def _is_stored(body_parts: Sequence[bytes]) -> bool:
    """Return whether the answer to a request may be stored: not if the request's `store` is false.

    For a body that is not JSON, the result is True.
    """
    try:
        return json.split_object(b"".join(body_parts)).get("store") != b"false"
    except ValueError:
        return True


@asynccontextmanager
async def open_dialects(settings: Settings, observers: Observers) -> AsyncGenerator[Dialects]:
    """Open the API dialects and their stores; raises `InvalidConfiguration`."""
    examine_state(settings)
    if settings.state.url is None:
        with open_response_store(settings, observers.count_unstored) as store:
            yield all_dialects(store)
    else:
        url = settings.state.url.get_secret_value()
        async with _open_shared_dialects(settings, url, observers) as dialects:
            yield dialects


def examine_state(settings: Settings) -> None:
    """Check that the library for the shared store is installed; raises `InvalidConfiguration`.

    The store itself may be unreachable. In this case, Temper starts, and uses the store later.
    """
    if settings.state.url is None:
        return
    try:
        import proxy.state.sealing
        import proxy.state.valkey  # noqa: F401 - imports the extra's libraries
    except ImportError as missing:
        problem = "needs Valkey's client: pip install 'temper-proxy[state]'"
        raise InvalidConfiguration("state.url", problem) from missing


@asynccontextmanager
async def _open_shared_dialects(
    settings: Settings, url: str, observers: Observers
) -> AsyncGenerator[Dialects]:
    from proxy.api.shared_answers import BackgroundTasks, SharedAnswers
    from proxy.state.claims import Claims
    from proxy.state.sealing import Sealing
    from proxy.state.shared_responses import SharedResponses
    from proxy.state.valkey import open_valkey

    on_loss = observers.count_unstored
    namespace = parse_qs(urlsplit(url).query).get("namespace", ["temper"])[-1]
    sealing = Sealing(settings.state.secrets, namespace)
    replica = f"{socket.gethostname()}:{os.getpid()}"
    async with open_valkey(url, settings.state.timeout_ms / 1000, observers) as store:
        background, claims = BackgroundTasks(), Claims(store, sealing, replica)

        def share(dialect: Dialect, silence: float) -> SharedAnswers:
            is_sse = dialect.stream_type == sse.MEDIA_TYPE  # JSON lines have no comments
            keep_alive = silence if is_sse else None
            return SharedAnswers(claims, dialect.name, dialect.is_complete, keep_alive, background)

        def responses(bounds: Bounds, local: MemoryStore) -> SharedResponses:
            return SharedResponses(
                store, sealing, local, bounds, is_usable=lambda: store.is_usable, on_loss=on_loss
            )

        try:
            with open_response_store(settings, on_loss, responses) as response_store:
                is_shared = (
                    response_store.is_usable
                    if isinstance(response_store, SharedResponses)
                    else None
                )
                yield all_dialects(response_store, share, is_shared)
        finally:
            await background.drain()
