"""Restores the reasoning that a client drops from the assistant messages of its history.

    reply            {"reasoning_content": "Look first.", "tool_calls": [{"id": "call_1", ...}]}
    next request     {"role": "assistant", "tool_calls": [{"id": "call_1", ...}]}
    sent upstream    {"role": "assistant", "reasoning_content": "Look first.", "tool_calls": ...}

Theory of operation
-------------------
The key of a message is a chain of digests. The chain begins with the owner of the API key, the
model and the conversation. Each user text extends the chain, and so does each assistant message up
to and including this one, with its calls, or with its text if it has no calls. Clients rewrite the
ids of calls, white space and the order of arguments, and shorten results, so none of these is part
of the chain. If a conversation is run twice, both runs may make the same call after different
reasoning. The ids of the calls distinguish the two messages, if the client sends the ids unchanged.

The engine's prompt cache needs a history that only grows, so the decision about a message is final:

- The first reasoning stored for a message is never replaced.
- A message that was sent without reasoning is stored as such, and stays without it.
- The least recently used entries are evicted, and a request uses all entries of its conversation.
  New reasoning is not stored if it would evict one of these entries. So if one conversation fills
  the store, only its earlier messages keep their reasoning.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from hashlib import blake2b

import msgspec
from msgspec.structs import replace

from proxy import shares
from proxy.conversation import json
from proxy.conversation.json import JsonValue
from proxy.conversation.messages import Message, Messages
from proxy.conversation.parts import REASONING_MEMBERS, Reasoning
from proxy.conversation.reminders import without_reminders
from proxy.conversation.replies import ReplyEvent, ReplyFinished, ReplyInProgress, ReplyStarted
from proxy.conversation.requests import Request
from proxy.conversation.tools import ToolCall
from proxy.facts import Fact, ReasoningRestored
from proxy.guardrails.reasoning import split_thoughts

_OVERHEAD = 300  # bytes of an entry without its reasoning
# An eviction visits all entries, so it must be rare. Each eviction therefore removes more than
# necessary: afterwards at most this share of each bound is used.
_FILL = 7 / 8
# JSON escapes quotes within strings, so these quoted names are members or types of parts, not text.
_SIGNS = tuple(f'"{name}"'.encode() for name in (*REASONING_MEMBERS, "redacted_thinking"))


class Bounds(msgspec.Struct, frozen=True):
    """The maximum number and size of the entries of all clients together."""

    entries: int = 8_192
    bytes: int = 64 * 2**20


class _Entry(msgspec.Struct, frozen=True):
    """The reasoning of a message as JSON; None if the message was sent without reasoning."""

    owner: str
    reasoning: bytes | None

    @property
    def size(self) -> int:
        return _OVERHEAD + len(self.reasoning or b"")


class History(msgspec.Struct, frozen=True):
    """The history of a request, whose reasoning may be missing.

    `origin` identifies the conversation beyond its messages. Messages before the index `start` get
    no reasoning, because the chat template does not use it. Later assistant messages get it in the
    members named by `members`.
    """

    owner: str
    origin: tuple[str, ...]
    messages: Messages
    members: tuple[str, ...] = REASONING_MEMBERS[:1]
    start: int = 0


class Restored(msgspec.Struct, frozen=True):
    """The messages of a history with their reasoning.

    `key` is the key of the whole history. `used` has the keys of the entries that were found.
    """

    messages: Messages
    key: bytes
    used: dict[bytes, None]


class ReasoningStore:
    """The reasoning of recent answers, in the memory of this process."""

    def __init__(self, bounds: Bounds | None = None) -> None:
        self._bounds = bounds or Bounds()
        self._entries: OrderedDict[bytes, _Entry] = OrderedDict()
        self._size = 0

    def restore(self, history: History, *, is_streamed: bool = False) -> "AnswerReasoning":
        """Insert the missing reasoning; the returned object also stores the answer's reasoning."""
        key, used, missing = begin_key(history), dict[bytes, None](), list[bytes]()
        messages: list[Message] = []
        for index, message in enumerate(history.messages):
            key = extend_key(key, message)
            if index >= history.start and message.role == "assistant":
                keys = _keys(key, message.calls)
                stored_key = next((key for key in keys if key in self._entries), None)
                if stored_key is not None:
                    used[stored_key] = None
                    message = self._complete(message, stored_key, history.members)
                elif not _has_reasoning(message):
                    missing.append(keys[0])
            messages.append(message)
        self.touch(used)
        self.add(history.owner, dict.fromkeys(missing), used)
        restored = Restored(tuple(messages), key, used)
        return AnswerReasoning(self, history, restored, is_streamed=is_streamed)

    def find(self, key: bytes) -> bytes | None:
        """Return the JSON that is stored under a key; None if there is none."""
        entry = self._entries.get(key)
        return None if entry is None else entry.reasoning

    def touch(self, keys: Iterable[bytes]) -> None:
        """Mark entries as the most recently used."""
        for key in keys:
            if key in self._entries:
                self._entries.move_to_end(key)

    def add(self, owner: str, added: dict[bytes, bytes | None], used: dict[bytes, None]) -> None:
        """Add the new entries. Add none if that would evict entries in `used`."""
        entries = {
            key: _Entry(owner, reasoning)
            for key, reasoning in added.items()
            if key not in self._entries
        }
        if not self._make_room(entries, used):
            return
        for key, entry in entries.items():
            self._entries[key] = entry
            self._size += entry.size
            used[key] = None

    def _complete(self, message: Message, key: bytes, members: tuple[str, ...]) -> Message:
        reasoning = self._entries[key].reasoning
        if reasoning is None or _has_reasoning(message):
            return message
        return _insert(message, reasoning, members)

    def _make_room(self, added: dict[bytes, _Entry], used: dict[bytes, None]) -> bool:
        """Evict old entries if necessary. If any is in `used`, evict none and return False."""
        most, most_bytes = self._bounds.entries, self._bounds.bytes
        count, size = len(added), sum(entry.size for entry in added.values())
        if len(self._entries) + count <= most and self._size + size <= most_bytes:
            return True
        self.touch(used)  # other entries may have been used since this request began
        entries = [(key, entry.owner, entry.size) for key, entry in self._entries.items()]
        most, most_bytes = int(most * _FILL) - count, int(most_bytes * _FILL) - size
        if most < 0 or most_bytes < 0:
            return False
        excess = [*shares.find_excess(entries, most, most_bytes)]
        if not used.keys().isdisjoint(excess):
            return False
        for key in excess:
            self._size -= self._entries.pop(key).size
        return True


