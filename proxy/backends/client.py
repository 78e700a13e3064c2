"""The contract of a backend, for the rest of Temper."""

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from enum import Enum
from typing import Protocol, TypeAlias, TypeVar

import msgspec

from proxy.conversation import json
from proxy.conversation.json import JsonObject
from proxy.conversation.replies import EventSink, ReplyEvent
from proxy.conversation.requests import UpstreamRequest

# Events that arrive together stay in one batch: a batch costs the same whatever its size.
ReplyEvents: TypeAlias = AsyncGenerator[Sequence[ReplyEvent], None]
Pieces: TypeAlias = AsyncGenerator[bytes, None]
Headers: TypeAlias = dict[str, str]  # their names are lower case


class Health(Enum):
    """The state of a backend."""

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
    """What a model on its backend can do, as far as the backend says.

    `slots` is how many requests run at once, `window` the tokens of one slot, prompt and answer
    together; None if unknown. `senses` are its inputs besides text, "vision" or "audio"; `is_blind`
    means that the backend rules out pictures. `identity` distinguishes the model from the backend's
    others. `lacks` are the features that the `engine` does not have or has refused, from a closed
    list, and `honours` what its answers have shown, by the names of probes; `build` is whatever
    tells one build of it from another.
    """

    slots: int | None = None
    window: int | None = None
    senses: tuple[str, ...] = ()
    identity: str = ""
    is_blind: bool = False
    engine: str = ""
    lacks: tuple[str, ...] = ()
    honours: Mapping[str, bool] = field(default_factory=dict)
    build: str = ""


@dataclass(frozen=True, slots=True)
class Description(Abilities):
    """What a backend tells of the model behind a name; its `identity` may be "" for its first name.

    `names` are all names of the model, `architecture` is GGUF's name of its kind, `template` its
    chat template; "" if unknown. `takes_tools` says whether the model accepts tools, None if only
    the template can tell. `is_provisional` means that more may be known soon.
    """

    names: tuple[str, ...]
    architecture: str = ""
    template: str = ""
    _: KW_ONLY
    takes_tools: bool | None = None
    is_provisional: bool = False


class PassthroughRequest(msgspec.Struct, frozen=True):
    """A request that is forwarded unchanged: the path, and the raw members of its JSON body.

    `text_field` names the member that the model reads, "" where none reads anything: such a request
    is about models, and is never addressed to another one.
    """

    path: str
    text_field: str
    model: str
    fields: Mapping[str, bytes]
    stream: bool = False
    method: str = "POST"

    def body(self) -> bytes:
        """Write the body; every member is as the client wrote it."""
        return json.join_object({**self.fields})


class ChatBackend(Protocol):
    """What a turn needs of a backend.

    Every method raises only `BackendFailed` and `InvalidRequest` kinds of errors. Closing an
    iterator cancels the work upstream at once, or where the engine notices.
    """

    @property
    def name(self) -> str:
        """The address shown in headers, logs and errors, without credentials."""

    def stream(
        self, upstream_request: UpstreamRequest, headers: Headers, sink: EventSink | None = None
    ) -> ReplyEvents:
        """Send a question with `headers`, and stream the reply in batches.

        No batch is empty; the last one ends with `ReplyFinished` or `ReplyUnreadable`. Content
        that `sink` takes is in no batch; without a sink the caller sees the whole reply.
        """


class Backend(ChatBackend, Protocol):
    """An engine that runs a model."""

    def relay(self, request: PassthroughRequest, headers: Headers) -> Pieces:
        """Forward a request with `headers`, and stream whole lines of its answer."""

    async def count(self, upstream_request: UpstreamRequest, headers: Headers) -> int | None:
        """Return the tokens of a question's prompt; None if unknown, never raises."""

    async def count_texts(self, texts: Iterable[str], headers: Headers) -> tuple[int, ...] | None:
        """Return the tokens of each text on its own; None if unknown, never raises."""

    async def models(self) -> tuple[BackendModel, ...]:
        """List the models it serves."""

    async def describe(self, model: str) -> Description:
        """Describe the model that a request names; never raises."""

    async def health(self) -> Health:
        """Return the backend's state; never raises."""


Part = TypeVar("Part")
Put: TypeAlias = Callable[[Backend], AsyncGenerator[Part, None]]


class BackendWrapper:
    """Asks another backend under its name; subclasses say how."""

    def __init__(self, backend: ChatBackend) -> None:
        self._backend = backend

    @property
    def name(self) -> str:
        return self._backend.name


class LateBackend(ABC):
    """Stands for another backend, which may not be there yet."""

    @abstractmethod
    def _stream(self, put: Put[Part]) -> AsyncGenerator[Part, None]:
        """Stream what the backend answers as soon as it is there."""

    @abstractmethod
    async def _present(self) -> Backend | None:
        """Return the backend if it is there; never raises."""

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
