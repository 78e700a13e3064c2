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

_MOST_STOPS = 4  # the limit of OpenAI and other engines
_LIMITS = ("max_tokens", "max_completion_tokens")


class ThinkingOptions(msgspec.Struct, frozen=True):
    """Whether and how much a model thinks before it answers; by default, no option is set.

    `is_on` enables or disables thinking. `effort` is the amount of thinking, e.g. "low". It is a
    word of the client's API, or with `is_exact` a word of the model's chat template. `budget` is
    the maximum number of tokens for thinking. `variables` are further template variables.
    """

    is_on: bool | None = None
    effort: str = ""
    budget: int | None = None
    is_exact: bool = False
    variables: JsonObject = {}

    def or_else(self, is_on: bool | None, effort: str = "") -> "ThinkingOptions":  # noqa: FBT001 - as in the settings
        """Return these options, with the operator's values for options that are not set."""
        options = self
        if self.is_on is None and is_on is not None:
            options = replace(options, is_on=is_on)
        # a client's budget takes precedence, and an effort is useless if thinking is disabled
        if effort and not self.effort and self.budget is None and self.is_on is not False:
            options = replace(options, effort=effort)
        return options


UNSAID = ThinkingOptions()


class RoundReports(Enum):
    """When the client receives the messages of the tool rounds that Temper ran."""

    NONE = "none"
    AS_MADE = "as_made"
    AT_END = "at_end"


class LoadOptions(msgspec.Struct, frozen=True):
    """How the engine loads a model; only Ollama supports all of these options.

    `options` are Ollama's, such as `num_ctx`. `keep_alive` is the time for which the model stays
    loaded after the request, as the client wrote it. `seconds` is the same time as a number; a
    negative number means forever, and None means the engine's default.
    """

    options: JsonObject = {}
    keep_alive: str | float | None = None
    seconds: float | None = None


AS_CONFIGURED = LoadOptions()


class Request(msgspec.Struct, frozen=True):
    """A chat request, independent of the client's dialect.

    `fields` has every top-level member of the chat completion, in the client's order and with the
    client's bytes. The typed attributes are parsed from some of these members:

    - `max_tokens`: the client's limit of the answer, in tokens.
    - `stop_strings`: whether the client set stop strings.
    - `answer_schema`: the JSON schema of the answer, None for free text. With `checks_answer`,
      Temper validates the answer even without tools; otherwise it trusts the engine.
    - `answer_reserve`: tokens of the window to reserve for the answer. 0 reserves the usual share,
      and None reserves `max_tokens`. A number is set for clients that always send a very large
      `max_tokens`.
    - `allowed_tools`: the tools that may be called, None for all.
    - `session`: the client's id of the conversation, "" if the request has none.
    - `thinking`: the options of the client and the operator. An option that is not in `fields` is
      converted to a field of the engine.
    - `wants_stop`: whether the client wants to know which stop string ended the reply.
    - `load`: how the engine loads the model; the model itself does not see these options.
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
        """The tokens to reserve for the answer; 0 or None for the usual share."""
        return self.max_tokens if self.answer_reserve is None else self.answer_reserve

    def limit_tokens(self, most_tokens: int) -> "Request":
        """Return the request with a limit of at most `most_tokens`.

        The limit is written to the fields in which the client sets it, or else to `max_tokens`.
        """
        limit = most_tokens if self.max_tokens is None else min(self.max_tokens, most_tokens)
        names = [name for name in _LIMITS if name in self.fields] or ["max_tokens"]
        limits = dict.fromkeys(names, str(limit).encode())
        return replace(self, max_tokens=limit, fields={**self.fields, **limits})

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
        """Return the fields without `member`, whose bytes have become outdated."""
        return {name: raw for name, raw in self.fields.items() if name != member}


class Parsing(Enum):
    """Whether the engine or Temper parses the tool calls in the generated text."""

    BACKEND = "backend"
    OURS = "ours"


class RefusalCount(msgspec.Struct):
    """Counts the changes that Temper made to a request because the engine rejected it.

    `most_tokens` is the limit of the answer after such a change; None means the client's limit.
    """

    acted: int = 0
    most_tokens: int | None = None


class UpstreamRequest(msgspec.Struct, frozen=True):
    """One attempt: a request with the messages and tools that are sent.

    `request.fields` still has the client's `messages` and `tools`; an encoder replaces these two,
    and drops the fields in `omits`.

    - `parsing`: with `Parsing.OURS`, Temper parses calls, so the engine must return the raw text.
    - `schema`: the JSON schema that the whole output has to satisfy, None for free text.
    - `resets_cache`: the engine must not use its prompt cache.
    - `calls_singly`: the model was not trained to make several calls in one reply.
    - `stops`: stop strings in addition to the client's.
    - `checks_answer`: Temper validates the answer, so the engine may get a simpler schema.
    - `refusals`: counts changes after rejections; all attempts of the request share the object.
    - `may_fail`: an answer already exists, so a failed attempt is not sent to another engine.
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
        """The client's stop strings, followed by as many of `stops` as engines accept."""
        value = json.parse(self.request.fields.get("stop", b"null"))
        values = value if isinstance(value, list) else [value]
        client_stops = tuple(stop for stop in values if isinstance(stop, str))
        more = [stop for stop in self.stops if stop not in client_stops]
        return client_stops + tuple(more[: max(0, _MOST_STOPS - len(client_stops))])
