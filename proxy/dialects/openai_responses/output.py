"""Converts the blocks of an answer into items, of which only one is open at a time.

    BlockStarted(0, "text"), BlockDelta("Hi"), BlockStopped()
    -> response.output_item.added, response.content_part.added, response.output_text.delta,
       response.output_text.done, response.content_part.done, response.output_item.done

A truncated call never becomes a done item, because clients run a call when its item is done.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.replies import ReasoningDelta, ReplyEvent, RoundMessages
from proxy.dialects.answer_blocks import (
    AnswerBlocks,
    BlockDelta,
    BlockStarted,
    BlockStep,
    BlockStopped,
)
from proxy.dialects.foreign_history import sign
from proxy.dialects.lenient_json import as_list, as_object, as_text
from proxy.dialects.openai_responses.client_tools import (
    CALL_FORMS,
    NAMED_KINDS,
    RAN_PREFIX,
    Origin,
    ToolKind,
    call_item,
)
from proxy.dialects.openai_responses.items import seal
from proxy.dialects.openai_responses.response import (
    COMPLETED,
    FAILED,
    IN_PROGRESS,
    INCOMPLETE,
    AnswerOptions,
)

Event: TypeAlias = tuple[str, JsonObject]


class OpenItem(ABC):
    """An item in progress."""

    # True if only the complete item is sent, because typed clients reject an incomplete item
    is_held = False

    def __init__(self, item_id: str) -> None:
        self.id = item_id
        self._texts: list[str] = []

    @property
    def text(self) -> str:
        """The text so far; for a call, its arguments."""
        return "".join(self._texts)

    def extend(self, text: str) -> None:
        """Add text without returning an event, because the caller writes the event itself."""
        self._texts.append(text)

    @abstractmethod
    def item(self, status: str) -> JsonObject:
        """Return the item in its current state."""

    @abstractmethod
    def begin(self) -> list[Event]:
        """Return the events after `output_item.added`."""

    @abstractmethod
    def add(self, text: str, logprobs: JsonValue = None) -> list[Event]:
        """Add text with its log probabilities, if the client requested them."""

    @abstractmethod
    def end(self) -> list[Event]:
        """Return the events that repeat the whole text; `output_item.done` follows them."""


class _OpenPart(OpenItem):
    """An item with one part of text.

    `part` and `text` are the names in event types, such as `content_part` in
    `response.content_part.added` and `output_text` in `response.output_text.delta`.
    """

    def __init__(self, item_id: str, part: str, text: str, index: str = "content_index") -> None:
        super().__init__(item_id)
        self._part_name, self._text_name = f"response.{part}", f"response.{text}"
        self._index: JsonObject = {index: 0}
        self._parts = 0

    def begin(self) -> list[Event]:
        self._parts = 1
        return [self._part_event("added")]

    def add(self, text: str, logprobs: JsonValue = None) -> list[Event]:
        self._texts.append(text)
        return [self._text_event("delta", {"delta": text})]

    def end(self) -> list[Event]:
        return [self._text_event("done", {"text": self.text}), self._part_event("done")]

    def _text_event(self, step: str, members: JsonObject) -> Event:
        return f"{self._text_name}.{step}", {**self._index, **members}

    def _part_event(self, step: str) -> Event:
        return f"{self._part_name}.{step}", {**self._index, "part": self._part()}

    @abstractmethod
    def _part(self) -> JsonObject:
        """Return the part in its current state."""


class OpenText(_OpenPart):
    """A message of the assistant."""

    def __init__(self, item_id: str) -> None:
        super().__init__(item_id, "content_part", "output_text")
        self._logprobs: list[JsonValue] = []

    def item(self, status: str) -> JsonObject:
        content: list[JsonValue] = [self._part()] * self._parts
        message: JsonObject = {"type": "message", "id": self.id, "status": status}
        return {**message, "role": "assistant", "content": content}

    def add(self, text: str, logprobs: JsonValue = None) -> list[Event]:
        new_logprobs = as_list(as_object(logprobs).get("content"))
        self._logprobs += new_logprobs
        self._texts.append(text)
        return [self._text_event("delta", {"delta": text, "logprobs": new_logprobs})]

    def end(self) -> list[Event]:
        text: JsonObject = {"text": self.text, "logprobs": [*self._logprobs]}
        return [self._text_event("done", text), self._part_event("done")]

    def _part(self) -> JsonObject:
        part: JsonObject = {"type": "output_text", "text": self.text, "annotations": []}
        return {**part, "logprobs": [*self._logprobs]}


class OpenReasoning(_OpenPart):
    """Reasoning; it is sent as a summary if the client requested one, otherwise as content."""

    def __init__(self, item_id: str, *, summarizes: bool, signs: bool) -> None:
        if summarizes:
            names = ("reasoning_summary_part", "reasoning_summary_text", "summary_index")
            super().__init__(item_id, *names)
        else:
            super().__init__(item_id, "content_part", "reasoning_text")
        self._summarizes = summarizes
        self._signs = signs

    def item(self, status: str) -> JsonObject:
        """Return the item; when a client sends it back, its signature shows its origin."""
        parts: list[JsonValue] = [self._part()] * self._parts
        item: JsonObject = {"type": "reasoning", "id": self.id, "summary": []}
        item |= {"summary": parts} if self._summarizes else {"content": parts}
        if self._signs:
            item["encrypted_content"] = sign(self.text)
        return {**item, "status": status}

    def _part(self) -> JsonObject:
        kind = "summary_text" if self._summarizes else "reasoning_text"
        return {"type": kind, "text": self.text}


class OpenCall(OpenItem):
    """A call; its arguments are streamed only if the tool is a function."""

    def __init__(self, item_id: str, origin: Origin, call_id: str) -> None:
        super().__init__(item_id)
        self.is_held = origin.kind not in NAMED_KINDS
        self._origin = origin
        self._call_id = call_id

    def item(self, status: str) -> JsonObject:
        """Return the call in the form of the client's tool."""
        call = call_item(self._origin, self._call_id, self.text)
        return {**call, "id": self.id, "status": status}

    def begin(self) -> list[Event]:
        return []

    def add(self, text: str, logprobs: JsonValue = None) -> list[Event]:
        self._texts.append(text)
        # for other tools, the arguments follow Temper's own schema, which the client does not know
        if self._origin.kind is not ToolKind.FUNCTION or not text:
            return []
        return [("response.function_call_arguments.delta", {"delta": text})]

    def end(self) -> list[Event]:
        if self._origin.kind is ToolKind.FUNCTION:
            call: JsonObject = {"name": self._origin.name, "arguments": self.text}
            return [("response.function_call_arguments.done", call)]
        if self._origin.kind is not ToolKind.CUSTOM:
            return []
        # the input is a member of the arguments, so it is known only when they are complete
        text = call_item(self._origin, self._call_id, self.text)["input"]
        name = "response.custom_tool_call_input"
        delta: list[Event] = [(f"{name}.delta", {"delta": text})] if text else []
        return [*delta, (f"{name}.done", {"input": text})]


