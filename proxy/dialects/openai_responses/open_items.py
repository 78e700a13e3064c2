"""The kinds of items that an answer consists of, each while it is being written.

An event is told by its type and the members that only it has; `output` adds those of its place.
"""

from typing import Protocol, TypeAlias

from proxy.conversation.json import JsonObject, JsonValue
from proxy.dialects.foreign_history import ThoughtSigner
from proxy.dialects.openai_responses.calls import Kind, Origin, call_item

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
        """Open the part."""
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
        return self._origin.kind in (Kind.FUNCTION, Kind.CUSTOM)

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
        if self._origin.kind is not Kind.FUNCTION or not text:
            return []
        return [("response.function_call_arguments.delta", {"delta": text})]

    def end(self) -> list[Event]:
        """Repeat the whole call."""
        if self._origin.kind is Kind.FUNCTION:
            whole: JsonObject = {"name": self._origin.name, "arguments": self.arguments}
            return [("response.function_call_arguments.done", whole)]
        if self._origin.kind is not Kind.CUSTOM:
            return []
        text = call_item(self._origin, self._call_id, self.arguments)["input"]
        name = "response.custom_tool_call_input"
        delta: list[Event] = [(f"{name}.delta", {"delta": text})] if text else []
        return [*delta, (f"{name}.done", {"input": text})]
