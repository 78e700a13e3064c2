"""Finds the first difference between two prompts of a conversation, and describes its cause.

An engine reuses its prompt cache up to the first token that differs from the previous prompt.

    system, user, assistant          -> system, user, assistant, tool     continues (None)
    system at 10:31, user, assistant -> system at 10:32, user, assistant  differs at message 0,
                                        "the system prompt changed at character 9 (...)"
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Literal, TypeAlias

import msgspec

from proxy.conversation import json, roles
from proxy.conversation.messages import Message
from proxy.conversation.tools import Tool

# The cause of reading a prompt again. "client": the client changed the beginning of the prompt;
# "temper": Temper shortened the conversation further; "template": the chat template rendered an
# earlier message differently; "engine": the engine had dropped the prompt from its cache;
# "unknown": the engine does not report how many tokens were cached.
Causer: TypeAlias = Literal["client", "temper", "template", "engine", "unknown"]

_OPENING = 4_000  # characters of a system message that are stored
_EXCERPT = 24  # characters around the first difference that are searched for its cause
# the first pattern that matches the excerpt describes the cause
_CAUSES = (
    (re.compile(r"\d{1,2}:\d\d|\d{4}-\d\d|\d{1,2}[./]\d{1,2}[./]"), "a timestamp"),
    (re.compile(r"[0-9a-fA-F]{8}"), "a generated id"),
    (re.compile(r"\d"), "a counter"),
)


class Trace(msgspec.Struct, frozen=True):
    """The fingerprint of a tool or a message; `opening` is the beginning of a system message."""

    kind: str
    digest: int
    opening: str = ""


class PromptTrace(msgspec.Struct, frozen=True):
    """The fingerprint of a prompt; `kind` is the name of a tool or the role of a message."""

    tools: tuple[Trace, ...]
    messages: tuple[Trace, ...]


class PrefixBroken(msgspec.Struct, frozen=True):
    """A difference to the previous prompt; `place` is the message's index, None for the tools.

    `reason` is a clause that continues "because"; `role` is the role of the message.
    """

    place: int | None  # the name of the field in records and in the dashboard's API
    reason: str
    role: str = ""

    @property
    def section(self) -> str:
        """The part of the prompt with the difference, e.g. `message 3 (tool)`."""
        if self.place is None:
            return "the tools"
        if self.place == 0 and self.role in roles.SYSTEM:
            return "the system prompt"
        return f"message {self.place} ({self.role})"


class Reread(msgspec.Struct, frozen=True):
    """A prompt of which the engine had to read a part again.

    The prompt has `prompt` tokens, of which `cached` came from the cache (None if the engine does
    not report it). `seconds` is the time of reading the other tokens as the engine reports it. If
    the engine reports no time, `is_measured` is True, and `seconds` is the measured time until the
    first token (None if that is unknown, too). `reason` is a clause that continues "because".
    """

    prompt: int
    cached: int | None
    seconds: float | None
    causer: Causer
    reason: str
    is_measured: bool = False

    def __str__(self) -> str:
        about = "about " if self.is_measured else ""
        cost = "" if self.seconds is None else f" ({about}{_seconds(self.seconds)})"
        read = (
            f"up to {self.prompt:,} tokens"
            if self.cached is None
            else f"{self.prompt - self.cached:,} of {self.prompt:,} tokens"
        )
        return f"{read}{cost}, because {self.reason}"


def trace(messages: Sequence[Message], tools: Sequence[Tool]) -> PromptTrace:
    """Return the fingerprint of a prompt; `tools` are only the client's tools."""
    return PromptTrace(
        tuple(Trace(tool.name, _digest(tool.source)) for tool in tools),
        tuple(
            [
                Trace(part.role, hash(part.source), part.text[:_OPENING])
                if part.role in roles.SYSTEM
                else Trace(part.role, hash(part.source))
                for part in messages
            ]
        ),
    )


def compare(before: PromptTrace, now: PromptTrace) -> PrefixBroken | None:
    """Return the first difference; None if one prompt is a prefix of the other."""
    if before.tools != now.tools:
        return PrefixBroken(None, _reason_in_tools(before.tools, now.tools))
    length = min(len(before.messages), len(now.messages))
    if before.messages[:length] == now.messages[:length]:  # as in most turns
        return None
    pairs = enumerate(zip(before.messages, now.messages, strict=False))
    index = next(index for index, (old, new) in pairs if old != new)
    reason = _reason(index, before.messages, now.messages)
    return PrefixBroken(index, reason, now.messages[index].kind)


def common_length(first: Sequence[object], second: Sequence[object]) -> int:
    """Return the length of the longest common prefix."""
    pairs = enumerate(zip(first, second, strict=False))
    end = min(len(first), len(second))
    return next((index for index, (old, new) in pairs if old != new), end)


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 9.95 else f"{seconds:,.0f} s"


@lru_cache(maxsize=1024)
def _digest(source: bytes) -> int:
    """Hash a tool as parsed JSON: a template renders its values but not its whitespace."""
    return hash(repr(json.parse(source)))


def _reason_in_tools(before: tuple[Trace, ...], now: tuple[Trace, ...]) -> str:
    old, new = {part.kind for part in before}, {part.kind for part in now}
    if added := [part.kind for part in now if part.kind not in old]:
        return f"tools were added: {', '.join(added)}"
    if removed := [part.kind for part in before if part.kind not in new]:
        return f"tools were removed: {', '.join(removed)}"
    if changed := [part.kind for part in now if part not in before]:
        return f"the description of a tool changed: {', '.join(changed)}"
    return "the order of the tools changed"


def _reason(index: int, before: tuple[Trace, ...], now: tuple[Trace, ...]) -> str:
    old, new = before[index], now[index]
    if new in before[index:]:
        count = before[index:].index(new)
        removed = "a message" if count == 1 else f"{count} messages"
        return f"the client removed {removed}, starting with message {index}"
    if old in now[index:]:
        count = now[index:].index(old)
        inserted = "a message was" if count == 1 else f"{count} messages were"
        return f"{inserted} inserted before message {index}"
    if new.opening and old.opening:
        return _reason_in_text(new.kind, old.opening, new.opening)
    return f"message {index} ({new.kind}) was rewritten"


def _reason_in_text(role: str, old: str, new: str) -> str:
    pairs = enumerate(zip(old, new, strict=False))
    position = next((at for at, (part, other) in pairs if part != other), min(len(old), len(new)))
    changed = f"the {role} prompt changed at character {position}"
    excerpt = new[max(0, position - _EXCERPT) : position + _EXCERPT]
    cause = next((cause for pattern, cause in _CAUSES if pattern.search(excerpt)), "")
    guess = f" (it seems to contain {cause})" if cause else ""
    return f"{changed}{guess}"