class OpenSummary(OpenItem):
    """A summary that clients later send in place of the conversation."""

    is_held = True

    def item(self, status: str) -> JsonObject:
        del status  # a `compaction` item has no status
        return {"type": "compaction", "id": self.id, "encrypted_content": seal(self.text)}

    def begin(self) -> list[Event]:
        return []

    def add(self, text: str, logprobs: JsonValue = None) -> list[Event]:
        self._texts.append(text)
        return []

    def end(self) -> list[Event]:
        return []


def _executed_calls(rounds: RoundMessages) -> Iterator[JsonObject]:
    """Yield an item for each call that Temper ran on a tool server."""
    results = {message.get("tool_call_id"): message for message in rounds.messages}
    for message in rounds.messages:
        for call in map(as_object, as_list(message.get("tool_calls"))):
            function = as_object(call.get("function"))
            server = rounds.servers.get(as_text(function.get("name")))
            if server is None:
                continue
            result = results.get(call.get("id")) or {}
            text, has_failed = result.get("content"), result.get("failed") is True
            yield {
                "type": "mcp_call",
                "id": f"{RAN_PREFIX}{as_text(call.get('id'))}",
                "server_label": server,
                "name": function.get("name"),
                "arguments": function.get("arguments"),
                "output": None if has_failed else text,
                "error": text if has_failed else None,
                "approval_request_id": None,
                "status": FAILED if has_failed else COMPLETED,
            }


