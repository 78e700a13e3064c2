"""Opens what replicas share, before the languages that need it are made.

Without `state.url` nothing is shared or imported.
"""

import os
import socket
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

from proxy.api.fronts import Fronts, all_fronts
from proxy.api.response_keeping import open_response_store
from proxy.dialects.front import Front
from proxy.dialects.openai_responses.store import ResponseStore
from proxy.errors import InvalidConfiguration
from proxy.observability.observers import Observers
from proxy.settings import Settings
from proxy.state.memory_responses import Bounds, MemoryStore

if TYPE_CHECKING:
    from proxy.api.shared_answers import BackgroundTasks, SharedAnswers
    from proxy.state.claims import Claims
    from proxy.state.sealing import Sealing
    from proxy.state.shared_responses import SharedResponses
    from proxy.state.valkey import ValkeyStore

_NAMESPACE = "temper"


@dataclass(frozen=True, slots=True)
class SharedState:
    """An open store, and what uses it."""

    store: "ValkeyStore"
    sealing: "Sealing"
    claims: "Claims"
    background: "BackgroundTasks"
    observers: Observers

    def answers(self, front: Front, silence: float) -> "SharedAnswers":
        """Share answers in a language."""
        from proxy.api.shared_answers import SharedAnswers

        return SharedAnswers(self.claims, front.name, front.is_complete, silence, self.background)

    def responses(self, bounds: Bounds, alone: MemoryStore) -> "SharedResponses":
        """Share responses; those that the store refuses are kept in `alone`."""
        from proxy.state.shared_responses import SharedResponses

        return SharedResponses(
            self.store,
            self.sealing,
            alone,
            bounds,
            is_usable=lambda: self.store.is_usable,
            on_loss=self.observers.count_unstored,
        )

    def shares(self, store: ResponseStore | None) -> "Callable[[], bool] | None":
        from proxy.state.shared_responses import SharedResponses

        return store.is_usable if isinstance(store, SharedResponses) else None


@asynccontextmanager
async def open_fronts(settings: Settings, observers: Observers) -> AsyncGenerator[Fronts]:
    """Open the languages that clients speak, with their stores.

    Raises `InvalidConfiguration`.
    """
    async with _open_state(settings, observers) as state:
        share = state.responses if state is not None else None
        with open_response_store(settings, observers.count_unstored, share) as kept:
            yield all_fronts(kept, state)


def examine_state(settings: Settings) -> None:
    """Find out whether a store could be used, without asking it; raises `InvalidConfiguration`."""
    if settings.state.url is None:
        return
    try:
        import proxy.state.sealing
        import proxy.state.valkey  # noqa: F401 - what is tried
    except ImportError as missing:
        problem = "needs Valkey's client: pip install 'temper-proxy[state]'"
        raise InvalidConfiguration("state.url", problem) from missing


@asynccontextmanager
async def _open_state(
    settings: Settings, observers: Observers
) -> AsyncGenerator[SharedState | None]:
    examine_state(settings)
    own = settings.state
    if own.url is None:
        yield None
        return
    from proxy.api.shared_answers import BackgroundTasks
    from proxy.state.claims import Claims
    from proxy.state.sealing import Sealing
    from proxy.state.valkey import open_valkey

    url = own.url.get_secret_value()
    namespace = parse_qs(urlsplit(url).query).get("namespace", [_NAMESPACE])[-1]
    sealing = Sealing(own.secrets, namespace)
    replica = f"{socket.gethostname()}:{os.getpid()}"
    async with open_valkey(url, own.timeout_ms / 1000, observers) as store:
        background = BackgroundTasks()
        claims = Claims(store, sealing, replica)
        try:
            yield SharedState(store, sealing, claims, background, observers)
        finally:
            await background.drain()
