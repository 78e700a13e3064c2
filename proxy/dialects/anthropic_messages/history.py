"""The history of a Messages request, written as messages in the language of backends."""

import re
from typing import NamedTuple

from proxy.conversation.document_cache import KeptByDocument
from proxy.conversation.messages import Message
from proxy.dialects.anthropic_messages.blocks import (
    Findings,
    RawBlock,
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
    write_arguments,
)
from proxy.dialects.raw_json import JsonText, Members, Node, own_text
from proxy.facts import Omitted

# Claude Code's first line; its version changes with the first text of the user, and so does the
# first byte of every prompt (llama.cpp#21793, vLLM#36829).
_BILLING = "x-anthropic-billing-header:"
_FIRST_LINE = re.compile(rb'"(?:[^"\\]|\\(?:[^nu]|u(?!000[aA])))*(?:\\n|\\u000[aA])?')

_SYSTEM, _USER = "system", "user"
_MOST_BYTES = 4 * 2**20  # of messages whose conversion is kept
_TOOL_CHANGES = ("tool_addition", "tool_removal")


class _Converted(NamedTuple):
    """What one message becomes, whatever stands around it, and what was found in it."""

    entries: list[HistoryEntry]
    findings: Findings


# Clients send the whole conversation each time.
_converted: KeptByDocument[_Converted] = KeptByDocument(most=_MOST_BYTES)


def read_history(
    system: Node | None, messages: Node, tools: ToolSet
) -> tuple[tuple[Message, ...], tuple[Omitted, ...]]:
    """Return messages, and what was left out; raises `InvalidRequest` that names the block.

    Tools that it names are offered from there on.
    """
    history, findings = ForeignHistory(joins_system=True), Findings()
    _read_system(history, blocks_of(system), tools, findings)
    for position, (value, source) in enumerate(messages.raw_elements()):
        found = _converted.find(source)
        if found is None:
            members = Node(value, source, f"{messages.path}.{position}").members()
            role = members.need("role").text().text
            blocks = blocks_of(members.get("content"))
            if role == _SYSTEM:  # what becomes of it depends on what stands before it
                _read_system(history, blocks, tools, findings)
                continue
            alone, inside = ForeignHistory(), Findings()
            (_read_user if role == _USER else _read_assistant)(alone, blocks, inside)
            found = _Converted(alone.entries, inside)
            _converted.keep(source, found)
        history.extend(found.entries)
        _add(found.findings, tools, findings)
    return history.messages(), findings.facts


def _add(found: Findings, tools: ToolSet, findings: Findings) -> None:
    findings.omitted |= found.omitted
    for name in found.named:
        tools.add(name)


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
        _add(beside, tools, findings)
    history.add_system(texts)


def _drop_billing_line(text: JsonText) -> JsonText:
    """Leave out the line that tells Anthropic whom to bill."""
    if not text.text.startswith(_BILLING):
        return text
    return JsonText(text.text.partition("\n")[2], _FIRST_LINE.sub(b'"', text.source, count=1))


def _change_tools(block: RawBlock, tools: ToolSet, findings: Findings) -> None:
    """Offer a tool from here on, or no longer."""
    tool = block.members.need("tool").members()
    match tool.need("type").value:
        case "tool_reference":
            change = tools.add if block.kind == "tool_addition" else tools.remove
            change(tool.need("name").text().text)
        case "tool_definition" if block.kind == "tool_addition":
            tools.define(tool.need("definition"))
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
    members = block.members
    parts = [part for one in blocks_of(members.get("content")) for part in parts_of(one, findings)]
    is_error = members.value("is_error") is True
    history.add_result(members.text("tool_use_id"), parts, is_error=is_error)


def _read_assistant(history: ForeignHistory, blocks: list[RawBlock], findings: Findings) -> None:
    said: list[JsonText] = []
    thoughts: list[JsonText] = []
    calls: list[HistoryCall] = []
    for block in blocks:
        if block.kind == "tool_use":
            members = block.members
            name = members.need("name").text()
            calls.append(
                HistoryCall(members.text("id"), name, write_arguments(members.get("input")))
            )
        elif block.kind == "thinking":
            thoughts += _thought(block.members, findings)
        else:
            said += texts_of(block, findings)
    history.add_assistant(said, thoughts, calls)


def _thought(members: Members, findings: Findings) -> list[JsonText]:
    thought = members.text("thinking") or own_text("")
    if is_replayed(thought.text, members.word("signature")):
        return [thought]
    findings.omit("foreign_thinking")
    return []