class OutputItems:
    """Converts reply events into item events.

    `token` returns a new random id. `done` contains the complete items.
    """

    def __init__(self, options: AnswerOptions, token: Callable[[], str]) -> None:
        self.done: list[bytes] = []
        self._options = options
        self._token = token
        self._blocks = AnswerBlocks(lambda: "")  # the ids are generated in `_begin`
        self._open: OpenItem | None = None

    def convert(self, event: ReplyEvent) -> list[Event]:
        """Return the item events for an event of the reply."""
        if isinstance(event, RoundMessages):
            events = self._convert(self._blocks.interrupt())
            for item in _executed_calls(event):
                events += self._add_executed_call(item)
            return events
        if self._options.compacts and isinstance(event, ReasoningDelta):
            return []  # not sent: the client replaces its history by the summary in this answer
        return self._convert(self._blocks.feed(event))

    def finish(self, status: str) -> list[Event]:
        """End the open item; `status` is the status of the whole answer."""
        steps = self._blocks.finish(drops_incomplete_call=status == INCOMPLETE)
        if not steps or not isinstance(steps[-1], BlockStopped):
            return self._convert(steps)
        events = self._convert(steps[:-1])
        # the blocks have dropped a truncated call, so a call that is still open is complete
        return events + self._close(COMPLETED if isinstance(self._open, OpenCall) else status)

    def extend_text(self, text: str) -> str | None:
        """Add text to the open message; return its id, None if no message is open."""
        if not isinstance(self._open, OpenText):
            return None
        self._open.extend(text)
        return self._open.id

    @property
    def index(self) -> int:
        """The index of the open or the next item."""
        return len(self.done)

    def _convert(self, steps: Iterable[BlockStep]) -> list[Event]:
        events: list[Event] = []
        for step in steps:
            match step:
                case BlockStarted():
                    self._open = self._begin(step)
                    events += [] if self._open.is_held else self._add_item(self._open)
                case BlockDelta(text, logprobs) if self._open is not None:
                    events += self._with_index(self._open, self._open.add(text, logprobs))
                case _:
                    events += self._close(COMPLETED)
        return events

    def _begin(self, started: BlockStarted) -> OpenItem:
        match started.kind:
            case "text" if self._options.compacts:
                return OpenSummary(f"cmp_{self._token()}")
            case "text":
                return OpenText(f"msg_{self._token()}")
            case "thinking":
                options = self._options
                item_id = f"rs_{self._token()}"
                return OpenReasoning(item_id, summarizes=options.summarizes, signs=options.signs)
            case "tool_use":
                origin = self._options.origin_of(started.name)
                item_id = f"{CALL_FORMS[origin.kind].id_prefix}{self._token()}"
                return OpenCall(item_id, origin, started.id or f"call_{self._token()}")

    def _add_item(self, item: OpenItem) -> list[Event]:
        added: JsonObject = {"output_index": self.index, "item": item.item(IN_PROGRESS)}
        return [("response.output_item.added", added), *self._with_index(item, item.begin())]

    def _close(self, status: str) -> list[Event]:
        item, self._open = self._open, None
        assert item is not None  # noqa: S101 - a block begins before it ends
        item_object = item.item(status)
        events = self._add_item(item) if item.is_held else []
        events += self._with_index(item, item.end())
        events.append(
            ("response.output_item.done", {"output_index": self.index, "item": item_object})
        )
        self.done.append(json.dump(item_object))
        return events

    def _add_executed_call(self, item: JsonObject) -> list[Event]:
        """Add a complete call that Temper ran."""
        index: JsonObject = {"output_index": self.index}
        reference: JsonObject = {"item_id": item["id"], **index}
        begun: JsonObject = {**item, "status": IN_PROGRESS, "arguments": "", "output": None}
        self.done.append(json.dump(item))
        return [
            ("response.output_item.added", {**index, "item": {**begun, "error": None}}),
            ("response.mcp_call.in_progress", reference),
            ("response.mcp_call_arguments.done", {**reference, "arguments": item["arguments"]}),
            (f"response.mcp_call.{item['status']}", reference),
            ("response.output_item.done", {**index, "item": item}),
        ]

    def _with_index(self, item: OpenItem, events: list[Event]) -> list[Event]:
        index: JsonObject = {"item_id": item.id, "output_index": self.index}
        return [(kind, {**index, **members}) for kind, members in events]
