"""The messages of a Messages request, converted to chat completions.

    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": "5"},
                                 {"type": "text", "text": "Go on"}]}
    -> {"role": "tool", "tool_call_id": "a", "content": "5"}
       {"role": "user", "content": "Go on"}

The conversion of a user or assistant message does not depend on other messages, so the result is
cached by the bytes of the message.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from proxy.conversation.document_cache import LruCache
from proxy.conversation.messages import Message
from proxy.dialects.anthropic_messages.table import BLOCKS
from proxy.dialects.anthropic_messages.tools import ToolSet
from proxy.dialects.foreign_history import (
    ForeignHistory,
    HistoryCall,
    HistoryEntry,
    Part,
    assistant_entry,
    is_replayed,
    result_entry,
    user_entry,
    write_arguments,
    write_picture,
)
from proxy.dialects.raw_json import JsonText, Members, Node, concatenate, own_text
from proxy.errors import InvalidRequest
from proxy.facts import Omitted

# Chat completions cannot refer to a deferred tool, so the model receives this text instead.
_AVAILABLE = own_text("Tool "), own_text(" is available now.")
# the members with readable text in a result of a tool that Anthropic's servers ran
_READABLE = ("title", "url", "text", "stdout", "stderr")
_NESTED = ("content", "source", "data")
_BINARY = "base64"
_DEEPEST = 4  # levels: a block, its list, a document, its source
_RESULT = "_tool_result"
RAN_PREFIX = "mcptoolu_"  # prefix of the ids of calls that Temper ran

# Claude Code recognizes these words, replaces the block by a text, and continues the turn.
_NO_IMAGE = (
    "capability_rejected: image_block (Temper does not fetch URLs: send the image as base64)"
)
_NO_DOCUMENT = (
    "capability_rejected: document_block (only documents of plain text can be read: send its text)"
)


class RawBlock(NamedTuple):
    """A block of content: its type and its members."""

    kind: str
    members: Members


@dataclass(slots=True)
class Findings:
    """The kinds of the dropped blocks, and the names of the tools that the blocks mention."""

    omitted: dict[str, None] = field(default_factory=dict)
    tool_names: dict[str, None] = field(default_factory=dict)

    def omit(self, kind: str) -> None:
        self.omitted[kind] = None

    @property
    def facts(self) -> tuple[Omitted, ...]:
        return tuple(map(Omitted, self.omitted))


def blocks_of(content: Node | None) -> list[RawBlock]:
    """Return the blocks of a `content` member; a string is one block of text."""
    if content is None:
        return []
    if content.is_text:
        return [RawBlock("text", Members({"text": content}, content.path))]
    members = [element.members() for element in content.elements()]
    return [RawBlock(block.need("type").text().text, block) for block in members]


def parts_of(block: RawBlock, findings: Findings) -> list[Part]:
    """Return the texts and images of a block in a message of any role."""
    if (reader := _READERS.get(block.kind)) is not None:
        return reader(block.members, findings)
    if BLOCKS.drops(block.kind):
        findings.omit(block.kind)
        return [*_readable_texts(block.members.get("content"), _DEEPEST)]
    if (text := block.members.get("text")) is not None and text.is_text:
        return [text.text()]
    findings.omit("misplaced_block" if block.kind in BLOCKS else "unknown_block")
    return []


def texts_of(block: RawBlock, findings: Findings) -> list[JsonText]:
    """Return the texts of a block; drop its images, because the message's role allows none."""
    parts = parts_of(block, findings)
    texts = [part for part in parts if isinstance(part, JsonText)]
    if len(texts) < len(parts):
        findings.omit("misplaced_block")
    return texts


def _inner_parts(content: Node | None, findings: Findings) -> list[Part]:
    return [part for block in blocks_of(content) for part in parts_of(block, findings)]


def _texts_of(members: Members, *names: str) -> list[JsonText]:
    return [text for name in names if (text := members.text(name)) is not None]


def _image(members: Members, _: Findings) -> list[Part]:
    source = members.need("source").members()
    if source.need("type").value != _BINARY:
        raise InvalidRequest(_NO_IMAGE, source.path)
    kind, data = source.need("media_type").text(), source.need("data").text()
    url = concatenate(own_text("data:"), kind, own_text(";base64,"), data)
    return [write_picture(url.source)]


