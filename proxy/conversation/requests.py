"""A client's request, and the upstream request that one attempt sends to an engine."""

from collections.abc import Mapping
from enum import Enum

import msgspec
from msgspec.structs import replace

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonSchema
from proxy.conversation.messages import Message
from proxy.conversation.tools import Tool, ToolChoice, ToolUse
from proxy.conversation.workflows import NO_RULES, Workflow

_MOST_STOPS = 4  # OpenAI's limit, which other engines copy
_LIMITS = ("max_tokens", "max_completion_tokens")


class ThinkingOptions(msgspec.Struct, frozen=True):
    """Whether and how much a model thinks before it answers; most clients do not say.

    `is_on` switches thinking. `effort` is the client's word for its amount, the model's own word
    with `is_exact`, and does not switch it. `budget` is the upper limit in tokens. `variables` are
    further variables of the chat template.
    """

    is_on: bool | None = None
    effort: str = ""
    budget: int | None = None
    is_exact: bool = False
    variables: JsonObject = {}

    def or_else(self, is_on: bool | None, effort: str = "") -> "ThinkingOptions":  # noqa: FBT001 - as in the settings
        """Return these options with the operator's defaults where the client set none."""
        options = self
        if self.is_on is None and is_on is not None:
            options = replace(options, is_on=is_on)
        # A budget of the client outranks an effort, and without reasoning there is no effort.
        if effort and not self.effort and self.budget is None and self.is_on is not False:
            options = replace(options, effort=effort)
        return options


UNSAID = ThinkingOptions()


class RoundReports(Enum):
    """When the client gets the messages of tool rounds that Temper ran."""

    NONE = "none"
    AS_MADE = "as_made"
    AT_END = "at_end"


class LoadOptions(msgspec.Struct, frozen=True):
    """How the engine loads a model; only an Ollama gets all of it.

    `options` are Ollama's, such as `num_ctx`. The model stays loaded for `keep_alive`, which is
    `seconds` long: negative for ever, None for the engine's default.
    """

    options: JsonObject = {}
    keep_alive: str | float | None = None
    seconds: float | None = None


AS_CONFIGURED = LoadOptions()


class Request(msgspec.Struct, frozen=True):
    """A chat request, independent of the client's dialect.

    `fields` holds every top-level member of the chat completion in the client's order, as the bytes
    in which the client wrote it; typed attributes are views of some of them.

    - `max_tokens`: the client's limit of the answer, in tokens.
    - `stop_strings`: whether the client set any.
    - `answer_schema`: the JSON schema of the answer, None for free text. Temper checks it with
      `checks_answer` even without tools; otherwise the engine is trusted with it.
    - `answer_reserve`: tokens of the window to keep free for the answer, 0 for the usual share;
      None for `max_tokens`. Set where clients send `max_tokens` as a ceiling.
    - `allowed_tools`: the tools that may be called, None for all.
    - `session`: the client's id of the conversation, "" if the request has none.
    - `thinking`: the options of client and operator; those that are not in `fields` are written in
      the engine's own words.
    - `wants_stop`: the client wants to know the stop string that ended the reply.
    - `load`: options for the engine, not for the model.
    """

    model: str
    messages: tuple[Message, ...]
    fields: Mapping[str, bytes]
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice = ToolUse.AUTO
    parallel_tool_calls: bool = True
    stream: bool = False
    max_tokens: int | None = None
    stop_strings: bool = False
    answer_schema: JsonSchema | None = None
    checks_answer: bool = False
    workflow: Workflow = NO_RULES
    answer_reserve: int | None = None
    allowed_tools: frozenset[str] | None = None
    session: str = ""
    thinking: ThinkingOptions = UNSAID
    round_reports: RoundReports = RoundReports.NONE
    wants_stop: bool = False
    load: LoadOptions = AS_CONFIGURED

    @property
    def reserved(self) -> int | None:
        """The tokens to keep free for the answer; 0 or None for the usual share."""
        return self.max_tokens if self.answer_reserve is None else self.answer_reserve

    def limit_tokens(self, most_tokens: int) -> "Request":
        """Return the request with a limit of at most `most_tokens`, in the client's own field."""
        least = most_tokens if self.max_tokens is None else min(self.max_tokens, most_tokens)
        known = [name for name in _LIMITS if name in self.fields] or ["max_tokens"]
        limits = dict.fromkeys(known, str(least).encode())
        return replace(self, max_tokens=least, fields={**self.fields, **limits})

    def append_messages(self, messages: tuple[Message, ...]) -> "Request":
        return replace(self, messages=self.messages + messages, fields=self._without("messages"))

    def prepend_messages(self, messages: tuple[Message, ...]) -> "Request":
        return replace(self, messages=messages + self.messages, fields=self._without("messages"))

    def with_messages(self, messages: tuple[Message, ...]) -> "Request":
        return replace(self, messages=messages, fields=self._without("messages"))

    def offering(self, tools: tuple[Tool, ...]) -> "Request":
        return replace(self, tools=self.tools + tools, fields=self._without("tools"))

    def choosing(self, use: ToolUse) -> "Request":
        fields = {**self.fields, "tool_choice": f'"{use.value}"'.encode()}
        return replace(self, tool_choice=use, fields=fields)

    def _without(self, member: str) -> dict[str, bytes]:
        """Return the fields without a member that the client's bytes no longer describe."""
        return {name: raw for name, raw in self.fields.items() if name != member}


class Parsing(Enum):
    """Which side parses tool calls out of the generated text: the engine or Temper."""

    BACKEND = "backend"
    OURS = "ours"


class RefusalCount(msgspec.Struct):
    """The number of engine refusals that Temper reacted to for one request.

    `most_tokens` is the limit that the answers got after a refusal, None for the client's own.
    """

    acted: int = 0
    most_tokens: int | None = None


class UpstreamRequest(msgspec.Struct, frozen=True):
    """One attempt: a request with the messages and tools that are sent.

    `request.fields` still has the client's own `messages` and `tools`; an encoder replaces them and
    leaves out the fields in `omits`.

    - `parsing`: with `Parsing.OURS` the engine must return the model's raw text.
    - `schema`: the JSON schema that the whole output has to satisfy, None for free text.
    - `resets_cache`: the engine must not continue from a cached prompt.
    - `calls_singly`: the model is not made for several calls in one reply.
    - `stops`: stop strings in addition to the client's.
    - `checks_answer`: the answer is checked against the client's schema, even if the engine gets a
      simpler one.
    - `refusals`: the count of all attempts of this request.
    - `may_fail`: an answer exists already, so a failure is not retried with another engine.
    """

    request: Request
    messages: tuple[Message, ...]
    tools: tuple[Tool, ...]
    tool_choice: ToolChoice
    parsing: Parsing = Parsing.BACKEND
    schema: JsonObject | None = None
    omits: frozenset[str] = frozenset()
    resets_cache: bool = False
    calls_singly: bool = False
    stops: tuple[str, ...] = ()
    checks_answer: bool = False
    refusals: RefusalCount = msgspec.field(default_factory=RefusalCount)
    may_fail: bool = False

    @property
    def stop_strings(self) -> tuple[str, ...]:
        """The client's stop strings and as many of `stops` as engines accept next to them."""
        value = json.parse(self.request.fields.get("stop", b"null"))
        values = value if isinstance(value, list) else [value]
        client_stops = tuple(stop for stop in values if isinstance(stop, str))
        more = [stop for stop in self.stops if stop not in client_stops]
        return client_stops + tuple(more[: max(0, _MOST_STOPS - len(client_stops))])
