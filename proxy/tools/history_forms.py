"""Converts conversations from and to the formats of Anthropic's and Gemini's API.

    user "Hi"; assistant calls weather({"city": "Oslo"}) as `a`; the result of `a` is "21 degrees"

    anthropic   {"messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]},
                 {"role": "assistant", "content": [{"type": "tool_use", "id": "a", ...}]},
                 {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", ...}]}]}
    gemini      {"contents": [{"role": "user", "parts": [{"text": "Hi"}]},
                 {"role": "model", "parts": [{"functionCall": {"id": "a", ...}}]},
                 {"role": "user", "parts": [{"functionResponse": {"id": "a", ...}}]}]}

Anthropic's format is converted by `dialects.anthropic_messages`. There is no dialect for Gemini, so
this module converts its texts, images, calls and results; other parts raise `InvalidRequest`. Calls
of Gemini may lack an id. A result without an id belongs to the first call of the same function that
has no result yet.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, cast

from proxy.conversation import json, roles
from proxy.conversation.failures import reports_failure
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.messages import Message, Messages, call_object
from proxy.conversation.parts import Attachment, Image, Text
from proxy.conversation.tools import ToolCall
from proxy.dialects.anthropic_messages.history import read_history
from proxy.dialects.anthropic_messages.tools import ToolSet
from proxy.dialects.anthropic_messages.upstream.encode import encode_history
from proxy.dialects.engine_language import read_picture
from proxy.dialects.lenient_json import as_object, parse_object
from proxy.dialects.openai_chat.decode import decode_messages
from proxy.dialects.raw_json import Node
from proxy.errors import InvalidRequest

HistoryForm: TypeAlias = Literal["openai", "anthropic", "gemini"]

_INSTRUCTION = "systemInstruction"


def read_form(messages: Iterable[Mapping[str, JsonValue]], form: HistoryForm) -> Messages:
    """Read the messages of a request in one of the formats; raises `InvalidRequest`."""
    objects = [{**message} for message in messages]
    match form:
        case "openai":
            return decode_messages([json.dump(message) for message in objects])
        case "anthropic":
            source = json.dump([*objects])
            history, _ = read_history(None, Node(json.parse(source), source, "messages"), ToolSet())
            return history
        case "gemini":
            return decode_messages(
                [json.dump(message) for message in _GeminiReader().read(objects)]
            )


def write_form(messages: Messages, form: HistoryForm) -> JsonObject:
    """Return the members of a request that hold a conversation; raises `InvalidRequest`."""
    match form:
        case "openai":
            return {"messages": [json.parse(message.source) for message in messages]}
        case "anthropic":
            history = encode_history(messages)
            system: JsonObject = (
                {"system": json.parse(json.join_array(history.system))} if history.system else {}
            )
            return {**system, "messages": json.parse(json.join_array(history.messages))}
        case "gemini":
            return _write_gemini(messages)


def _write_gemini(messages: Messages) -> JsonObject:
    # Gemini requires the name of the function in a result, and a tool message may lack this name
    names = {call.id: call.name for message in messages for call in message.calls}
    instructions: list[JsonValue] = []
    contents: list[JsonObject] = []
    for index, message in enumerate(messages):
        if message.role in roles.SYSTEM and not contents:
            instructions.append({"text": message.text})
            continue
        role = "model" if message.role == "assistant" else "user"
        parts = [*_gemini_parts(message, f"messages.{index}", names)]
        # The API requires alternating roles, and all results of a reply in one message.
        if contents and contents[-1]["role"] == role:
            cast("list[JsonValue]", contents[-1]["parts"]).extend(parts)
        elif parts:
            contents.append({"role": role, "parts": [*parts]})
    system: JsonObject = {_INSTRUCTION: {"parts": instructions}} if instructions else {}
    return {**system, "contents": [*contents]}


def _gemini_parts(message: Message, path: str, names: Mapping[str, str]) -> Iterator[JsonObject]:
    if message.tool_call_id is not None:
        yield _gemini_result(message, names)
        return
    for part in message.parts:
        if isinstance(part, Text) and part.text:
            yield {"text": part.text}
        elif isinstance(part, Image):
            picture = read_picture(part, path)
            yield {"inlineData": {"mimeType": picture.media_type, "data": picture.data}}
        elif isinstance(part, Attachment):
            problem = f"Only texts and images can be written for Gemini, not {part.kind!r}."
            raise InvalidRequest(problem, f"{path}.{part.path}")
    for call in message.calls:
        arguments = parse_object(call.arguments) or {}
        yield {"functionCall": {"id": call.id, "name": call.name, "args": arguments}}


def _gemini_result(message: Message, names: Mapping[str, str]) -> JsonObject:
    call_id = message.tool_call_id or ""
    member = "error" if reports_failure(message) else "output"
    response: JsonObject = parse_object(message.text) or {member: message.text}
    name = names.get(call_id, message.name)
    return {"functionResponse": {"id": call_id, "name": name, "response": response}}


@dataclass(slots=True)
class _GeminiReader:
    """Reads `contents`; `open_calls` are the ids and names of the calls without a result."""

    open_calls: list[tuple[str, str]] = field(default_factory=list)
    count: int = 0

    def read(self, contents: Sequence[JsonObject]) -> Iterator[JsonObject]:
        for index, content in enumerate(contents):
            path, role = f"contents.{index}", content.get("role", "user")
            if role not in ("user", "model"):
                raise InvalidRequest(f"Expected 'user' or 'model', got {role!r}.", f"{path}.role")
            parts = content.get("parts")
            if not isinstance(parts, list) or not all(isinstance(part, dict) for part in parts):
                raise InvalidRequest("Expected an array of objects.", f"{path}.parts")
            part_objects = cast("list[JsonObject]", parts)
            yield from self._read_content(part_objects, f"{path}.parts", is_model=role == "model")

    def _read_content(
        self, parts: list[JsonObject], path: str, *, is_model: bool
    ) -> Iterator[JsonObject]:
        texts: list[JsonValue] = []
        calls: list[JsonValue] = []
        for index, part in enumerate(parts):
            if part.get("thought"):  # a summary of the reasoning; upstream requests do not need it
                continue
            match part:
                case {"text": str(text)}:
                    texts.append({"type": "text", "text": text})
                case {"inlineData": {"mimeType": str(kind), "data": str(data)}}:
                    url: JsonObject = {"url": f"data:{kind};base64,{data}"}
                    texts.append({"type": "image_url", "image_url": url})
                case {"functionCall": {"name": str(name)}} if is_model:
                    calls.append(self._read_call(name, as_object(part["functionCall"])))
                case {"functionResponse": {"name": str(name)}} if not is_model:
                    result = as_object(part["functionResponse"])
                    yield self._read_result(name, result, f"{path}.{index}")
                case _:
                    problem = f"Cannot read a part with {', '.join(part) or 'no members'}."
                    raise InvalidRequest(problem, f"{path}.{index}")
        if texts or calls:
            message: JsonObject = {"role": "assistant" if is_model else "user", "content": texts}
            yield {**message, "tool_calls": calls} if calls else message

    def _read_call(self, name: str, call: Mapping[str, JsonValue]) -> JsonObject:
        self.count += 1
        call_id = str(call.get("id") or f"call_{self.count}")
        self.open_calls.append((call_id, name))
        return call_object(ToolCall(call_id, name, json.dump_text(as_object(call.get("args")))))

    def _read_result(self, name: str, result: Mapping[str, JsonValue], path: str) -> JsonObject:
        call_id = result.get("id")
        matches = [
            call for call in self.open_calls if call_id in (call[0], None) and name == call[1]
        ]
        if not matches:
            problem = f"This result matches no earlier call of {name!r} without a result."
            raise InvalidRequest(problem, path)
        self.open_calls.remove(matches[0])
        response = as_object(result.get("response"))
        single_value = next(iter(response.values())) if len(response) == 1 else None
        text = single_value if isinstance(single_value, str) else json.dump_text(response)
        if "error" in response and isinstance(single_value, str):
            text = json.dump_text(response)  # keeps the member "error", which marks a failure
        return {"role": "tool", "tool_call_id": matches[0][0], "content": text}
