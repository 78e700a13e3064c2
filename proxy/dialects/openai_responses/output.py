"""The items of an answer, from the events of a turn: one is open at a time, and done is done.

What comes while a call is half written waits for its end. A call that has none when the answer is
cut off never becomes an item that is done: clients run those.
"""

from collections.abc import Callable
from typing import Protocol, TypeAlias

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.replies import (
    ReasoningDelta,
    ReplyEvent,
    TextDelta,
    ToolCallArgumentsDelta,
    ToolCalled,
    ToolCallStarted,
)
from proxy.dialects.foreign_history import ThoughtSigner
from proxy.dialects.openai_responses.client_tools import (
    Origin,
    ToolKind,
    call_item,
    id_prefix,
    is_whole,
)
from proxy.dialects.openai_responses.response import COMPLETED, IN_PROGRESS, INCOMPLETE, AnswerTerms

Event: TypeAlias = tuple[str, JsonObject]

_FIRST_PART: JsonObject = {"content_index": 0}
_FIRST_SUMMARY: JsonObject = {"summary_index": 0}


class OpenItem(Protocol):
    """An item that is being written."""

    @property
    def id(self) -> str:
        """The item's own id."""

    def item(self, status: str) -> JsonObject:
        """Return the item as far as it is."""

    def begin(self) -> list[Event]:
        """Return what follows the news that it was added."""

    def add(self, text: str, /) -> list[Event]:
        """Take more of it."""

    def end(self) -> list[Event]:
        """Return what precedes the news that it is done."""


class OpenText:
    """A message of the assistant, with one part."""

    def __init__(self, item_id: str) -> None:
        self.id = item_id
        self._parts = 0
        self._texts: list[str] = []
        self._logprobs: list[JsonValue] = []

    def item(self, status: str) -> JsonObject:
        """Return the message."""
        content: list[JsonValue] = [self._part()] * self._parts
        message: JsonObject = {"type": "message", "id": self.id, "status": status}
        return {**message, "role": "assistant", "content": content}

    def begin(self) -> list[Event]:
        """Open the part."""
        self._parts = 1
        return [("response.content_part.added", {**_FIRST_PART, "part": self._part()})]

    def add(self, text: str, logprobs: JsonValue = None) -> list[Event]:
        """Add some text, and how likely its tokens were where the client asked for that."""
        fresh = _logprobs_in(logprobs)
        self._logprobs += fresh
        self._texts.append(text)
        members: JsonObject = {**_FIRST_PART, "delta": text, "logprobs": fresh}
        return [("response.output_text.delta", members)]

    def extend(self, text: str) -> None:
        """Add some text of which nothing else is known; whoever does so tells of it."""
        self._texts.append(text)

    def end(self) -> list[Event]:
        """Repeat the whole text."""
        part = self._part()
        said: JsonObject = {"text": part["text"], "logprobs": part["logprobs"]}
        return [
            ("response.output_text.done", {**_FIRST_PART, **said}),
            ("response.content_part.done", {**_FIRST_PART, "part": part}),
        ]

    def _part(self) -> JsonObject:
        text = "".join(self._texts)
        part: JsonObject = {"type": "output_text", "text": text, "annotations": []}
        return {**part, "logprobs": [*self._logprobs]}


def _logprobs_in(logprobs: JsonValue) -> list[JsonValue]:
    """Return the tokens of a backend's object for them, which is that of chat completions."""
    tokens = logprobs.get("content") if isinstance(logprobs, dict) else None
    return tokens if isinstance(tokens, list) else []


