"""What the rest of Temper needs of a backend, whatever it is and wherever it runs."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol, TypeAlias

import msgspec

from proxy.conversation import json
from proxy.conversation.json import JsonObject
from proxy.conversation.replies import EventSink, ReplyEvent
from proxy.conversation.requests import Question

# What came together stays together: every batch costs the same, however much is in it.
ReplyEvents: TypeAlias = AsyncGenerator[Sequence[ReplyEvent], None]
Pieces: TypeAlias = AsyncGenerator[bytes, None]


class Health(Enum):
    """How a backend feels."""

    READY = "ready"
    LOADING = "loading"
    UNREACHABLE = "unreachable"


@dataclass(frozen=True, slots=True)
class BackendModel:
    """A model that a backend serves; `details` is the backend's own entry for it."""

    id: str
    details: JsonObject


@dataclass(frozen=True, slots=True)
class Description:
    """What a backend tells of the model behind a name.

    `names` are all that the model goes by, `architecture` is GGUF's word for its kind, `template`
    its chat template; "" where the backend keeps silent. `slots` counts the requests that it works
    on at once, `window` the tokens that one of them has room for, prompt and answer together; None
    where nobody knows. `takes_tools` reports whether tools can be offered to it as such, None where
    only the template tells. `senses` are what it takes beside text, "vision" or "audio"; a backend
    says of one that `is_blind` that it takes no pictures. With `is_provisional` there may be more
    to know in a moment. Its `identity` tells it from the other models of the backend, where that is
    not its first name. `lacks` are what the `engine` is known not to have, or has refused: words of
    a closed list.
    """

    names: tuple[str, ...]
    architecture: str = ""
    template: str = ""
    slots: int | None = None
    window: int | None = None
    is_provisional: bool = False
    takes_tools: bool | None = None
    senses: tuple[str, ...] = ()
    identity: str = ""
    is_blind: bool = False
    engine: str = ""
    lacks: tuple[str, ...] = ()


class PassthroughRequest(msgspec.Struct, frozen=True):
    """A request that a backend gets as it came: the path, and the members of its JSON body.

    `text_field` is the one that holds what the model reads.
    """

    path: str
    text_field: str
    model: str
    fields: Mapping[str, bytes]
    stream: bool = False

    def body(self) -> bytes:
        """Write the body; every member is as the client wrote it."""
        return json.join_object({**self.fields})


class Backend(Protocol):
    """An engine that runs a model.

    Every method raises only `BackendFailed` and `InvalidRequest` kinds of errors. Closing the
    iterator that `ask` returns cancels the generation upstream at once.
    """

    @property
    def name(self) -> str:
        """The address shown in headers, logs and errors, without credentials."""

    def ask(
        self, question: Question, headers: dict[str, str], sink: EventSink | None = None
    ) -> ReplyEvents:
        """Put a question and stream the reply in batches; `headers` (lower case) travel upstream.

        No batch is empty; `ReplyFinished` and `ReplyUnreadable` end the last one. Content that a
        `sink` takes is in no batch; whoever has to see all of a reply asks without one.
        """

    def relay(self, passage: PassthroughRequest, headers: dict[str, str]) -> Pieces:
        """Pass a request on and stream its answer's lines; `headers` (lower case) travel too.

        Closing the iterator cancels the work upstream as far as the engine notices.
        """

    async def count(self, question: Question, headers: dict[str, str]) -> int | None:
        """Tell how many tokens a question's prompt has there; None if unknown, never raises."""

    async def count_texts(
        self, texts: Sequence[str], headers: dict[str, str]
    ) -> tuple[int, ...] | None:
        """Tell how many tokens each text has on its own; None if unknown, never raises."""

    async def models(self) -> tuple[BackendModel, ...]:
        """List the models it serves."""

    async def describe(self, model: str) -> Description:
        """Tell what it knows of the model that a request names; never raises."""

    async def health(self) -> Health:
        """Return whether it can answer now; never raises."""


class BackendWrapper:
    """Has everything done by another backend; a subclass does some of it itself."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    @property
    def name(self) -> str:
        """The backend's name, which may tell more once it has answered."""
        return self._backend.name

    def ask(
        self, question: Question, headers: dict[str, str], sink: EventSink | None = None
    ) -> ReplyEvents:
        """Put a question and stream the reply; `headers` (lower case) travel upstream."""
        return self._backend.ask(question, headers, sink)

    def relay(self, passage: PassthroughRequest, headers: dict[str, str]) -> Pieces:
        """Pass a request on and stream its answer's lines; `headers` (lower case) travel too."""
        return self._backend.relay(passage, headers)

    async def count(self, question: Question, headers: dict[str, str]) -> int | None:
        return await self._backend.count(question, headers)

    async def count_texts(
        self, texts: Sequence[str], headers: dict[str, str]
    ) -> tuple[int, ...] | None:
        return await self._backend.count_texts(texts, headers)

    async def models(self) -> tuple[BackendModel, ...]:
        return await self._backend.models()

    async def describe(self, model: str) -> Description:
        return await self._backend.describe(model)

    async def health(self) -> Health:
        return await self._backend.health()
