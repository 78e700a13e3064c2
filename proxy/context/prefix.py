"""Why a prompt could not go on from the one before it: the first thing that differs, and a guess.

A backend keeps what it has read of a prompt for the next one, as far as both begin alike.
"""

import re
from collections.abc import Sequence
from functools import lru_cache

import msgspec

from proxy.conversation import json, roles
from proxy.conversation.messages import Message
from proxy.conversation.tools import Tool

_OPENING = 4_000  # characters of a system message that are remembered
_AROUND = 24
_CAUSES = (
    (re.compile(r"\d{1,2}:\d\d|\d{4}-\d\d|\d{1,2}[./]\d{1,2}[./]"), "a timestamp"),
    (re.compile(r"[0-9a-fA-F]{8}"), "an id that is made again"),
    (re.compile(r"\d"), "a number that counts"),
)


class Trace(msgspec.Struct, frozen=True):
    """What is remembered of one part of a prompt; the `opening` of system messages only."""

    kind: str
    digest: int
    opening: str = ""


class PromptTrace(msgspec.Struct, frozen=True):
    """What is remembered of a prompt; the kinds are the names of tools and the roles."""

    tools: tuple[Trace, ...]
    messages: tuple[Trace, ...]


class PrefixBroken(msgspec.Struct, frozen=True):
    """The prompt differs from the one before it; `place` is that of the message, None for tools."""

    place: int | None
    reason: str


def trace(messages: Sequence[Message], tools: Sequence[Tool]) -> PromptTrace:
    """Remember a prompt; `tools` are the client's own, and not what was added to them."""
    return PromptTrace(
        tuple(Trace(tool.name, _digest(tool.source)) for tool in tools),
        tuple(
            [
                Trace(one.role, hash(one.source), one.text[:_OPENING])
                if one.role in roles.SYSTEM
                else Trace(one.role, hash(one.source))
                for one in messages
            ]
        ),
    )


def compare(before: PromptTrace, now: PromptTrace) -> PrefixBroken | None:
    """Name the first difference; None if one prompt is the beginning of the other."""
    if before.tools != now.tools:
        return PrefixBroken(None, _reason_in_tools(before.tools, now.tools))
    length = min(len(before.messages), len(now.messages))
    if before.messages[:length] == now.messages[:length]:  # nearly always
        return None
    pairs = enumerate(zip(before.messages, now.messages, strict=False))
    place = next(place for place, (old, new) in pairs if old != new)
    return PrefixBroken(place, _reason(place, before.messages, now.messages))


@lru_cache(maxsize=1024)
def _digest(source: bytes) -> int:
    """Tell tools apart by what a template renders of them: values, in their order."""
    return hash(repr(json.parse(source)))


def _reason_in_tools(before: tuple[Trace, ...], now: tuple[Trace, ...]) -> str:
    old, new = {one.kind for one in before}, {one.kind for one in now}
    if added := [one.kind for one in now if one.kind not in old]:
        return f"tools were added: {', '.join(added)}"
    if gone := [one.kind for one in before if one.kind not in new]:
        return f"tools were taken away: {', '.join(gone)}"
    if changed := [one.kind for one in now if one not in before]:
        return f"the description of a tool changed: {', '.join(changed)}"
    return "the tools are in another order"


def _reason(place: int, before: tuple[Trace, ...], now: tuple[Trace, ...]) -> str:
    old, new = before[place], now[place]
    if new in before[place:]:
        count = before[place:].index(new)
        return f"{count} messages from number {place} on were left out by the client"
    if old in now[place:]:
        return f"{now[place:].index(old)} messages were put in before number {place}"
    if new.opening and old.opening:
        return _reason_in_text(new.kind, old.opening, new.opening)
    return f"message number {place} ({new.kind}) was rewritten"


def _reason_in_text(role: str, old: str, new: str) -> str:
    pairs = enumerate(zip(old, new, strict=False))
    position = next((at for at, (one, other) in pairs if one != other), min(len(old), len(new)))
    changed = f"the {role} prompt changed at character {position}"
    around = new[max(0, position - _AROUND) : position + _AROUND]
    cause = next((cause for pattern, cause in _CAUSES if pattern.search(around)), "")
    guess = f" (it seems to contain {cause})" if cause else ""
    return f"{changed}{guess}: nothing after that can be cached"
