"""The interface of a backend."""

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from enum import Enum
from typing import Protocol, TypeAlias, TypeVar

import msgspec

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.replies import EventSink
from proxy.conversation.requests import UpstreamRequest

# re-exported, so that adapters import the whole contract from here
from proxy.inference.driver import ChatBackend as ChatBackend
from proxy.inference.driver import Headers as Headers
from proxy.inference.driver import ReplyEvents as ReplyEvents

Pieces: TypeAlias = AsyncGenerator[bytes, None]
# token ids, which Temper only compares; None if unknown
PromptTokens: TypeAlias = Sequence[JsonValue] | None


class Health(Enum):
    """The state of a backend; the order of the members is from best to worst."""

    READY = "ready"
    LOADING = "loading"
    UNREACHABLE = "unreachable"


def best_health(states: Iterable[Health]) -> Health:
    return min(states, key=[*Health].index, default=Health.UNREACHABLE)


@dataclass(frozen=True, slots=True)
class BackendModel:
    """A model that a backend serves; `details` is the backend's own entry for it."""

    id: str
    details: JsonObject


@dataclass(frozen=True, slots=True, kw_only=True)
class Abilities:
    """The abilities of a model on its backend, as far as the backend reports them.

    - `slots`: the number of parallel requests; None if unknown.
    - `window`: the tokens of one slot, prompt and answer together; None if unknown.
    - `senses`: the inputs besides text, "vision" or "audio".
    - `identity`: distinguishes the model from the other models of the backend.
    - `rejects_images`: True if the backend reports that the model does not accept images.
    - `lacks`: the features that the `engine` does not have or has refused, by the names of
      `capabilities.Capability`.
    - `honours`: the results of probes by their names.
    - `build`: identifies the build of the engine.
    """

    slots: int | None = None
    window: int | None = None
    senses: tuple[str, ...] = ()
    identity: str = ""
    rejects_images: bool = False
    engine: str = ""
    lacks: tuple[str, ...] = ()
    honours: Mapping[str, bool] = field(default_factory=dict)
    build: str = ""


@dataclass(frozen=True, slots=True)
class Description(Abilities):
    """A backend's description of a model.

    `names` are all names of the model; if the `identity` is "", the first name identifies the
    model. `architecture` is `general.architecture` in GGUF, and `template` is the chat template; ""
    if unknown. `takes_tools` is whether the model accepts tools, None if only the template shows
    this. `is_provisional` is True if the backend may report more in a moment, for example when it
    has loaded the model.
    """

    names: tuple[str, ...]
    architecture: str = ""
    template: str = ""
    _: KW_ONLY
    takes_tools: bool | None = None
    is_provisional: bool = False


class PassthroughRequest(msgspec.Struct, frozen=True):
    """A request that is forwarded unchanged: the path, and the raw members of its JSON body.

    `text_field` names the member with the input of the model. If it is "", the request has no such
    input (for example, a request for the list of models), and `model` is not replaced.
    """

    path: str
    text_field: str
    model: str
    fields: Mapping[str, bytes]
    stream: bool = False
    method: str = "POST"

    def body(self) -> bytes:
        """Write the body; every member keeps the client's bytes."""
        return json.join_object({**self.fields})


class Backend(ChatBackend, Protocol):
    """An engine that runs a model."""

    def relay(self, request: PassthroughRequest, headers: Headers) -> Pieces:
        """Forward a request with `headers`, and stream whole lines of the response."""

    async def count(self, upstream_request: UpstreamRequest, headers: Headers) -> int | None:
        """Return the number of tokens in a request's prompt; None if unknown, never raises."""

    async def count_texts(self, texts: Iterable[str], headers: Headers) -> tuple[int, ...] | None:
        """Return the number of tokens in each text; None if unknown, never raises."""

    async def prompt_tokens(
        self, upstream_request: UpstreamRequest, headers: Headers
    ) -> PromptTokens:
        """Return the token ids of a request's prompt; None if unknown, never raises."""

    async def models(self) -> tuple[BackendModel, ...]:
        """List the served models; raises BackendFailed."""

    async def describe(self, model: str) -> Description:
        """Describe the model that serves requests with this model name; never raises."""

    async def health(self) -> Health:
        """Return the backend's state; never raises."""


Part = TypeVar("Part")
Send: TypeAlias = Callable[[Backend], AsyncGenerator[Part, None]]


class DeferredBackend(ABC):
    """Forwards each call to another backend, which may not exist yet."""

    @abstractmethod
    def _stream(self, send: Send[Part]) -> AsyncGenerator[Part, None]:
        """Send to the backend as soon as it exists, and stream its response."""

    @abstractmethod
    async def _present(self) -> Backend | None:
        """Return the backend if it exists; never raises."""

    def stream(
        self, upstream_request: UpstreamRequest, headers: Headers, sink: EventSink | None = None
    ) -> ReplyEvents:
        return self._stream(lambda backend: backend.stream(upstream_request, headers, sink))

    def relay(self, request: PassthroughRequest, headers: Headers) -> Pieces:
        return self._stream(lambda backend: backend.relay(request, headers))

    async def count(self, upstream_request: UpstreamRequest, headers: Headers) -> int | None:
        backend = await self._present()
        return await backend.count(upstream_request, headers) if backend else None

    async def count_texts(self, texts: Iterable[str], headers: Headers) -> tuple[int, ...] | None:
        backend = await self._present()
        return await backend.count_texts(texts, headers) if backend else None

    async def prompt_tokens(
        self, upstream_request: UpstreamRequest, headers: Headers
    ) -> PromptTokens:
        backend = await self._present()
        return await backend.prompt_tokens(upstream_request, headers) if backend else None
