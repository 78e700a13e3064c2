"""From the chat completions language: a client's request, a backend's chunks and its errors.

Clients get a sentence about the first thing that is wrong; backends are read as leniently as can
be without guessing.
"""

from dataclasses import dataclass
from typing import TypeAlias

from msgspec.structs import replace

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonSchema, JsonValue
from proxy.conversation.messages import Message
from proxy.conversation.replies import (
    PromptProgress,
    ReasoningDelta,
    ReplyEvent,
    ReplyFinished,
    ReplyStarted,
    TextDelta,
    UsageReported,
)
from proxy.conversation.requests import Request
from proxy.conversation.tools import NamedTool, Tool, ToolCall, ToolChoice, ToolUse
from proxy.dialects.openai_chat.calls import CallsInProgress
from proxy.dialects.openai_chat.fragments import ArgumentsFragment, Fragment, fragment_in
from proxy.dialects.openai_chat.schema import (
    ChatMessage,
    Choice,
    ChosenTool,
    MadeCall,
    OfferedTool,
    ResponseFormat,
    SeveralTools,
    validate,
)
from proxy.dialects.openai_chat.thinking import thinking_in
from proxy.dialects.openai_chat.tool_rounds import expanded
from proxy.dialects.openai_chat.workflow_rules import workflow_in
from proxy.dialects.raw_json import kind, read_object
from proxy.errors import InvalidRequest

_NO_PARAMETERS: JsonObject = {"type": "object", "properties": {}}
_ANY_OBJECT: JsonObject = {"type": "object"}


def decode_request(body: bytes) -> Request:
    """Read a client's request; raises InvalidRequest."""
    body, failed = expanded(body)
    checked = validate(read_object(body))
    fields = json.split_object(body)
    tools = _tools(checked.tools or [], fields)
    choice, allowed = read_choice(checked.tool_choice, tools)
    if allowed is not None:  # few backends know the form, and the rest of it is enforced here
        fields["tool_choice"] = b'"required"' if choice is ToolUse.REQUIRED else b'"auto"'
    messages = tuple(map(_message, checked.messages, json.split_array(fields["messages"])))
    if failed:
        messages = tuple(
            replace(message, failed=failed.get(place)) for place, message in enumerate(messages)
        )
    limit = checked.max_completion_tokens
    return Request(
        model=checked.model or "",
        messages=messages,
        fields=fields,
        tools=tools,
        tool_choice=choice,
        parallel_tool_calls=checked.parallel_tool_calls is not False,
        stream=bool(checked.stream),
        include_usage=bool(checked.stream_options and checked.stream_options.include_usage),
        max_tokens=limit if limit is not None else checked.max_tokens,
        stop_strings=any(checked.stop or ()),
        answer_schema=_answer_schema(checked.response_format),
        workflow=workflow_in(checked.temper, messages, tools),
        allowed_tools=allowed,
        thinking=thinking_in(fields),
        wants_rounds=bool(checked.temper and checked.temper.tool_rounds),
    )


def decode_messages(sources: list[bytes]) -> tuple[Message, ...]:
    """Read messages, each a JSON document; raises InvalidRequest."""
    if not sources:
        return ()
    body = json.join_object({"messages": json.join_array(sources)})
    return tuple(map(_message, validate(read_object(body)).messages, sources))


def _message(checked: ChatMessage, source: bytes) -> Message:
    calls = tuple(map(_call, checked.tool_calls)) if checked.tool_calls else ()
    return Message(checked.role, _text(checked), source, calls, checked.tool_call_id)


def _text(checked: ChatMessage) -> str:
    if checked.content is None or isinstance(checked.content, str):
        return checked.content or ""
    return "\n".join(part.text for part in checked.content if part.text is not None)


def _call(made: MadeCall) -> ToolCall:
    arguments = made.function.arguments
    text = json.dump_text(arguments) if isinstance(arguments, dict) else arguments or ""
    return ToolCall(made.id or "", made.function.name, text)


