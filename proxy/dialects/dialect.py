"""The contract of a dialect: everything that the HTTP edge needs to know about a client's API.

A dialect reads requests into `Request`, whose `fields`, messages and tools have the format of chat
completions. It writes events and errors in its own format. A dialect uses neither sockets nor
clocks. Ids and times come from `IdsAndClock`, so that tests can compare bytes.

    bytes -> Dialect.decode -> Decoded(request, answering, ...)
    answering.begin(first) -> StreamEncoder: encode_all(events) ..., end() or fail(problem)
    answering.builder(first) -> AnswerBuilder: add(event) ..., build()

`tests/fakes/toy_dialect.py` is a complete dialect of 60 lines.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Generic, Protocol, TypeVar

import msgspec

from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.replies import ReplyEvent, ReplyStarted
from proxy.conversation.requests import Request
from proxy.conversation.tools import RequestedTools
from proxy.facts import Fact

Identity = TypeVar("Identity")

_NONE: Mapping[str, str] = MappingProxyType({})  # immutable, because all instances share it
_NO_DETAILS: Mapping[str, JsonValue] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class IdsAndClock:
    """The sources of ids and times; `now` returns a Unix time in seconds.

    `token` returns a new id of 24 lowercase hexadecimal digits, and dialects add a prefix to it.
    """

    now: Callable[[], float]
    token: Callable[[], str]

    def call_id(self, prefix: str = "call_") -> str:
        """Make the id of a tool call."""
        return prefix + self.token()


class Client(msgspec.Struct, frozen=True):
    """The client of a request.

    `owner` is the owner of the client's API key, "" without authentication. Names of `headers` are
    in lowercase. `request_id` is the id in answers and logs.
    """

    owner: str = ""
    headers: Mapping[str, str] = msgspec.field(default_factory=lambda: _NONE)
    request_id: str = ""


@dataclass(frozen=True, slots=True)
class Problem:
    """An error in terms of HTTP and OpenAI's classes, independent of the dialect.

    `kind` is OpenAI's class of the error, such as `invalid_request_error`. `code` is an error code
    for programs. `param` is the path of the invalid field, e.g. `messages.0.content`. `details` are
    further members of the error object.
    """

    status: int
    kind: str
    message: str
    code: str | None = None
    param: str | None = None
    headers: Mapping[str, str] = field(default_factory=lambda: _NONE)
    details: Mapping[str, JsonValue] = field(default_factory=lambda: _NO_DETAILS)


@dataclass(frozen=True, slots=True)
class ErrorReply:
    """An error in the format of a dialect: status, headers and JSON body."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Schemas:
    """JSON schemas for the OpenAPI document; each has a `title` and may have `$defs`."""

    request: JsonObject
    answer: JsonObject
    count: JsonObject
    error: JsonObject


@dataclass(frozen=True, slots=True)
class ListedModel:
    """A served model; `details` are further members of its entry in the model list.

    `window` is the size of the context window in tokens, None if unknown.
    """

    id: str
    window: int | None = None
    details: Mapping[str, JsonValue] = field(default_factory=lambda: _NO_DETAILS)


@dataclass(frozen=True, slots=True)
class Page:
    """A page of the model list: at most `limit` models after `after`, or before `before`."""

    limit: int | None = None
    after: str = ""
    before: str = ""


class Catalogue(Protocol):
    """The model list in the format of a dialect."""

    def models(self, models: Sequence[ListedModel], page: Page) -> JsonObject:
        """Write a list, or one page of it."""

    def model(self, model: ListedModel) -> JsonObject:
        """Describe one model."""


class StreamEncoder(Protocol):
    """Writes the events of one answer as they arrive.

    A second `ReplyStarted` may arrive before any content, because another attempt has begun.
    """

    def encode_all(self, events: Sequence[ReplyEvent], /) -> bytes:
        """Return the bytes for consecutive events, b"" if the client receives none of them."""

    def keep_alive(self) -> bytes:
        """Return bytes that have no content but reset the timeouts of clients.

        This may be called before the first event.
        """

    def comment(self, text: str) -> bytes:
        """Return a comment for debugging, which every client skips."""

    def end(self) -> bytes:
        """Return the last bytes of a complete stream."""

    def fail(self, problem: Problem) -> bytes:
        """Return the last bytes of a failed stream."""


