"""The history of a Messages request, written as messages in the language of backends."""

import re
from typing import NamedTuple

from proxy.conversation.document_cache import KeptByDocument
from proxy.conversation.messages import Message
from proxy.dialects.anthropic_messages.blocks import (
    Findings,
    RawBlock,
    as_arguments,
    blocks_of,
    parts_of,
    texts_of,
)
from proxy.dialects.anthropic_messages.tools import ToolSet
from proxy.dialects.foreign_history import (
    ForeignHistory,
    HistoryCall,
    HistoryEntry,
    Part,
    is_replayed,
)
from proxy.dialects.raw_json import JsonText, Node, own_text, require
from proxy.facts import Omitted

# Claude Code's first line; its version changes with the first text of the user, and so does the
# first byte of every prompt (llama.cpp#21793, vLLM#36829).
_BILLING = "x-anthropic-billing-header:"
_FIRST_LINE = re.compile(rb'"(?:[^"\\]|\\(?:[^nu]|u(?!000[aA])))*(?:\\n|\\u000[aA])?')

_SYSTEM, _USER = "system", "user"
_MOST_BYTES = 4 * 2**20  # of messages whose conversion is kept
_TOOL_CHANGES = ("tool_addition", "tool_removal")


class DecodedHistory(NamedTuple):
    """The messages of a conversation, and what of it was left out."""

    messages: tuple[Message, ...]
    facts: tuple[Omitted, ...]


class _Converted(NamedTuple):
    """What one message becomes, whatever stands around it, and what was found in it."""

    entries: tuple[HistoryEntry, ...]
    findings: Findings


# Clients send the whole conversation each time.
_converted: KeptByDocument[_Converted] = KeptByDocument(most=_MOST_BYTES)


def read_history(system: Node | None, messages: Node, tools: ToolSet) -> DecodedHistory:
    """Return the messages of a conversation; raises `InvalidRequest` that names the block.

    Tools that it names are offered from there on.
    """
    history, findings = ForeignHistory(joins_system=True), Findings()
    _read_system(history, blocks_of(system), tools, findings)
    for position, (value, source) in enumerate(messages.raw_elements()):
        found = _converted.find(source)
        if found is None:
            node = Node(value, source, f"{messages.path}.{position}")
            members = node.members()
            role = require(members, "role", node.path).text().text
            blocks = blocks_of(members.get("content"))
            if role == _SYSTEM:  # what becomes of it depends on what stands before it
                _read_system(history, blocks, tools, findings)
                continue
            found = _convert(role, blocks)
            _converted.keep(source, found)
        history.extend(found.entries)
        findings.omitted |= found.findings.omitted
        for name in found.findings.named:
            tools.add(name)
    return DecodedHistory(history.messages(), findings.facts)


def _convert(role: str, blocks: list[RawBlock]) -> _Converted:
    """Convert a message of the user or the assistant."""
    alone, findings = ForeignHistory(), Findings()
    read = _read_user if role == _USER else _read_assistant
    read(alone, blocks, findings)
    return _Converted(alone.entries, findings)


def _read_system(
    history: ForeignHistory, blocks: list[RawBlock], tools: ToolSet, findings: Findings
) -> None:
    texts: list[JsonText] = []
    for block in blocks:
        if block.kind in _TOOL_CHANGES:
            _change_tools(block, tools, findings)
            continue
        beside = Findings()
        texts += map(_drop_billing_line, texts_of(block, beside))
        findings.omitted |= beside.omitted
        for name in beside.named:
            tools.add(name)
    history.add_system(texts)


def _drop_billing_line(text: JsonText) -> JsonText:
    """Leave out the line that tells Anthropic whom to bill."""
    if not text.text.startswith(_BILLING):
        return text
    return JsonText(text.text.partition("\n")[2], _FIRST_LINE.sub(b'"', text.source, count=1))


def _change_tools(block: RawBlock, tools: ToolSet, findings: Findings) -> None:
    """Offer a tool from here on, or no longer."""
    tool = require(block.members, "tool", block.path)
    members = tool.members()
    match require(members, "type", tool.path).value:
        case "tool_reference":
            name = require(members, "name", tool.path).text().text
            if block.kind == "tool_addition":
                tools.add(name)
            else:
                tools.remove(name)
        case "tool_definition" if block.kind == "tool_addition":
            tools.define(require(members, "definition", tool.path))
        case _:
            findings.omit(block.kind)


def _read_user(history: ForeignHistory, blocks: list[RawBlock], findings: Findings) -> None:
    """Write the results of tools first, in their order, and then what the user says."""
    said: list[Part] = []
    has_results = False
    for block in blocks:
        if block.kind == "tool_result":
            has_results = True
            _read_result(history, block, findings)
        else:
            said += parts_of(block, findings)
    if not has_results or any(not isinstance(part, JsonText) or part.text for part in said):
        history.add_user(said)


def _read_result(history: ForeignHistory, block: RawBlock, findings: Findings) -> None:
    inner = blocks_of(block.members.get("content"))
    parts = [part for one in inner for part in parts_of(one, findings)]
    is_error = "is_error" in block.members and block.members["is_error"].value is True
    history.add_result(block.text("tool_use_id"), parts, is_error=is_error)


def _read_assistant(history: ForeignHistory, blocks: list[RawBlock], findings: Findings) -> None:
    said: list[JsonText] = []
    thoughts: list[JsonText] = []
    calls: list[HistoryCall] = []
    for block in blocks:
        if block.kind == "tool_use":
            calls.append(_call(block))
        elif block.kind == "thinking":
            thoughts += _thought(block, findings)
        else:
            said += texts_of(block, findings)
    history.add_assistant(said, thoughts, calls)


def _call(block: RawBlock) -> HistoryCall:
    name = require(block.members, "name", block.path).text()
    return HistoryCall(block.text("id"), name, as_arguments(block.members.get("input")))


def _thought(block: RawBlock, findings: Findings) -> list[JsonText]:
    thought = block.text("thinking") or own_text("")
    signature = block.text("signature")
    if is_replayed(thought.text, "" if signature is None else signature.text):
        return [thought]
    findings.omit("foreign_thinking")
    return []
