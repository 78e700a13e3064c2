"""The contract of a dialect: what the HTTP edge needs of a client's language, and nothing else.

A dialect reads requests into the language-free `Request`, whose `fields`, messages and tools are
written in the language of backends (chat completions), and writes events and errors as its
clients expect them. It knows neither HTTP servers nor clocks: fresh ids and the time come from
`IdsAndClock`.
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

_NONE: Mapping[str, str] = MappingProxyType({})
_NO_DETAILS: Mapping[str, JsonValue] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class IdsAndClock:
    """Makes what nothing in a request determines: `now` is a Unix time in seconds.

    `token` returns a fresh id, 24 lower-case hexadecimal digits, before which each language puts
    prefixes of its own.
    """

    now: Callable[[], float]
    token: Callable[[], str]

    def call_id(self, prefix: str = "call_") -> str:
        """Make the id of a tool call."""
        return prefix + self.token()


class Client(msgspec.Struct, frozen=True):
    """Who sent a request: the `owner` of the key, "" where nobody needs one; `headers` by name.

    Names of headers are in lower case. `request_id` is the id that answers and logs carry.
    """

    owner: str = ""
    headers: Mapping[str, str] = msgspec.field(default_factory=lambda: _NONE)
    request_id: str = ""


@dataclass(frozen=True, slots=True)
class Problem:
    """An error in terms of HTTP and of OpenAI's classes, before a language has worded it.

    `kind` is the class, such as `invalid_request_error`; `code` a word for programs; `param` the
    field to blame, e.g. `messages.0.content`; `details` are further members.
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
    """An error as one client gets it: a JSON body, its status and its headers."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Schemas:
    """JSON schemas of a language for the OpenAPI document; each has a `title`, maybe `$defs`."""

    request: JsonObject
    answer: JsonObject
    count: JsonObject
    error: JsonObject


@dataclass(frozen=True, slots=True)
class ListedModel:
    """A model that is served; `window` in tokens, None where nobody knows; `details` as known."""

    id: str
    window: int | None = None
    details: Mapping[str, JsonValue] = field(default_factory=lambda: _NO_DETAILS)


@dataclass(frozen=True, slots=True)
class Page:
    """Which models are wanted: at most `limit`, those behind `after` or else before `before`."""

    limit: int | None = None
    after: str = ""
    before: str = ""


class Catalogue(Protocol):
    """Lists models as the clients of a language read them."""

    def models(self, models: Sequence[ListedModel], page: Page) -> JsonObject:
        """Write a list, or one page of it."""

    def model(self, model: ListedModel) -> JsonObject:
        """Describe one model."""


class StreamEncoder(Protocol):
    """Writes the events of one answer as they come, ready to be sent.

    Before anything was shown a second `ReplyStarted` may come: another attempt began.
    """

    def encode_all(self, events: Sequence[ReplyEvent], /) -> bytes:
        """Return what events that follow each other are worth on the wire, b"" for nothing."""

    def keep_alive(self) -> bytes:
        """Return bytes that say nothing but that work goes on; they may be the first of all."""

    def comment(self, text: str) -> bytes:
        """Return a remark for people who debug, which every client skips."""

    def end(self) -> bytes:
        """Return the last bytes of a stream that ended well."""

    def fail(self, problem: Problem) -> bytes:
        """Return the last bytes of a stream that broke."""


class AnswerBuilder(Protocol):
    """Adds up the events of one answer to a whole one."""

    def add(self, event: ReplyEvent, /) -> None:
        """Take note of one event."""

    def build(self) -> bytes:
        """Return the body of the whole answer."""


class Answering(Protocol):
    """One answer to one request; it knows what has to be echoed.

    If it `tells_prompt_size`, the first events of a stream have to hold a `PromptProgress`.
    """

    @property
    def tells_prompt_size(self) -> bool: ...

    def begin(self, first: ReplyEvent | None) -> StreamEncoder:
        """Begin a stream; `first` is None where the backend has been silent so far."""

    def builder(self, first: ReplyEvent | None) -> AnswerBuilder:
        """Begin a whole answer."""

    def new_call_id(self) -> str:
        """Make the id of a tool call."""


@dataclass(frozen=True, slots=True)
class IdentifiedAnswering(Generic[Identity]):
    """One that begins with what the answer says of itself: `identify` takes it from the backend."""

    identify: Callable[[ReplyStarted], Identity]
    stream: Callable[[Identity], StreamEncoder]
    whole: Callable[[Identity], AnswerBuilder]
    new_call_id: Callable[[], str]
    tells_prompt_size: bool = False

    def begin(self, first: ReplyEvent | None) -> StreamEncoder:
        return self.stream(self._identity(first))

    def builder(self, first: ReplyEvent | None) -> AnswerBuilder:
        return self.whole(self._identity(first))

    def _identity(self, first: ReplyEvent | None) -> Identity:
        return self.identify(first if isinstance(first, ReplyStarted) else ReplyStarted())


class Decoded(msgspec.Struct, frozen=True):
    """A request that was read, and how it is answered.

    `facts` tell what of it was left out. With `accepts_prose` an answer in prose is what the client
    wants, whatever the operator's policy for text. `compaction` is what it says about shortening:
    None where it says nothing. `image_error` is what a client hears whose pictures the model cannot
    see, "" where it has sent none or the backend's own words will do. `requested_tools` are the
    operator's tools that it asks for. `load_status` is the whole answer to a request without a
    prompt: it asks for nothing but the model to be loaded, or unloaded.
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
    """A language that clients speak; `name` labels its requests in metrics, records and traces."""

    @property
    def name(self) -> str:
        """Its name: "chat", "messages", "responses", "ollama"."""

    @property
    def id_header(self) -> str:
        """The header, in lower case, in which its SDKs read the id of a request."""

    @property
    def stream_type(self) -> str:
        """The media type of its streams: `sse.MEDIA_TYPE`, or that of lines."""

    def schemas(self) -> Schemas:
        """Describe what is sent and answered."""

    def decode(self, body: bytes, client: Client) -> Decoded:
        """Read a request; raises `InvalidRequest` kinds of errors, which name the field."""

    def decode_count(self, body: bytes, client: Client) -> Decoded:
        """Read a request of which only the tokens are asked for; raises as `decode` does."""

    def encode_count(self, tokens: int) -> bytes:
        """Return the body that reports how many tokens a request has."""

    def error(self, problem: Problem, request_id: str) -> ErrorReply:
        """Write an error that came before anything was sent."""

    def is_complete(self, end: bytes) -> bool:
        """Tell by its last message whether a stream ended well."""