class AnswerBuilder(Protocol):
    """Builds a whole answer from its events."""

    def add(self, event: ReplyEvent, /) -> None:
        """Add one event."""

    def build(self) -> bytes:
        """Return the body of the whole answer."""


class Answering(Protocol):
    """Creates the writers for the answer to one request, with the options of the request.

    With `reports_prompt_size`, the first events of a stream must include a `PromptProgress`.
    """

    @property
    def reports_prompt_size(self) -> bool: ...

    def begin(self, first: ReplyEvent | None) -> StreamEncoder:
        """Begin a stream; `first` is None if the engine has sent nothing yet."""

    def builder(self, first: ReplyEvent | None) -> AnswerBuilder:
        """Begin a whole answer."""

    def new_call_id(self) -> str:
        """Make the id of a tool call."""


@dataclass(frozen=True, slots=True)
class IdentifiedAnswering(Generic[Identity]):
    """Creates writers with the identity that `identify` derives from the engine's `ReplyStarted`.

    The identity has the id and the model of the answer.
    """

    identify: Callable[[ReplyStarted], Identity]
    stream: Callable[[Identity], StreamEncoder]
    whole: Callable[[Identity], AnswerBuilder]
    new_call_id: Callable[[], str]
    reports_prompt_size: bool = False

    def begin(self, first: ReplyEvent | None) -> StreamEncoder:
        return self.stream(self._identity(first))

    def builder(self, first: ReplyEvent | None) -> AnswerBuilder:
        return self.whole(self._identity(first))

    def _identity(self, first: ReplyEvent | None) -> Identity:
        return self.identify(first if isinstance(first, ReplyStarted) else ReplyStarted())


class Decoded(msgspec.Struct, frozen=True):
    """A decoded request and the writers of its answer.

    - `facts`: the dropped parts of the request.
    - `accepts_prose`: the client expects prose, so the operator's policy for text does not apply.
    - `compaction`: whether the client allows Temper to shorten the conversation, None if unset.
    - `image_error`: the error to report if the model has no vision. It is "" if the request has no
      pictures, or if the client should get the engine's own error.
    - `requested_tools`: the operator's tools that the request asks for.
    - `load_status`: the whole answer, if the request only loads or unloads a model.
    """

    request: Request
    answering: Answering
    facts: tuple[Fact, ...] = ()
    accepts_prose: bool = False
    compaction: bool | None = None
    image_error: str = ""
    requested_tools: tuple[RequestedTools, ...] = ()
    load_status: bytes = b""


class Dialect(Protocol):
    """An API for clients; `name` labels its requests in metrics, records and traces."""

    @property
    def name(self) -> str:
        """The name of the dialect: "chat", "messages", "responses" or "ollama"."""

    @property
    def id_header(self) -> str:
        """The lowercase header from which the SDKs of the API read the request id."""

    @property
    def stream_type(self) -> str:
        """The media type of streams: `sse.MEDIA_TYPE`, or the media type of NDJSON."""

    def schemas(self) -> Schemas:
        """Return the schemas of requests and answers."""

    def decode(self, body: bytes, client: Client) -> Decoded:
        """Read a request; raises `InvalidRequest` or a subclass, which names the field."""

    def decode_count(self, body: bytes, client: Client) -> Decoded:
        """Read a request for a token count; raises as `decode` does."""

    def encode_count(self, tokens: int, *, is_estimated: bool) -> bytes:
        """Return the body with the token count of a request; an estimated count is marked."""

    def error(self, problem: Problem, request_id: str) -> ErrorReply:
        """Write an error that occurred before the answer began."""

    def is_complete(self, end: bytes) -> bool:
        """Return whether a stream whose last bytes are `end` is complete."""