class OpenReasoning:
    """Thoughts: as a summary where the client asked for one, else as content."""

    def __init__(self, item_id: str, *, summarizes: bool, signs: bool) -> None:
        self.id = item_id
        self._summarizes = summarizes
        self._signer = ThoughtSigner() if signs else None
        self._parts = 0
        self._texts: list[str] = []

    def item(self, status: str) -> JsonObject:
        """Return the item; its signature tells it from another model's when it comes back."""
        parts: list[JsonValue] = [self._part()] * self._parts
        item: JsonObject = {"type": "reasoning", "id": self.id, "summary": []}
        item |= {"summary": parts} if self._summarizes else {"content": parts}
        if self._signer is not None:
            item["encrypted_content"] = self._signer.signature
        return {**item, "status": status}

    def begin(self) -> list[Event]:
        self._parts = 1
        return [self._about_part("added")]

    def add(self, text: str) -> list[Event]:
        """Add some of a thought."""
        self._texts.append(text)
        if self._signer is not None:
            self._signer.add(text)
        return [self._about_text("delta", {"delta": text})]

    def end(self) -> list[Event]:
        """Repeat the whole thought."""
        whole: JsonObject = {"text": "".join(self._texts)}
        return [self._about_text("done", whole), self._about_part("done")]

    def _about_text(self, what: str, members: JsonObject) -> Event:
        if self._summarizes:
            return f"response.reasoning_summary_text.{what}", {**_FIRST_SUMMARY, **members}
        return f"response.reasoning_text.{what}", {**_FIRST_PART, **members}

    def _about_part(self, what: str) -> Event:
        part = self._part()
        if self._summarizes:
            return f"response.reasoning_summary_part.{what}", {**_FIRST_SUMMARY, "part": part}
        return f"response.content_part.{what}", {**_FIRST_PART, "part": part}

    def _part(self) -> JsonObject:
        kind = "summary_text" if self._summarizes else "reasoning_text"
        return {"type": kind, "text": "".join(self._texts)}


class OpenCall:
    """A call, numbered `index` by the turn; only those of functions are shown while they grow."""

    def __init__(self, item_id: str, index: int, origin: Origin, call_id: str) -> None:
        self.id = item_id
        self.index = index
        self._origin = origin
        self._call_id = call_id
        self._texts: list[str] = []

    @property
    def is_streamed(self) -> bool:
        """Whether its shape can be shown before all of it is known."""
        return self._origin.kind in (ToolKind.FUNCTION, ToolKind.CUSTOM)

    @property
    def arguments(self) -> str:
        """Their JSON text as far as it is."""
        return "".join(self._texts)

    def item(self, status: str) -> JsonObject:
        """Return the call in the client's shape."""
        call = call_item(self._origin, self._call_id, self.arguments)
        return {**call, "id": self.id, "status": status}

    def begin(self) -> list[Event]:
        """Begin it, which has no event of its own."""
        return []

    def add(self, text: str) -> list[Event]:
        """Add some of the arguments."""
        self._texts.append(text)
        if self._origin.kind is not ToolKind.FUNCTION or not text:
            return []
        return [("response.function_call_arguments.delta", {"delta": text})]

    def end(self) -> list[Event]:
        """Repeat the whole call."""
        if self._origin.kind is ToolKind.FUNCTION:
            whole: JsonObject = {"name": self._origin.name, "arguments": self.arguments}
            return [("response.function_call_arguments.done", whole)]
        if self._origin.kind is not ToolKind.CUSTOM:
            return []
        text = call_item(self._origin, self._call_id, self.arguments)["input"]
        name = "response.custom_tool_call_input"
        delta: list[Event] = [(f"{name}.delta", {"delta": text})] if text else []
        return [*delta, (f"{name}.done", {"input": text})]


