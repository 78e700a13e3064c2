"""Guardrails for programs with their own agent loop: `GuardedTurn` returns requests.

The program sends each request, and passes the reply to the turn. This module has no I/O, threads or
clock. Requests and replies have the format of chat completions, as dictionaries or objects of an
SDK.

    turn = Guardrails(tools=[weather]).turn(messages)
    while (request := turn.next_request()) is not None:
        turn.receive(client.chat.completions.create(model="m", **request))
    turn.answer.calls
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias, cast
from uuid import uuid4

import msgspec
from pydantic import BaseModel

from proxy import errors
from proxy.backends.capabilities import directives, is_unreadable
from proxy.backends.llama_server import directives as llama_server_directives
from proxy.backends.llama_server import simplify_tools
from proxy.backends.refusals import Refusal, as_error, read_streamed_refusal
from proxy.context.tokens import TokenBook
from proxy.conversation import json, replies
from proxy.conversation.endings import STOP
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.messages import assistant_message
from proxy.conversation.requests import Request, UpstreamRequest
from proxy.conversation.tools import ToolCall
from proxy.conversation.workflows import NO_RULES, Workflow
from proxy.dialects.openai_chat.decode import decode_request
from proxy.dialects.openai_chat.encode import delta_of, encode_request
from proxy.dialects.openai_chat.replies import ChunkDecoder, ReplyPart, StreamedError, decode_error
from proxy.facts import Fact, ReplyOutcome, outcome
from proxy.guardrails.offer import TextPolicy
from proxy.guardrails.reasoning import EnoughReadError
from proxy.guardrails.retry import MOST_ATTEMPTS
from proxy.inference.driver import end_early
from proxy.inference.plan import Policy, RequestPlan
from proxy.inference.preparation import begin, plan_request
from proxy.inference.turn import Turn, TurnState
from proxy.profiles.files import load_profiles
from proxy.profiles.known_model import Overrides, identify_model
from proxy.profiles.recognition import Evidence
from proxy.serving.context_fitting import ContextPolicy
from proxy.tools.function import FunctionTool, expect_positive
from proxy.tools.signature import Function
from proxy.tools.toolset import Toolset

ToolLike: TypeAlias = Mapping[str, object] | FunctionTool | Function

ENGINE = "the engine"
LLAMA_SERVER = "llama-server"

# Members that are removed from requests. The program chooses the model and streaming itself, and
# SDKs reject the parameters of llama-server.
_REMOVED_MEMBERS = ("model", "stream", "stream_options", "return_progress", "cache_prompt")


@dataclass(frozen=True, slots=True)
class SdkRequests:
    """Writes requests for one engine, and learns token counts from its usage."""

    engine: str
    window: int | None
    book: TokenBook

    def request(self, upstream_request: UpstreamRequest) -> JsonObject:
        """Return the keyword arguments for `client.chat.completions.create`."""
        if self.engine == LLAMA_SERVER:
            upstream_request = simplify_tools(upstream_request)
            extra = llama_server_directives(upstream_request)
        else:
            extra = directives(upstream_request)
        body = cast("JsonObject", json.parse(encode_request(upstream_request, extra)))
        return {name: value for name, value in body.items() if name not in _REMOVED_MEMBERS}

    def learn(self, upstream_request: UpstreamRequest, completion: JsonObject) -> None:
        usage = completion.get("usage")
        total = usage.get("prompt_tokens") if isinstance(usage, dict) else None
        # without a window, no history is shortened, so no counts are needed
        if self.window is not None and isinstance(total, int) and total > 0:
            messages, tools = upstream_request.messages, upstream_request.tools
            self.book.observe_total(messages, tools, total, self.window)

    def is_unreadable(self, error: Exception) -> bool:
        """Return whether llama-server failed because it could not parse the model's reply."""
        response: object = getattr(error, "response", None)
        status: object = getattr(response, "status_code", None)
        if self.engine != LLAMA_SERVER or not isinstance(status, int):
            return False
        content: object = getattr(response, "content", b"")
        refusal = Refusal(status, decode_error(content if isinstance(content, bytes) else b""))
        typed_error = as_error(ENGINE, refusal)
        return isinstance(typed_error, errors.BackendRefused) and is_unreadable(typed_error)


class GuardedAnswer(msgspec.Struct, frozen=True):
    """The result of a turn: text, or calls to execute, or both.

    `message` is the assistant message for the history. `facts` lists the repairs, and `outcome`
    summarizes them.
    """

    text: str
    calls: tuple[ToolCall, ...]
    message: JsonObject
    facts: tuple[Fact, ...]
    outcome: ReplyOutcome
    reasoning: str = ""
    finish_reason: str = STOP