def _document(members: Members, findings: Findings) -> list[Part]:
    source = members.need("source").members()
    match source.need("type").value:
        case "text":
            parts: list[Part] = [source.need("data").text()]
        case "content":
            parts = _inner_parts(source.need("content"), findings)
        case _:
            raise InvalidRequest(_NO_DOCUMENT, source.path)
    return [*_texts_of(members, "title", "context"), *parts]


def _search_result(members: Members, findings: Findings) -> list[Part]:
    parts = _inner_parts(members.get("content"), findings)
    return [*_texts_of(members, "title", "source"), *parts]


def _tool_reference(members: Members, findings: Findings) -> list[Part]:
    name = members.need("tool_name").text()
    findings.tool_names[name.text] = None
    prefix, suffix = _AVAILABLE
    return [concatenate(prefix, name, suffix)]


def _read_found_tools(members: Members, findings: Findings) -> list[Part]:
    """Read the result of Anthropic's tool search; the tools in it are offered from now on."""
    findings.omit("tool_search_tool_result")
    if not isinstance(members.value("content"), dict):
        return []
    return _inner_parts(members.inner("content").get("tool_references"), findings)


_Reader = Callable[[Members, Findings], list[Part]]
_READERS: Mapping[str, _Reader] = {
    "text": lambda members, _: [members.need("text").text()],
    "image": _image,
    "document": _document,
    "search_result": _search_result,
    "tool_reference": _tool_reference,
    "tool_search_tool_result": _read_found_tools,
    "compaction": lambda members, _: [*_texts_of(members, "content")],
}


def _readable_texts(content: Node | None, depth: int) -> Iterator[JsonText]:
    """Yield the readable texts in the result of a tool that Anthropic's servers ran.

    The other members of such a result are encrypted or base64, and would only fill the window.
    """
    if content is None or not depth:
        return
    if content.is_text:
        yield content.text()
    elif isinstance(content.value, list):
        for element in content.elements():
            yield from _readable_texts(element, depth - 1)
    elif isinstance(content.value, dict) and content.value.get("type") != _BINARY:
        members = content.members()
        yield from (
            members[name].text() for name in _READABLE if name in members and members[name].is_text
        )
        for name in _NESTED:
            yield from _readable_texts(members.get(name), depth - 1)


# The first line of Claude Code's system prompt starts with these words. Temper drops this line,
# because it contains a hash of the user's first text: the prompts of two conversations would differ
# from the first line on, and the engine could not reuse its prompt cache (llama.cpp#21793,
# vLLM#36829).
_BILLING = "x-anthropic-billing-header:"
# the bytes of a JSON string up to its first line break, which is escaped as \n or \u000a
_FIRST_LINE = re.compile(rb'"(?:[^"\\]|\\(?:[^nu]|u(?!000[aA])))*(?:\\n|\\u000[aA])?')

_SYSTEM, _USER = "system", "user"
_MOST_BYTES = 4 * 2**20  # size of the cache of converted messages
_TOOL_CHANGES = ("tool_addition", "tool_removal")


class _Converted(NamedTuple):
    """A converted message; the conversion does not depend on other messages."""

    entries: list[HistoryEntry]
    findings: Findings


# Clients send the whole conversation with every request, so all messages except the last are
# already in the cache.
_converted: LruCache[_Converted] = LruCache(most=_MOST_BYTES)


def read_history(
    system: Node | None, messages: Node, tools: ToolSet
) -> tuple[tuple[Message, ...], tuple[Omitted, ...]]:
    """Return the messages and the dropped blocks; raises `InvalidRequest` with the block's path.

    A deferred tool is offered from the first message that names it, see `ToolSet`.
    """
    history, findings = ForeignHistory(joins_system=True), Findings()
    _read_system(history, blocks_of(system), tools, findings)
    for index, (value, source) in enumerate(messages.raw_elements()):
        converted = _converted.find(source)
        if converted is None:
            members = Node(value, source, f"{messages.path}.{index}").members()
            role = members.need("role").text().text
            blocks = blocks_of(members.get("content"))
            if role == _SYSTEM:  # not cached: `add_system` may join it to the message before it
                _read_system(history, blocks, tools, findings)
                continue
            block_findings = Findings()
            convert = _read_user if role == _USER else _read_assistant
            converted = _Converted([*convert(blocks, block_findings)], block_findings)
            _converted.keep(source, converted)
        history.extend(converted.entries)
        _apply_findings(converted.findings, tools, findings)
    return history.messages(), findings.facts


def _apply_findings(converted: Findings, tools: ToolSet, findings: Findings) -> None:
    findings.omitted |= converted.omitted
    for name in converted.tool_names:
        tools.add(name)