class OutputItems:
    """Turns the events of one answer into those of its items; `token` makes ids.

    `done` holds the items that are complete, as JSON.
    """

    def __init__(self, terms: AnswerTerms, token: Callable[[], str]) -> None:
        self.done: list[bytes] = []
        self._terms = terms
        self._token = token
        self._open: OpenItem | None = None
        self._waiting: list[ReplyEvent] = []

    def take(self, event: ReplyEvent) -> list[Event]:
        """Return what an event of the turn means for the items."""
        if self._has_to_wait(event):
            self._waiting.append(event)
            return []
        return self._take(event)

    def _take(self, event: ReplyEvent) -> list[Event]:
        match event:
            case TextDelta(text, logprobs) if text:
                return self._say(text, logprobs)
            case ReasoningDelta(text) if text:
                return self._think(text)
            case ToolCallStarted(index, call_id, name):
                return self._call(index, call_id, name)
            case ToolCallArgumentsDelta(index, text):
                return self._go_on(index, text)
            case ToolCalled(index, call):
                return self._call(index, call.id, call.name) + self._go_on(index, call.arguments)
            case _:
                return []

    def say_more(self, text: str) -> str | None:
        """Add to the message that is open; returns its id, None where another event is due."""
        if not isinstance(self._open, OpenText):
            return None
        self._open.extend(text)
        return self._open.id

    @property
    def place(self) -> int:
        """The number of the item that is open, or comes next."""
        return len(self.done)

    def finish(self, status: str) -> list[Event]:
        """End what is open when the answer ends; `status` is that of the whole."""
        events = self._close_last(status)
        while self._waiting:
            waiting, self._waiting = self._waiting, []
            for event in waiting:
                events += self.take(event)
            events += self._close_last(status)
        return events

    def _has_to_wait(self, event: ReplyEvent) -> bool:
        call = self._open
        if not isinstance(call, OpenCall):
            return False
        if isinstance(event, ToolCallArgumentsDelta) and event.index == call.index:
            return False
        return bool(self._waiting) or not is_whole(call.arguments)

    def _say(self, text: str, logprobs: JsonValue) -> list[Event]:
        begun: list[Event] = []
        item = self._open
        if not isinstance(item, OpenText):
            item = OpenText(f"msg_{self._token()}")
            begun = self._begin(item)
        return begun + self._at_place(item, item.add(text, logprobs))

    def _think(self, text: str) -> list[Event]:
        begun: list[Event] = []
        item = self._open
        if not isinstance(item, OpenReasoning):
            item = OpenReasoning(
                f"rs_{self._token()}", summarizes=self._terms.summarizes, signs=self._terms.signs
            )
            begun = self._begin(item)
        return begun + self._at_place(item, item.add(text))

    def _call(self, index: int, call_id: str | None, name: str) -> list[Event]:
        origin = self._terms.origin_of(name)
        item_id = f"{id_prefix(origin.kind)}{self._token()}"
        return self._begin(OpenCall(item_id, index, origin, call_id or f"call_{self._token()}"))

    def _go_on(self, index: int, text: str) -> list[Event]:
        call = self._open
        if not isinstance(call, OpenCall) or call.index != index:
            return []
        return self._at_place(call, call.add(text))

    def _begin(self, item: OpenItem) -> list[Event]:
        """Open an item; the one before it is done with that."""
        events = self._close(COMPLETED)
        self._open = item
        return events if _is_held(item) else events + self._announce(item)

    def _announce(self, item: OpenItem) -> list[Event]:
        added: JsonObject = {**self._place(), "item": item.item(IN_PROGRESS)}
        return [("response.output_item.added", added), *self._at_place(item, item.begin())]

    def _close_last(self, status: str) -> list[Event]:
        call = self._open
        if status != INCOMPLETE or not isinstance(call, OpenCall):
            return self._close(status)
        if is_whole(call.arguments):
            return self._close(COMPLETED)
        self._open = None
        self._waiting.clear()
        return []

    def _close(self, status: str) -> list[Event]:
        item = self._open
        if item is None:
            return []
        self._open = None
        whole = item.item(status)
        done: Event = ("response.output_item.done", {**self._place(), "item": whole})
        held = self._announce(item) if _is_held(item) else []
        events = [*held, *self._at_place(item, item.end()), done]
        self.done.append(json.dump(whole))
        return events

    def _place(self) -> JsonObject:
        return {"output_index": self.place}

    def _at_place(self, item: OpenItem, events: list[Event]) -> list[Event]:
        place: JsonObject = {"item_id": item.id, **self._place()}
        return [(kind, {**place, **members}) for kind, members in events]


def _is_held(item: OpenItem) -> bool:
    """Return whether an item is shown at its end only: typed clients take no half of it."""
    return isinstance(item, OpenCall) and not item.is_streamed