def _tools(offered: list[OfferedTool], fields: dict[str, bytes]) -> tuple[Tool, ...]:
    if not offered:
        return ()
    tools: dict[str, Tool] = {}
    for position, source in enumerate(json.split_array(fields["tools"])):
        function = offered[position].function
        param = f"tools.{position}.function.name"
        check_name(function.name, param)
        if function.name in tools:
            raise InvalidRequest(f"Two tools are named {function.name!r}. Rename one.", param)
        parameters = _NO_PARAMETERS if function.parameters is None else function.parameters
        tools[function.name] = Tool(function.name, parameters, source)
    return tuple(tools.values())


def check_name(name: str, param: str) -> None:
    """Refuse what is no name of a function; `param` is where it stands."""
    if not name.strip():
        raise InvalidRequest("Expected the name of the function, got an empty string.", param)
    if not name.isprintable():
        raise InvalidRequest("A name must not contain control or invisible characters.", param)


def _answer_schema(wanted: ResponseFormat | None) -> JsonSchema | None:
    """Return the schema of the answers that a client can use; None where it takes any text."""
    if wanted is None or wanted.type == "text":
        return None
    schema = wanted.schema_ if wanted.json_schema is None else wanted.json_schema.schema_
    return _ANY_OBJECT if schema is None else schema


@dataclass(frozen=True, slots=True)
class StreamedError:
    """A backend failed in the middle of its reply; `error` is as `decode_error` returns it."""

    error: JsonObject


ReplyPart: TypeAlias = ReplyEvent | StreamedError


class ChunkDecoder:
    """Turns a backend's stream of chunks into the events of one reply.

    Both methods raise ValueError for what is no reply. Nothing is read after the end.
    """

    def __init__(self) -> None:
        self._is_started = False
        self._is_ended = False
        self._reason = ""
        self._usage: JsonObject | None = None
        self._timings: JsonObject | None = None
        self._calls = CallsInProgress()

    def feed(self, data: str) -> list[ReplyPart]:
        """Return what one server-sent event's data says: a chunk or `[DONE]`."""
        if self._is_ended or not data or data.isspace():
            return []
        found = fragment_in(data) if self._is_started else None
        if found is not None and (more := self.go_on(found, [found.text])) is not None:
            return more
        if data.strip() == "[DONE]":
            return self.finish()
        chunk = json.parse(data)
        if not isinstance(chunk, dict):
            raise ValueError(f"a chunk is {kind(chunk)}")
        if chunk.get("error") or ("choices" not in chunk and _string(chunk.get("message"))):
            self._is_ended = True
            return [StreamedError(_error(chunk))]
        return self._read(chunk)

    def go_on(self, sample: Fragment, texts: list[str]) -> list[ReplyPart] | None:
        """Return what further chunks say that are like one with `sample`, but for their texts.

        None where they take a closer look.
        """
        if self._is_ended:
            return []
        match sample:
            case ArgumentsFragment(number):
                return [*more] if (more := self._calls.go_on(number, texts)) else None
            case TextDelta():
                return [*map(TextDelta, filter(None, texts))]
            case ReasoningDelta():
                return [*map(ReasoningDelta, filter(None, texts))]

    def finish(self) -> list[ReplyPart]:
        """Return the last events: only the end reports that nothing follows the finish reason."""
        if self._is_ended:
            return []
        if not self._reason:
            raise ValueError("the reply ended before finishing")
        self._is_ended = True
        parts: list[ReplyPart] = [*self._calls.finish()]
        if self._usage is not None:
            parts.append(UsageReported(self._usage, self._timings))
        parts.append(ReplyFinished(self._reason))
        return parts

    def _read(self, chunk: JsonObject) -> list[ReplyPart]:
        parts: list[ReplyPart] = []
        choices = chunk.get("choices") or []
        if not isinstance(choices, list):
            raise ValueError(f"choices are {kind(choices)}")
        if not self._is_started and (choices or chunk.get("id") or "prompt_progress" in chunk):
            parts.append(_started(chunk))
            self._is_started = True
        if not self._note(chunk, parts) and "choices" not in chunk:
            raise ValueError("a chunk says nothing known")
        for choice in choices:
            if not isinstance(choice, dict):
                raise ValueError(f"a choice is {kind(choice)}")
            if not choice.get("index"):
                self._read_choice(choice, parts)
        return parts

    def _note(self, chunk: JsonObject, parts: list[ReplyPart]) -> bool:
        """Keep what belongs to the whole reply; tell whether there was anything of the kind."""
        told = False
        if isinstance(usage := chunk.get("usage"), dict):
            self._usage, told = usage, True
        if isinstance(timings := chunk.get("timings"), dict):
            self._timings, told = timings, True
        if isinstance(progress := chunk.get("prompt_progress"), dict):
            counts = [_count(progress.get(name)) for name in ("total", "cache", "processed")]
            parts.append(PromptProgress(*counts))
            told = True
        return told

    def _read_choice(self, choice: JsonObject, parts: list[ReplyPart]) -> None:
        delta = choice.get("delta")
        if delta is None:
            delta = choice.get("message") or {}
        if not isinstance(delta, dict):
            raise ValueError(f"a delta is {kind(delta)}")
        reasoning = delta.get("reasoning_content") or delta.get("reasoning")
        if reasoning and isinstance(reasoning, str):
            parts.append(ReasoningDelta(reasoning))
        text = delta.get("content") or ""
        if not isinstance(text, str):
            raise ValueError(f"content is {kind(text)}")
        if text:
            parts.append(TextDelta(text, choice.get("logprobs")))
        self._read_calls(delta, parts)
        self._reason = _string(choice.get("finish_reason")) or self._reason

    def _read_calls(self, delta: JsonObject, parts: list[ReplyPart]) -> None:
        fragments = delta.get("tool_calls") or []
        if not isinstance(fragments, list):
            raise ValueError(f"tool calls are {kind(fragments)}")
        for position, fragment in enumerate(fragments):
            if not isinstance(fragment, dict):
                raise ValueError(f"a tool call is {kind(fragment)}")
            parts += self._calls.add(position, fragment)


