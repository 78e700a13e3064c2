"""What a client asks for, and what is put to a backend on its behalf."""

from collections.abc import Mapping
from enum import Enum

import msgspec
from msgspec.structs import replace

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonSchema
from proxy.conversation.messages import Message
from proxy.conversation.tools import Tool, ToolChoice, ToolUse
from proxy.conversation.workflows import NO_RULES, Workflow

_MOST_STOPS = 4  # OpenAI's bound, which others keep
_LIMITS = ("max_tokens", "max_completion_tokens")


class ThinkingOptions(msgspec.Struct, frozen=True):
    """What was said of the thoughts before an answer; as a rule, nothing was.

    `is_on` switches them. `effort` is how much of them is wanted, in the client's own word, and
    says nothing about whether; if it `is_exact`, it is the model's word. `budget` is the most of
    them, in tokens. `variables` are those of the chat template that tell it what else is wanted.
    """

    is_on: bool | None = None
    effort: str = ""
    budget: int | None = None
    is_exact: bool = False
    variables: JsonObject = {}

    def or_else(self, is_on: bool | None, effort: str = "") -> "ThinkingOptions":  # noqa: FBT001 - what stands in the settings
        """Take what the operator wants where the client did not say."""
        found = self
        if self.is_on is None and is_on is not None:
            found = replace(found, is_on=is_on)
        if effort and not self.effort and self.budget is None and self.is_on is not False:
            found = replace(found, effort=effort)
        return found


UNSAID = ThinkingOptions()


class LoadOptions(msgspec.Struct, frozen=True):
    """How a client wants the engine to load the model; only an Ollama is told all of it.

    `options` are Ollama's, such as `num_ctx`. The model stays loaded for `keep_alive`, which is of
    `seconds`: for ever if they are negative; None where nothing was said.
    """

    options: JsonObject = {}
    keep_alive: str | float | None = None
    seconds: float | None = None


AS_CONFIGURED = LoadOptions()


class Request(msgspec.Struct, frozen=True):
    """A chat request.

    `fields` holds every top-level member of the client's JSON object, in the client's order, as the
    exact bytes it was written in; the typed attributes are views of some of them. `max_tokens`
    counts tokens; `stop_strings` reports whether the client set any. `answer_schema` is the JSON
    schema that an answer has to satisfy, None where any text will do. With `checks_answer` it is
    checked here even without tools; otherwise an engine is trusted with it. `answer_reserve` is
    what of the window is kept free for the answer where that is not `max_tokens`, because this is a
    ceiling and no wish: in tokens, 0 for the usual share. `allowed_tools` names those of the tools
    that may be called; None for all. `session` is what the client calls the conversation, "" where
    nothing of it stands in the request. `thinking` is what client and operator said of thoughts:
    what of it does not stand in `fields`, an engine is told in its own words. `wants_rounds` asks
    for the messages of the rounds of tools that ran here, `shows_rounds` for each round as it is
    made, and `wants_stop` for the string that ended a reply.
    `load` is for the engine, not for the model.
    """

    model: str
    messages: tuple[Message, ...]
    fields: Mapping[str, bytes]
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice = ToolUse.AUTO
    parallel_tool_calls: bool = True
    stream: bool = False
    include_usage: bool = False
    max_tokens: int | None = None
    stop_strings: bool = False
    answer_schema: JsonSchema | None = None
    checks_answer: bool = False
    workflow: Workflow = NO_RULES
    answer_reserve: int | None = None
    allowed_tools: frozenset[str] | None = None
    session: str = ""
    thinking: ThinkingOptions = UNSAID
    wants_rounds: bool = False
    shows_rounds: bool = False
    wants_stop: bool = False
    load: LoadOptions = AS_CONFIGURED

    @property
    def reserved(self) -> int | None:
        """The tokens to be kept free for the answer; none of them said, the usual share."""
        return self.max_tokens if self.answer_reserve is None else self.answer_reserve

    def limit_tokens(self, most_tokens: int) -> "Request":
        """Return the request for a reply of at most so many tokens, in the client's own field."""
        least = most_tokens if self.max_tokens is None else min(self.max_tokens, most_tokens)
        known = [name for name in _LIMITS if name in self.fields] or ["max_tokens"]
        limits = dict.fromkeys(known, str(least).encode())
        return replace(self, max_tokens=least, fields={**self.fields, **limits})

    def append_messages(self, messages: tuple[Message, ...]) -> "Request":
        return replace(self, messages=self.messages + messages, fields=self._without("messages"))

    def offering(self, tools: tuple[Tool, ...]) -> "Request":
        return replace(self, tools=self.tools + tools, fields=self._without("tools"))

    def choosing(self, use: ToolUse) -> "Request":
        fields = {**self.fields, "tool_choice": f'"{use.value}"'.encode()}
        return replace(self, tool_choice=use, fields=fields)

    def _without(self, member: str) -> dict[str, bytes]:
        """Return the fields without one of which the client's own bytes no longer hold."""
        return {name: raw for name, raw in self.fields.items() if name != member}


class Parsing(Enum):
    """Who finds the tool calls in what the model writes."""

    BACKEND = "backend"
    OURS = "ours"


class RefusalCount(msgspec.Struct):
    """How many refusals of engines were acted on for one request.

    Its answers were limited to `most_tokens`, None where the client's own limit applies.
    """

    acted: int = 0
    most_tokens: int | None = None


class UpstreamRequest(msgspec.Struct, frozen=True):
    """One attempt: the request with the messages and tools that are really sent.

    `request.fields` still carries the client's own `messages` and `tools`; an encoder replaces
    them and leaves out those that `omits` names. With `Parsing.OURS` the backend must return the
    model's raw text. `schema`, when set, is the JSON schema that the whole output has to satisfy.
    `resets_cache` forbids continuing from a cached prompt, `calls_singly` reports that the model is
    not made for several calls in one reply. At one of the `stops` the reply is to end, as at those
    that the client has named. With `checks_answer` the answer is held against the client's own
    form, whatever of that the engine gets. The `refusals` are those of all attempts. There is an
    answer already where it `may_fail`: nobody waits for it, or asks another engine.
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
        """The stop strings of the client, and as many of `stops` as engines take beside them."""
        written = json.parse(self.request.fields.get("stop", b"null"))
        named = written if isinstance(written, list) else [written]
        own = tuple(one for one in named if isinstance(one, str))
        more = [stop for stop in self.stops if stop not in own]
        return own + tuple(more[: max(0, _MOST_STOPS - len(own))])