class AnswerReasoning:
    """The messages of a request with their reasoning, and the part of the answer sent so far."""

    def __init__(
        self,
        store: ReasoningStore,
        history: History,
        restored: Restored,
        *,
        is_streamed: bool,
    ) -> None:
        self._store, self._owner = store, history.owner
        self._key, self._used = restored.key, restored.used
        self._is_streamed = is_streamed
        self._reply = ReplyInProgress()
        pairs = zip(restored.messages, history.messages, strict=True)
        self._messages = restored.messages
        self._count = sum(message is not before for message, before in pairs)

    @property
    def facts(self) -> tuple[Fact, ...]:
        return (ReasoningRestored(self._count),) if self._count else ()

    def complete(self, request: Request) -> Request:
        """Return the request with the reasoning that the client omitted."""
        return request.with_messages(self._messages) if self._count else request

    def add(self, events: Sequence[ReplyEvent]) -> None:
        """Collect events that the client is sent; store the reasoning at the end of the answer.

        The client may send its next request as soon as it has received the end.
        """
        for event in events:
            # a turn that is restarted with a shorter prompt sends its answer from the beginning
            if isinstance(event, ReplyStarted) and not self._is_streamed:
                self._reply = ReplyInProgress()
            self._reply.add(event)
            if isinstance(event, ReplyFinished):
                self._store_reasoning()

    def _store_reasoning(self) -> None:
        reply = self._reply.finish("")
        if not reply.reasoning:
            return
        calls = tuple(
            ToolCall(call.id or "", call.name, f"{call.arguments}") for call in reply.calls
        )
        key = extend_key(self._key, Message("assistant", reply.text, b"", calls))
        reasoning = json.dump(reply.reasoning)
        self._store.add(self._owner, dict.fromkeys(_keys(key, calls), reasoning), self._used)


def begin_key(history: History) -> bytes:
    """Return the key of a conversation without messages."""
    return _digest(b"", history.owner, *history.origin)


def extend_key(key: bytes, message: Message) -> bytes:
    """Return the key of a conversation with one more message."""
    if message.role == "user":
        text = _squeeze(without_reminders(message.text))
        return _digest(key, "user", text) if text else key
    if message.role != "assistant":
        return key
    if not message.calls:
        return _digest(key, "text", _squeeze(message.text))
    # clients drop the text next to calls, or change it
    named = ((call.name, _normalize(call.arguments)) for call in message.calls)
    return _digest(key, "calls", *(part for call in named for part in call))


def _keys(key: bytes, calls: Sequence[ToolCall]) -> tuple[bytes, ...]:
    """Return the keys of a message: one with the ids of its calls, if they have any, then `key`."""
    ids = [call.id for call in calls]
    return (_digest(key, "ids", *ids), key) if any(ids) else (key,)


def _digest(key: bytes, *parts: str) -> bytes:
    digest = blake2b(key, digest_size=16)
    for part in parts:
        source = part.encode("utf-8", "surrogatepass")
        # without the lengths, ("ab", "c") and ("a", "bc") would have the same digest
        digest.update(b"%d:" % len(source))
        digest.update(source)
    return digest.digest()


def _squeeze(text: str) -> str:
    """Remove all white space: clients trim it, and add it when they join content parts."""
    return "".join(text.split())


def _normalize(arguments: str) -> str:
    """Return arguments in canonical JSON; invalid JSON stays unchanged."""
    try:
        value = json.parse(arguments or "{}")
    except ValueError:
        return arguments
    return json.dump_text(_plain(value))


def _plain(value: JsonValue) -> JsonValue:
    """Sort the members of objects; write 1.0 as 1, as JavaScript and Go do."""
    match value:
        case dict():
            return {name: _plain(value[name]) for name in sorted(value)}
        case list():
            return [*map(_plain, value)]
        case float() if value.is_integer():
            return int(value)
        case _:
            return value


def _has_reasoning(message: Message) -> bool:
    """Return whether a message has reasoning, as a member, a content part or tagged text."""
    if any(sign in message.source for sign in _SIGNS):
        parts = (part for part in message.parts if isinstance(part, Reasoning))
        if any(part.text or part.signed for part in parts):
            return True
    return bool(message.text) and split_thoughts(message.text)[0] != ""


def _insert(message: Message, reasoning: bytes, names: tuple[str, ...]) -> Message:
    """Return a message with the reasoning in the members `names`, before its calls."""
    members = json.split_object(message.source)
    others = {name: raw for name, raw in members.items() if name not in REASONING_MEMBERS}
    calls = others.pop("tool_calls", None)
    completed = others | dict.fromkeys(names, reasoning)
    if calls is not None:
        completed["tool_calls"] = calls
    return replace(message, source=json.join_object(completed))