def _read_system(
    history: ForeignHistory, blocks: list[RawBlock], tools: ToolSet, findings: Findings
) -> None:
    texts: list[JsonText] = []
    for block in blocks:
        if block.kind in _TOOL_CHANGES:
            _change_tools(block, tools, findings)
            continue
        block_findings = Findings()
        texts += map(_drop_billing_line, texts_of(block, block_findings))
        _apply_findings(block_findings, tools, findings)
    history.add_system(texts)


def _drop_billing_line(text: JsonText) -> JsonText:
    if not text.text.startswith(_BILLING):
        return text
    return JsonText(text.text.partition("\n")[2], _FIRST_LINE.sub(b'"', text.source, count=1))


def _change_tools(block: RawBlock, tools: ToolSet, findings: Findings) -> None:
    tool = block.members.need("tool").members()
    match tool.need("type").value:
        case "tool_reference":
            change = tools.add if block.kind == "tool_addition" else tools.remove
            change(tool.need("name").text().text)
        case "tool_definition" if block.kind == "tool_addition":
            tools.define(tool.need("definition"))
        case _:
            findings.omit(block.kind)


def _read_user(blocks: list[RawBlock], findings: Findings) -> Iterator[HistoryEntry]:
    """Yield the tool results in their order, followed by the user's content.

    Engines require that results directly follow their calls.
    """
    parts: list[Part] = []
    has_results = False
    for block in blocks:
        if block.kind == "tool_result":
            has_results = True
            yield _read_result(block, findings)
        else:
            parts += parts_of(block, findings)
    # if a message has only results, no empty message of the user may follow them
    if not has_results or any(not isinstance(part, JsonText) or part.text for part in parts):
        yield user_entry(parts)


def _read_result(block: RawBlock, findings: Findings) -> HistoryEntry:
    members = block.members
    parts = _inner_parts(members.get("content"), findings)
    is_error = members.value("is_error") is True
    return result_entry(_call_id(members.text("tool_use_id")), parts, is_error=is_error)


def _read_assistant(blocks: list[RawBlock], findings: Findings) -> Iterator[HistoryEntry]:
    parts: list[JsonText] = []
    thoughts: list[JsonText] = []
    calls: list[HistoryCall] = []
    has_results = False
    for block in blocks:
        if block.kind in ("tool_use", "mcp_tool_use"):
            members = block.members
            name, call_id = members.need("name").text(), _call_id(members.text("id"))
            calls.append(HistoryCall(call_id, name, write_arguments(members.get("input"))))
        elif (result := _read_executed_result(block, calls, findings)) is not None:
            if parts or thoughts or calls:
                yield assistant_entry(parts, thoughts, calls)
            parts, thoughts, calls, has_results = [], [], [], True
            yield result
        elif block.kind == "thinking":
            thoughts += _thought(block.members, findings)
        else:
            parts += texts_of(block, findings)
    if parts or thoughts or calls or not has_results:
        yield assistant_entry(parts, thoughts, calls)


def _read_executed_result(
    block: RawBlock, calls: list[HistoryCall], findings: Findings
) -> HistoryEntry | None:
    """Read the result of a call that Temper or Anthropic ran; None for any other block.

    For a call that Anthropic ran, the readable output becomes the result, and the call is added to
    `calls`.
    """
    kind = block.kind
    if kind == "mcp_tool_result":
        return _read_result(block, findings)
    is_hosted = kind.endswith(_RESULT) and BLOCKS.drops(kind) and kind not in _READERS
    texts = texts_of(block, findings) if is_hosted else []
    if not texts:
        return None
    call_id = block.members.text("tool_use_id") or own_text(kind)
    calls.append(HistoryCall(call_id, own_text(kind.removesuffix(_RESULT)), own_text("{}")))
    return result_entry(call_id, texts)


def _call_id(call_id: JsonText | None) -> JsonText | None:
    """Return the id of a call; if Temper ran the call, its prefix `RAN_PREFIX` is removed."""
    if call_id is None or not call_id.text.startswith(RAN_PREFIX):
        return call_id
    return own_text(call_id.text.removeprefix(RAN_PREFIX))


def _thought(members: Members, findings: Findings) -> list[JsonText]:
    thought = members.text("thinking") or own_text("")
    if is_replayed(thought.text, members.word("signature")):
        return [thought]
    findings.omit("foreign_thinking")
    return []