def decode_error(body: bytes) -> JsonObject:
    """Find the error in the body of a failure: an object that always has a string `message`."""
    try:
        document = json.parse(body)
    except ValueError:
        document = body.decode("utf-8", "replace").strip()
    if isinstance(document, dict):
        return _error(document)
    return {"message": document if isinstance(document, str) else json.dump_text(document)}


def _error(document: JsonObject) -> JsonObject:
    found = document.get("error")
    if isinstance(found, str):
        return {**document, "message": found}
    if not isinstance(found, dict):
        found = document
    message = found.get("message") or found.get("detail") or found
    return {**found, "message": message if isinstance(message, str) else json.dump_text(message)}


def _started(chunk: JsonObject) -> ReplyStarted:
    return ReplyStarted(
        id=_string(chunk.get("id")) or None,
        created=_count(chunk.get("created")) or None,
        model=_string(chunk.get("model")) or None,
        system_fingerprint=_string(chunk.get("system_fingerprint")) or None,
    )


def _string(value: JsonValue) -> str:
    return value if isinstance(value, str) else ""


def _count(value: JsonValue) -> int:
    if isinstance(value, float):
        return int(value) if value.is_integer() else 0
    return value if isinstance(value, int) else 0


_PARAM = "tool_choice"

# How tools may be used, and the only ones that may be called, where the client says so.
ReadChoice: TypeAlias = tuple[ToolChoice, frozenset[str] | None]


def read_choice(wanted: Choice | None, tools: tuple[Tool, ...]) -> ReadChoice:
    """Read a choice among these tools; raises `InvalidRequest` for one that they do not leave."""
    choice = wanted or "auto"
    if not tools and choice not in ("auto", "none"):
        raise InvalidRequest("It asks for a tool call, but `tools` is empty.", _PARAM)
    match choice:
        case ChosenTool():
            return NamedTool(_name_in(choice, tools, _PARAM)), None
        case SeveralTools(allowed_tools=some):
            param = f"{_PARAM}.allowed_tools.tools"
            names = [
                _name_in(one, tools, f"{param}.{place}") for place, one in enumerate(some.tools)
            ]
            return ToolUse(some.mode), frozenset(names)
        case _:
            return ToolUse(choice), None


def _name_in(choice: ChosenTool, tools: tuple[Tool, ...], param: str) -> str:
    name = choice.function.name
    names = [tool.name for tool in tools]
    if name not in names:
        known = ", ".join(names)
        problem = f"There is no tool {name!r} among the offered ones: {known}."
        raise InvalidRequest(problem, f"{param}.function.name")
    return name
