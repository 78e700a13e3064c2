"""Parses the content of a message into typed parts.

An engine with chat completions receives the bytes of `Message.source`. Code that converts a message
to another format, or measures it, uses `Message.parts`:

    {"role": "assistant", "reasoning_content": "A picture.",
     "content": [{"type": "text", "text": "See"},
                 {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}]}

    -> Reasoning("A picture."), Text("See", b'"See"', "content.0"),
       Image("data:image/png;base64,AA==", "content.1")

Tool calls are `Message.calls`, and the result of a call is a message with a `tool_call_id`.
"""

from collections.abc import Iterator, Mapping
from typing import TypeAlias

import msgspec

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue

# The names of the member with the reasoning: DeepSeek and llama.cpp write `reasoning_content`,
# OpenRouter and vLLM `reasoning`, Ollama and Anthropic `thinking`.
REASONING_MEMBERS = ("reasoning_content", "reasoning", "thinking")
_REASONING = (*REASONING_MEMBERS, "redacted_thinking")
_TEXTS = ("text", "refusal")
# In this member, LiteLLM stores Anthropic's blocks with reasoning. Anthropic requires the fields of
# these blocks in later turns.
_SIGNED = "thinking_blocks"
_SIGNED_FIELDS = {"thinking": ("thinking", "signature"), "redacted_thinking": ("data",)}


class Text(msgspec.Struct, frozen=True):
    """A text; `source` is its JSON string as the client wrote it, with the client's escapes."""

    text: str
    source: bytes
    path: str = "content"


class Image(msgspec.Struct, frozen=True):
    """A picture; `url` is usually a `data:` URL, "" if the part has no URL."""

    url: str
    path: str
    kind: str = "image_url"


class Attachment(msgspec.Struct, frozen=True):
    """A part of another `kind`: `input_audio`, `file`, `video_url`, or an unknown kind."""

    kind: str
    path: str


class Reasoning(msgspec.Struct, frozen=True):
    """Reasoning before an answer; `signed` is Anthropic's block with its `signature`, or b""."""

    text: str
    signature: str = ""
    signed: bytes = b""


Part: TypeAlias = Text | Image | Attachment | Reasoning


def read_parts(source: bytes) -> Iterator[Part]:
    """Read a message's JSON object; reasoning comes before the content."""
    members = json.raw_members(source)
    for name in REASONING_MEMBERS:
        if isinstance(text := json.parse(_raw(members, name)), str):
            yield Reasoning(text)
    signed = _raw(members, _SIGNED)
    for _, block, raw in _objects(json.parse(signed), signed):
        yield from _read_signed(block, raw)
    content = json.parse(content_source := _raw(members, "content"))
    if isinstance(content, str):
        yield Text(content, content_source)
    for index, part, raw in _objects(content, content_source):
        yield _read_part(part, raw, f"content.{index}")


def _raw(members: Mapping[str, msgspec.Raw], name: str) -> bytes:
    return bytes(members[name]) if name in members else b"null"


def _objects(values: JsonValue, source: bytes) -> Iterator[tuple[int, JsonObject, bytes]]:
    """Yield index, value and bytes of each object in an array; nothing for any other value."""
    if isinstance(values, list):
        for index, (value, raw) in enumerate(zip(values, json.split_array(source), strict=True)):
            if isinstance(value, dict):
                yield index, value, raw


def _read_part(part: JsonObject, source: bytes, path: str) -> Part:
    kind = f"{part.get('type')}"
    value = part.get(kind)
    if kind in _TEXTS:
        is_text = isinstance(value, str)
        text_source = json.split_object(source)[kind] if is_text else b'""'
        return Text(f"{value}" if is_text else "", text_source, path)
    if kind == "image_url":
        url = value.get("url") if isinstance(value, dict) else value
        return Image(url if isinstance(url, str) else "", path)
    if kind in _REASONING:
        return Reasoning(value if isinstance(value, str) else "")
    return Attachment(kind, path)


def _read_signed(block: JsonObject, source: bytes) -> Iterator[Reasoning]:
    kind = f"{block.get('type')}"
    fields = _SIGNED_FIELDS.get(kind, ())
    signature = block.get(fields[-1]) if fields else None
    is_complete = all(block.get(name) is not None for name in fields)
    if is_complete and isinstance(signature, str) and signature:
        members = json.split_object(source)
        required = {name: members[name] for name in fields}
        text = block.get("thinking")
        signed = json.join_object({"type": json.dump(kind), **required})
        yield Reasoning(text if isinstance(text, str) else "", signature, signed)
