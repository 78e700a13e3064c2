"""To Ollama's chat language: a question as the body of `/api/chat`.

Always streamed, never cut: with `truncate` or `shift` Ollama would drop the oldest messages or half
of the prompt in silence. Both, and the window, are the same in every question, because a change of
either makes Ollama load the model again.
"""

from collections.abc import Iterable

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.messages import Message
from proxy.conversation.requests import Question
from proxy.conversation.tools import ToolCall, ToolUse
from proxy.dialects.engine_language import read_picture
from proxy.dialects.lenient_json import as_list, as_object, as_text, parse_object
from proxy.dialects.ollama_chat.fields import ModelSettings, body_fields
from proxy.dialects.ollama_chat.tools import encode_tool
from proxy.errors import InvalidRequest


def encode_question(question: Question, terms: ModelSettings) -> bytes:
    """Write the request body; raises InvalidRequest for what Ollama cannot do."""
    body: JsonObject = {"model": terms.model, "messages": encode_messages(question.messages)}
    # Ollama cannot be told to leave calls alone: it would parse one out of the text although the
    # client forbade it. So the model is not told of the tools, which costs the cached prompt.
    if question.tools and question.tool_choice is not ToolUse.NONE:
        body["tools"] = [encode_tool(tool) for tool in question.tools]
    body |= {"stream": True, "truncate": False, "shift": False}
    return json.dump(body | body_fields(question, terms))


_ROLES = {"developer": "system", "function": "tool"}
_THOUGHTS = ("reasoning_content", "reasoning", "thinking")
_TEXTS = ("text", "refusal")


def encode_messages(messages: Iterable[Message]) -> list[JsonValue]:
    """Write messages; raises InvalidRequest for content that Ollama does not take."""
    names: dict[str, str] = {}
    encoded: list[JsonValue] = []
    for place, message in enumerate(messages):
        names.update((call.id, call.name) for call in message.calls)
        encoded.append(_message(message, f"messages.{place}", names))
    return encoded


def first_picture(messages: Iterable[Message]) -> str | None:
    """Name the field of the first picture, None if there is none."""
    for place, message in enumerate(messages):
        if b'"image_url"' in message.source:
            for number, part in enumerate(as_list(_members(message).get("content"))):
                if as_object(part).get("type") == "image_url":
                    return f"messages.{place}.content.{number}"
    return None


def _members(message: Message) -> JsonObject:
    members = json.parse(message.source)
    assert isinstance(members, dict)  # noqa: S101 - a message is an object
    return members


def _message(message: Message, param: str, names: dict[str, str]) -> JsonValue:
    members = _members(message)
    content = members.get("content")
    encoded: JsonObject = {"role": _ROLES.get(message.role, message.role), "content": message.text}
    if isinstance(content, list):
        texts, pictures = _parts(content, param)
        encoded["content"] = texts
        if pictures:
            encoded["images"] = pictures
    if message.role == "assistant" and (thoughts := _thoughts(members)):
        encoded["thinking"] = thoughts
    if message.calls:
        encoded["tool_calls"] = [
            _call(place, call, param) for place, call in enumerate(message.calls)
        ]
    if encoded["role"] == "tool":
        encoded |= _origin(message, members, names)
    return encoded


def _parts(content: list[JsonValue], param: str) -> tuple[str, list[JsonValue]]:
    texts: list[str] = []
    pictures: list[JsonValue] = []
    for number, part in enumerate(content):
        assert isinstance(part, dict)  # noqa: S101 - as the request was checked
        kind = f"{part.get('type')}"
        where = f"{param}.content.{number}"
        if kind in _TEXTS:
            texts.append(f"{part.get(kind) or ''}")
        elif kind == "image_url":
            pictures.append(read_picture(part, where).data)
        elif kind not in _THOUGHTS:
            problem = f"Ollama takes text and pictures, and no {kind!r}. Leave it out."
            raise InvalidRequest(problem, where)
    return "\n".join(texts), pictures


def _thoughts(members: JsonObject) -> str:
    """Find what was thought, in a member or in parts of the content."""
    written = [members.get(name) for name in _THOUGHTS]
    parts = map(as_object, as_list(members.get("content")))
    written += [part.get(name) for part in parts for name in _THOUGHTS if part.get("type") == name]
    return next(filter(None, map(as_text, written)), "")


def _call(place: int, call: ToolCall, param: str) -> JsonValue:
    arguments = parse_object(call.arguments) if call.arguments.strip() else {}
    if arguments is None:
        problem = "Ollama takes arguments only if they are a JSON object."
        raise InvalidRequest(problem, f"{param}.tool_calls.{place}.function.arguments")
    function: JsonObject = {"index": place, "name": call.name, "arguments": arguments}
    return {"id": call.id, "function": function} if call.id else {"function": function}


def _origin(message: Message, members: JsonObject, names: dict[str, str]) -> JsonObject:
    """Tell which call a result belongs to: templates want the name, newer ones the id."""
    origin: JsonObject = {}
    name = names.get(message.tool_call_id or "") or members.get("name")
    if isinstance(name, str):
        origin["tool_name"] = name
    if message.tool_call_id:
        origin["tool_call_id"] = message.tool_call_id
    return origin
