"""Writer of upstream requests for Anthropic's API: `/v1/messages` and its token counting.

    {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 9}
    -> {"model": "m", "max_tokens": 9, "stream": true,
        "messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}]}

Upstream requests are always streamed. Their bytes depend only on the client's request, and the next
request of a conversation begins with the same messages.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from proxy.conversation import json, roles
from proxy.conversation.json import JsonObject
from proxy.conversation.messages import Message
from proxy.conversation.parts import Attachment, Image, Reasoning, Text
from proxy.conversation.reminders import CLOSING, OPENING
from proxy.conversation.requests import UpstreamRequest
from proxy.conversation.tools import Tool
from proxy.dialects.anthropic_messages.upstream.fields import ModelLimits, body_fields
from proxy.dialects.engine_language import read_picture
from proxy.dialects.foreign_history import SIGNATURE
from proxy.dialects.lenient_json import parse_object
from proxy.dialects.raw_json import JsonText, join_lines, own_text
from proxy.errors import InvalidRequest

# only these fields change the prompt, and therefore its token count
_COUNTED = ("tool_choice", "thinking", "output_config")


def encode_request(upstream_request: UpstreamRequest, options: ModelLimits) -> bytes:
    """Write the request body; raises InvalidRequest for fields that the API does not have."""
    limit = options.limit(upstream_request.request.max_tokens)
    fields = {name: json.dump(value) for name, value in body_fields(upstream_request).items()}
    head = {"model": json.dump(options.model), "max_tokens": json.dump(limit), "stream": b"true"}
    return json.join_object({**head, **fields, **_prompt(upstream_request)})


def encode_count(upstream_request: UpstreamRequest, options: ModelLimits) -> bytes:
    """Write the body of a request for a token count; raises as `encode_request` does."""
    fields = body_fields(upstream_request)
    counted = {name: json.dump(fields[name]) for name in _COUNTED if name in fields}
    return json.join_object(
        {"model": json.dump(options.model), **counted, **_prompt(upstream_request)}
    )


def _prompt(upstream_request: UpstreamRequest) -> dict[str, bytes]:
    history = encode_history(upstream_request.messages)
    prompt: dict[str, bytes] = {}
    if upstream_request.tools:
        prompt["tools"] = json.join_array([encode_tool(tool) for tool in upstream_request.tools])
    if history.system:
        prompt["system"] = json.join_array(history.system)
    return {**prompt, "messages": json.join_array(history.messages)}


_PICTURES = ("image/jpeg", "image/png", "image/gif", "image/webp")
_INVALID_IN_ID = re.compile(r"[^a-zA-Z0-9_-]")  # the API rejects these characters in ids
_EMPTY_MESSAGE = b'{"type":"text","text":"(empty message)"}'  # the API rejects empty content
_OPENING, _CLOSING = own_text(OPENING), own_text(CLOSING)
_BLANK = frozenset({b"null", b'""'})


def encode_tool(tool: Tool) -> bytes:
    """Write a tool without `strict`: it limits schemas, and Temper validates arguments itself."""
    function = json.split_object(json.split_object(tool.source)["function"])
    members = {"name": json.dump(tool.name)}
    if (description := function.get("description", b"null").strip()) not in _BLANK:
        members["description"] = description
    return json.join_object({**members, "input_schema": _schema(tool, function)})


def _schema(tool: Tool, function: dict[str, bytes]) -> bytes:
    """Copy a schema; the API requires `"type": "object"`, which is added if it is missing."""
    if not isinstance(tool.parameters, dict):
        return json.dump({"type": "object"})
    raw = function.get("parameters", b"null").strip()
    if not raw.startswith(b"{"):
        return json.dump(tool.parameters)
    if tool.parameters.get("type") == "object":
        return raw
    return json.join_object({**json.split_object(raw), "type": b'"object"'})


class EncodedHistory(NamedTuple):
    """A conversation: the text blocks of the system prompt, and the messages, each as JSON."""

    system: list[bytes]
    messages: list[bytes]


@dataclass(slots=True)
class _MessageDraft:
    """A message in progress: the `results` of calls, by call id, followed by `blocks`."""

    role: str
    blocks: list[bytes] = field(default_factory=list)
    results: list[tuple[str, list[bytes]]] = field(default_factory=list)

    def write(self) -> bytes:
        results: list[bytes] = []
        for call_id, blocks in self.results:
            head = b'{"type":"tool_result","tool_use_id":%b' % json.dump(call_id)
            results.append(head + (b',"content":%b}' % json.join_array(blocks) if blocks else b"}"))
        content = json.join_array([*results, *self.blocks])
        return b'{"role":"%b","content":%b}' % (self.role.encode(), content)


class _EncodedCall(NamedTuple):
    """A call: its id in the API, and the message to which its result is added."""

    call_id: str
    message: _MessageDraft


@dataclass(slots=True)
class _ConversationWriter:
    system: list[bytes] = field(default_factory=list)
    _entries: list[_MessageDraft] = field(default_factory=list)
    _calls: dict[str, _EncodedCall] = field(default_factory=dict)  # by the client's id
    _ids: dict[str, int] = field(default_factory=dict)  # how often each id occurred

    def add(self, message: Message, param: str) -> None:
        if message.role in roles.SYSTEM:
            self._add_system(_texts(message, param))
        elif message.role == "user":
            blocks = _blocks(message, param)
            self._entries.append(_MessageDraft("user", blocks or [_EMPTY_MESSAGE]))
        elif message.role == "assistant":
            self._add_answer(message, param)
        else:
            self._add_result(message, param)

    def messages(self) -> list[bytes]:
        """Return the messages; the API requires that the first message is a user message."""
        entries = [entry for entry in self._entries if entry.blocks or entry.results]
        if not entries or entries[0].role != "user":
            entries.insert(0, _MessageDraft("user", [_EMPTY_MESSAGE]))
        return [entry.write() for entry in entries]

    def _add_system(self, texts: list[JsonText]) -> None:
        """Add texts to the system prompt, or as a reminder if messages precede them.

        The API has no system messages within a conversation.
        """
        if not self._entries:
            self.system += map(_text_block, texts)
        elif texts:
            reminder = _text_block(join_lines([_OPENING, *texts, _CLOSING]))
            last = self._last()
            if last.role == "assistant":
                self._entries.append(_MessageDraft("user", [reminder]))
            else:
                (last.blocks or last.results[-1][1]).append(reminder)

    def _last(self) -> _MessageDraft:
        """Return the last entry with content."""
        filled = (entry for entry in reversed(self._entries) if entry.blocks or entry.results)
        return next(filled, self._entries[-1])

    def _add_answer(self, message: Message, param: str) -> None:
        # the API requires that the next message has the results of all calls of this message
        results = _MessageDraft("user")
        blocks = [*_signed_thoughts(message), *map(_text_block, _texts(message, param))]
        for call in message.calls:
            call_id = self._new_id(call.id)
            self._calls[call.id] = _EncodedCall(call_id, results)
            head = json.dump(call_id), json.dump(call.name), _input(call.arguments)
            blocks.append(b'{"type":"tool_use","id":%b,"name":%b,"input":%b}' % head)
        self._entries.append(_MessageDraft("assistant", blocks))
        if message.calls:
            self._entries.append(results)

    def _add_result(self, message: Message, param: str) -> None:
        if message.tool_call_id is None:
            problem = "Anthropic's API requires the id of the call that a result belongs to."
            raise InvalidRequest(problem, f"{param}.tool_call_id")
        call = self._calls.get(message.tool_call_id)
        if call is None:  # a result without a call; the API's error for it is clear enough
            call_id = _INVALID_IN_ID.sub("_", message.tool_call_id)
            call = _EncodedCall(call_id, _MessageDraft("user"))
            self._entries.append(call.message)
        call.message.results.append((call.call_id, _blocks(message, param)))

    def _new_id(self, call_id: str) -> str:
        """Return a unique id without the characters that the API rejects."""
        valid_id = _INVALID_IN_ID.sub("_", call_id) or "call"
        count = self._ids[valid_id] = self._ids.get(valid_id, 0) + 1
        return valid_id if count == 1 else self._new_id(f"{valid_id}_{count}")


def encode_history(messages: Iterable[Message]) -> EncodedHistory:
    """Write a conversation; raises InvalidRequest for content that the API does not accept."""
    conversation = _ConversationWriter()
    for index, message in enumerate(messages):
        conversation.add(message, f"messages.{index}")
    return EncodedHistory(conversation.system, conversation.messages())


def _texts(message: Message, param: str) -> list[JsonText]:
    """Return the texts of a message whose role allows no pictures, without blank texts."""
    return [text for part in _content(message) if (text := _text(part, "only text", param)).text]


def _blocks(message: Message, param: str) -> list[bytes]:
    blocks: list[bytes] = []
    for part in _content(message):
        if isinstance(part, Image):
            blocks.append(_picture_block(part, param))
        elif (text := _text(part, "text and images", param)).text:
            blocks.append(_text_block(text))
    return blocks


def _content(message: Message) -> list[Text | Image | Attachment]:
    return [part for part in message.parts if not isinstance(part, Reasoning)]


def _text(part: Text | Image | Attachment, expected: str, param: str) -> JsonText:
    """Return a text; "" for a blank text, because the API rejects blank texts."""
    if isinstance(part, Text):
        return JsonText(part.text, part.source) if part.text.strip() else own_text("")
    problem = f"Anthropic's API accepts {expected} here, not {part.kind!r}. Remove it."
    raise InvalidRequest(problem, f"{param}.{part.path}")


def _text_block(text: JsonText) -> bytes:
    return b'{"type":"text","text":%b}' % text.source


def _picture_block(image: Image, param: str) -> bytes:
    picture = read_picture(image, param)
    if picture.media_type not in _PICTURES:
        problem = (
            f"Anthropic's API does not accept {picture.media_type!r}, only {', '.join(_PICTURES)}."
        )
        raise InvalidRequest(problem, f"{param}.{image.path}.image_url.url")
    source: JsonObject = {"type": "base64", "media_type": picture.media_type, "data": picture.data}
    return json.dump({"type": "image", "source": source})


def _input(arguments: str) -> bytes:
    """Return the bytes of arguments; arguments that are not an object are wrapped in an object."""
    if not arguments.strip():
        return b"{}"
    is_object = parse_object(arguments) is not None
    return arguments.encode() if is_object else json.dump({"unparsable": arguments})


def _signed_thoughts(message: Message) -> list[bytes]:
    """Return the thoughts that Anthropic has signed, because the API refuses all others."""
    return [
        part.signed
        for part in message.parts
        if isinstance(part, Reasoning) and part.signed and not part.signature.startswith(SIGNATURE)
    ]