class GuardedTurn:
    """The attempts for one prompt: the program sends requests until `next_request` returns None.

    The returned deltas may be shown to a user at once; they are never retracted.
    """

    def __init__(self, turn: Turn, requests: SdkRequests) -> None:
        self._turn = turn
        self._requests = requests
        self._decoder = ChunkDecoder()
        self._upstream_request: UpstreamRequest | None = None
        self._is_finished = True
        self._error: Exception | None = None
        self._reply = replies.ReplyInProgress()
        self._reason = ""

    def next_request(self) -> JsonObject | None:
        """Return the request for the next attempt, None if there is an answer.

        The request contains `messages`, and `tools`, `tool_choice` and `response_format` if needed.
        Raises the error of the last attempt if there is no usable reply.
        """
        if not self._is_finished:
            self.fail(errors.BackendUnavailable(ENGINE, "ended in the middle of its reply"))
        if self._error is not None:
            raise self._error
        self._upstream_request = self._turn.next_request()
        if self._upstream_request is None:
            return None
        self._decoder, self._is_finished = ChunkDecoder(), False
        return self._requests.request(self._upstream_request)

    def receive(self, reply: object) -> list[JsonObject]:
        """Process a completion, or one chunk of a stream; return the deltas to show.

        Completions and chunks may be objects of an SDK or plain dictionaries. If all attempts were
        rejected, raises `GuardrailsExhausted` in two cases: the turn is `strict`, or parts of a
        call were shown and the call is still incomplete.
        """
        if self._upstream_request is None:
            raise RuntimeError("there is no pending request: call next_request() first")
        completion = plain(reply)
        self._requests.learn(self._upstream_request, completion)
        if self._is_finished:  # OpenAI sends the usage in a chunk after the finish reason
            usage = completion.get("usage")
            if isinstance(usage, dict) and self._turn.state is TurnState.ASKING:
                self._turn.receive(replies.UsageReported(usage))
            return []
        try:
            parts = self._decoder.feed(json.dump_text(completion))
            if is_over(completion):
                parts += self._decoder.finish()
        except ValueError as error:
            return self.fail(errors.BackendReplyInvalid(ENGINE, f"sent an invalid reply: {error}"))
        return self._process(parts)

    def fail(self, error: Exception) -> list[JsonObject]:
        """Report that a request failed; return the remaining deltas to show.

        Raises the error if no earlier attempt gave an answer, with one exception: if llama-server
        could not parse the reply, the next request disables llama-server's parser, and the turn
        parses the model's text itself.
        """
        self._is_finished = True
        if self._requests.is_unreadable(error):
            return self._process([replies.ReplyUnreadable(str(error))])
        remaining = self._turn.abandon()
        if not remaining:
            self._error = error
            raise error
        return self._show(remaining)

    @property
    def answer(self) -> GuardedAnswer:
        """The answer; raises RuntimeError while requests remain to be sent."""
        if self._turn.state is not TurnState.DONE or not self._reason:
            raise RuntimeError(
                "there is no answer yet: send requests until next_request() returns None"
            )
        reply, facts = self._reply.finish(self._reason), self._turn.facts
        calls = tuple(
            ToolCall(call.id or "", call.name, str(call.arguments)) for call in reply.calls
        )
        typed = assistant_message(reply.text, calls, reasoning=reply.reasoning)
        message = cast("JsonObject", json.parse(typed.source))
        return GuardedAnswer(
            reply.text, calls, message, facts, outcome(facts), reply.reasoning, self._reason
        )

    def _process(self, parts: Sequence[ReplyPart]) -> list[JsonObject]:
        """Process the events, and then a streamed error, which is always the last part."""
        events = [part for part in parts if not isinstance(part, StreamedError)]
        failed = [part.error for part in parts if isinstance(part, StreamedError)]
        visible: list[replies.ReplyEvent] = []
        deltas: list[JsonObject] = []
        if events:
            self._is_finished = isinstance(
                events[-1], replies.ReplyFinished | replies.ReplyUnreadable
            )
            try:
                self._turn.receive_all(events, visible)
            except EnoughReadError:
                self._is_finished = True
                end_early(self._turn, visible)
            except errors.GuardrailsExhausted as error:
                self._error = error
                raise
            finally:
                deltas += self._show(visible)
        if failed:
            deltas += self.fail(as_error(ENGINE, read_streamed_refusal(failed[0])))
        return deltas

    def _show(self, events: Sequence[replies.ReplyEvent]) -> list[JsonObject]:
        for event in events:
            self._reply.add(event)
            if isinstance(event, replies.ReplyFinished):
                self._reason = event.reason
        return [delta for event in events if (delta := delta_of(event))]


