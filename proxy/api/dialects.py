"""The API dialects, and the one table of their paths."""

import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from types import MappingProxyType
from typing import Protocol, TypeAlias

from proxy.api.client_connection import Endpoint
from proxy.dialects.anthropic_messages.models import MessagesCatalogue
from proxy.dialects.dialect import Catalogue, Dialect, IdsAndClock
from proxy.dialects.openai_chat.dialect import ChatCatalogue, ChatDialect
from proxy.dialects.openai_responses.store import ResponseStore
from proxy.state.memory_responses import MemoryStore

STAMP = IdsAndClock(time.time, lambda: secrets.token_hex(12))
CHAT = ChatDialect(STAMP)
_CATALOGUE = ChatCatalogue()
_NO_HEADERS: Mapping[str, str] = MappingProxyType({})


# Wraps an endpoint. Replicas then share its answer to requests with the same idempotency key and
# fingerprint.
Sharing: TypeAlias = Callable[[Endpoint, tuple[str, str], bytes], Endpoint]


class WrittenStore(ResponseStore, Protocol):
    """A store of responses that writes asynchronously."""

    async def flush(self) -> None:
        """Wait until all stored responses are in the file, or visible to other replicas."""


@dataclass(frozen=True)
class DialectRoute:
    """An API dialect with its `paths`, and its path for counting tokens, if any.

    Errors of all paths `below` this folder are written in the dialect, too. With `takes_any_type`,
    the content type of a body is not checked, unless a browser sent it. With `has_documents`, PDFs
    in requests are replaced by their text; it is False for chat completions, which are sent
    upstream unchanged. `make` creates the dialect at its first request, because most clients use
    one dialect, and each dialect takes start time and memory.

    Some paths, such as the list of models, belong to all dialects. There, a `header` identifies the
    clients of this dialect, and its `catalogue` formats the list of models. If answers are stored
    in a `written_store` (a file, or a store that replicas share), an answer ends only after it was
    written; `is_shared` returns whether replicas currently share answers.
    """

    make: Callable[[], Dialect]
    paths: tuple[str, ...]
    count_path: str = ""
    header: str = ""
    catalogue: Catalogue | None = None
    written_store: WrittenStore | None = None
    is_shared: Callable[[], bool] | None = None
    below: str = ""
    takes_any_type: bool = False
    has_documents: bool = True

    @cached_property
    def dialect(self) -> Dialect:
        return self.make()


class Dialects:
    """All dialects; the first dialect serves requests whose path and headers match no dialect.

    Responses are stored in the `store`, if there is one. `share(dialect, seconds)` returns a
    function that lets replicas share the answers of a dialect. A client that waits for another
    replica is sent a keep-alive after this many seconds.
    """

    def __init__(
        self,
        *routes: DialectRoute,
        store: ResponseStore | None = None,
        share: Callable[[Dialect, float], Sharing] | None = None,
    ) -> None:
        self.store = store
        self.share = share
        self._routes = routes

    def __iter__(self) -> Iterator[DialectRoute]:
        return iter(self._routes)

    def of(self, path: str, headers: Mapping[str, str] = _NO_HEADERS) -> Dialect:
        """Return the dialect of a path or of its folder; otherwise, the dialect of a header."""
        for route in self._routes:
            if path.startswith(route.paths) or (route.below and path.startswith(route.below)):
                return route.dialect
        return self._route_of_client(headers).dialect

    def catalogue(self, headers: Mapping[str, str]) -> Catalogue:
        """Return the model-list format for the client identified by these headers."""
        return self._route_of_client(headers).catalogue or _CATALOGUE

    def _route_of_client(self, headers: Mapping[str, str]) -> DialectRoute:
        known = (route for route in self._routes if route.header and route.header in headers)
        return next(known, self._routes[0])


def all_dialects(
    store: MemoryStore | WrittenStore | None = None,
    share: Callable[[Dialect, float], Sharing] | None = None,
    is_shared: Callable[[], bool] | None = None,
) -> Dialects:
    """Return every dialect; without a `store` no response is stored."""

    def messages() -> Dialect:
        from proxy.dialects.anthropic_messages.dialect import MessagesDialect

        return MessagesDialect(STAMP)

    def responses() -> Dialect:
        from proxy.dialects.openai_responses.dialect import ResponsesDialect

        return ResponsesDialect(STAMP, store)

    def ollama(*, is_text: bool) -> Dialect:
        from proxy.dialects.ollama_chat.downstream.dialect import OllamaDialect

        return OllamaDialect(STAMP, is_text)

    chat = ("/v1/chat/completions", "/chat/completions")
    count, version = "/v1/messages/count_tokens", "anthropic-version"
    inputs = "/v1/responses/input_tokens"
    # a store in memory is written immediately, so no answer has to wait for it
    durable = None if isinstance(store, MemoryStore) else store
    return Dialects(
        # chat completions can have PDFs only in `file` parts, which are sent upstream unchanged
        DialectRoute(lambda: CHAT, chat, "/v1/chat/completions/input_tokens", has_documents=False),
        DialectRoute(messages, ("/v1/messages",), count, version, MessagesCatalogue()),
        DialectRoute(
            responses, ("/v1/responses",), inputs, written_store=durable, is_shared=is_shared
        ),
        DialectRoute(partial(ollama, is_text=True), ("/api/generate",), takes_any_type=True),
        DialectRoute(
            partial(ollama, is_text=False), ("/api/chat",), below="/api/", takes_any_type=True
        ),
        store=store,
        share=share,
    )
