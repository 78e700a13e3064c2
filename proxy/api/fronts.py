"""The languages that clients speak, and the one table of the paths at which each is spoken."""

import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Protocol

from proxy.api.client_connection import Endpoint
from proxy.dialects.anthropic_messages.models import MessagesCatalogue
from proxy.dialects.front import Catalogue, Front, IdsAndClock
from proxy.dialects.openai_chat.front import ChatCatalogue, ChatFront
from proxy.dialects.openai_responses.store import ResponseStore
from proxy.state.memory_responses import MemoryStore

STAMP = IdsAndClock(time.time, lambda: secrets.token_hex(12))
CHAT = ChatFront(STAMP)
_CATALOGUE = ChatCatalogue()
_NO_HEADERS: Mapping[str, str] = MappingProxyType({})


class Sharing(Protocol):
    """Answers requests with a key together with other replicas."""

    def around(self, endpoint: Endpoint, name: tuple[str, str], fingerprint: bytes) -> Endpoint:
        """Return what answers this request: another replica's answer, or `endpoint`."""


class ReplicaState(Protocol):
    """What replicas share that depends on a language."""

    def answers(self, front: Front, silence: float) -> Sharing:
        """Share answers in a language; clients get a sign of life after `silence` seconds."""

    def shares(self, store: ResponseStore | None) -> Callable[[], bool] | None:
        """Return what tells whether what is kept in a store is shared now; None if never."""


class WrittenStore(ResponseStore, Protocol):
    """A store of responses that takes a while to keep one."""

    async def flush(self) -> None:
        """Wait until everything that was kept is there for others."""


@dataclass(frozen=True)
class FrontRoute:
    """A language, the `paths` that answer in it, and the one that only counts tokens, if any.

    It is made on its first request, because most clients speak one language and each language costs
    start time and memory.

    At paths that all languages share, such as the list of models, its clients are known by a
    `header` that only they send; their `catalogue` lists models. Where a `file`, or a store that
    replicas share, keeps answers, they end when they have been written there; `is_shared` tells
    whether replicas share them now.
    """

    make: Callable[[], Front]
    paths: tuple[str, ...]
    count_path: str = ""
    header: str = ""
    catalogue: Catalogue | None = None
    file: WrittenStore | None = None
    is_shared: Callable[[], bool] | None = None

    @cached_property
    def front(self) -> Front:
        """What reads and writes the language."""
        return self.make()


class Fronts:
    """All languages in use; the first one answers requests that show none by path or header.

    Responses are kept in the `store`, if there is one. `state` is what replicas share.
    """

    def __init__(
        self,
        *routes: FrontRoute,
        store: ResponseStore | None = None,
        state: ReplicaState | None = None,
    ) -> None:
        self.store = store
        self._state = state
        self._routes = routes

    def __iter__(self) -> Iterator[FrontRoute]:
        return iter(self._routes)

    def of(self, path: str, headers: Mapping[str, str] = _NO_HEADERS) -> Front:
        """Return the language of a path, or of what lies below one; else that of the client."""
        for route in self._routes:
            if path.startswith(route.paths):
                return route.front
        return self._route_of_client(headers).front

    def sharing(self, front: Front, silence: float) -> Sharing | None:
        """Return what shares the answers to keyed requests; None if nothing is shared.

        Waiting clients get a sign of life after `silence` seconds.
        """
        return None if self._state is None else self._state.answers(front, silence)

    def catalogue(self, headers: Mapping[str, str]) -> Catalogue:
        """Return what lists models to whoever sends such headers."""
        return self._route_of_client(headers).catalogue or _CATALOGUE

    def _route_of_client(self, headers: Mapping[str, str]) -> FrontRoute:
        known = (route for route in self._routes if route.header and route.header in headers)
        return next(known, self._routes[0])


def all_fronts(
    store: MemoryStore | WrittenStore | None = None, state: ReplicaState | None = None
) -> Fronts:
    """Return every language there is; without a `store` no response is kept."""

    def responses() -> Front:
        from proxy.dialects.openai_responses.front import ResponsesFront

        return ResponsesFront(STAMP, store)

    chat = ("/v1/chat/completions", "/chat/completions")
    return Fronts(
        FrontRoute(lambda: CHAT, chat, "/v1/chat/completions/input_tokens"),
        FrontRoute(
            _messages,
            ("/v1/messages",),
            "/v1/messages/count_tokens",
            "anthropic-version",
            MessagesCatalogue(),
        ),
        FrontRoute(
            responses,
            ("/v1/responses",),
            "/v1/responses/input_tokens",
            file=None if isinstance(store, MemoryStore) else store,
            is_shared=None if state is None else state.shares(store),
        ),
        store=store,
        state=state,
    )


def _messages() -> Front:
    from proxy.dialects.anthropic_messages.front import MessagesFront

    return MessagesFront(STAMP)