@dataclass(kw_only=True)
class Guardrails:
    """The guardrails for one model and its tools; each prompt is a turn.

    `tools` are functions, `@tool`s, or entries of `tools` in a chat request. The name of the
    `model` and its chat `template` select the profile. If there is a `window` (in tokens), long
    histories are shortened to fit; their sizes are estimates. `engine` selects the request fields
    that constrain the last attempt. A turn has at most `attempts` generations. If all of them are
    rejected, a `strict` turn raises `GuardrailsExhausted` instead of returning the best reply.
    Without `rescue`, calls that a model writes as text are not recognized. Raises `InvalidRequest`
    for invalid tools, and `ValueError` for a `workflow` with unknown tools.
    """

    tools: Toolset | Sequence[ToolLike] = ()
    model: str = ""
    template: str = ""
    workflow: Workflow = NO_RULES
    window: int | None = None
    engine: Literal["openai", "llama-server"] = "openai"
    text_policy: Literal["auto", "accept", "respond", "require"] | None = None
    attempts: int = MOST_ATTEMPTS
    strict: bool = False
    rescue: bool = True

    def __post_init__(self) -> None:
        expect_positive("attempts", self.attempts)
        self._tool_members, aliases = _read_tools(self.tools)
        # decoding any request checks the tools, so the content of this request does not matter
        request: JsonObject = {"messages": [{"role": "user", "content": ""}]}
        known = {tool.name for tool in self._request(request).tools}
        for rule, name in self.workflow.tools():
            if name not in known:
                raise ValueError(f"workflow.{rule}: unknown tool {name!r}")
        evidence = Evidence((self.model,), template=self.template)
        quirks = identify_model(self.model, evidence, load_profiles(), Overrides()).quirks
        self._policy = Policy(
            replace(quirks, aliases={**quirks.aliases, **aliases}),
            None if self.text_policy is None else TextPolicy(self.text_policy),
            self.attempts,
            self.strict,
            workflow=self.workflow,
            without=frozenset() if self.rescue else frozenset({"rescue"}),
            shows_pieces=True,
        )
        self._book = TokenBook()

    def turn(
        self,
        messages: Iterable[object],
        *,
        tool_choice: JsonValue = "auto",
        response_format: JsonValue = None,
        parameters: Mapping[str, JsonValue] | None = None,
        stream: bool = False,
    ) -> GuardedTurn:
        """Start a turn with the whole history, which is not modified.

        Messages may be dictionaries or objects of an SDK. `parameters` are additional members of
        each request, such as `max_tokens`. With `stream`, the parts of calls are deltas, too.
        Deltas are never retracted, so if parts of a call were shown, a retry must complete the same
        call. Raises `InvalidRequest` for an invalid history, and `ContextOverflow` if even the
        shortened history does not fit into the window.
        """
        members: JsonObject = {**(parameters or {}), "messages": [*map(plain, messages)]}
        members["stream"] = stream
        if self._tool_members:
            members["tool_choice"] = tool_choice
        if response_format is not None:
            members["response_format"] = response_format
        plan = self._plan(members)
        fitted = None
        if self.window is not None:
            context = ContextPolicy()
            window = context.window(self.window, self._book.count_error)
            fitted = plan.fit(context.compaction(self._book, window))
        # `lambda: True` allows every retry: the program decides itself which requests it sends
        turn = begin(plan, lambda: f"call_{uuid4().hex[:24]}", lambda: True, fitted)
        return GuardedTurn(turn, SdkRequests(self.engine, self.window, self._book))

    def plan(self, messages: Iterable[object]) -> RequestPlan:
        """Return the plan for judging a reply to a history; raises `InvalidRequest`."""
        return self._plan({"messages": [*map(plain, messages)]})

    def _plan(self, members: JsonObject) -> RequestPlan:
        return plan_request(self._request(members), self._policy)

    def _request(self, members: JsonObject) -> Request:
        tools: JsonObject = {"tools": [*self._tool_members]} if self._tool_members else {}
        return decode_request(json.dump({"model": self.model, **members, **tools}))


def plain(value: object) -> JsonObject:
    """Convert an object of an SDK to a dictionary; raises TypeError for other types."""
    if isinstance(value, BaseModel):  # objects of SDKs
        value = value.model_dump(mode="json", exclude_none=True, warnings=False)
    if not isinstance(value, dict):
        raise TypeError(f"expected a dictionary or an SDK's object, not {type(value).__name__}")
    return value


def is_over(completion: JsonObject) -> bool:
    """Return whether this is a whole completion, or a chunk with a finish reason."""
    choices = completion.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else {}
    return isinstance(first, dict) and bool(first.get("finish_reason") or "message" in first)


def _read_tools(tools: Toolset | Sequence[ToolLike]) -> tuple[list[JsonObject], Mapping[str, str]]:
    """Return tools as members of a chat request, and their aliases."""
    if isinstance(tools, Toolset):
        return tools.openai(), tools.aliases
    functions = Toolset(tool for tool in tools if not isinstance(tool, Mapping))
    entries_of_functions = iter(functions.openai())
    entries = [
        dict(tool) if isinstance(tool, Mapping) else next(entries_of_functions) for tool in tools
    ]
    return cast("list[JsonObject]", entries), functions.aliases
