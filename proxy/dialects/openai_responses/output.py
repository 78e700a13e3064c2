"""The items of an answer, from the events of a turn: one is open at a time, and done is done.

What comes while a call is half written waits for its end. A call that has none when the answer is
cut off never becomes an item that is done: clients run those.
"""

from collections.abc import Callable

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
from proxy.dialects.openai_responses.calls import id_prefix, is_whole
from proxy.dialects.openai_responses.open_items import (
    Event,
    OpenCall,
    OpenItem,
    OpenReasoning,
    OpenText,
)
from proxy.dialects.openai_responses.response import COMPLETED, IN_PROGRESS, INCOMPLETE, AnswerTerms


class Output:
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
        return begun + self._placed(item, item.add(text, logprobs))

    def _think(self, text: str) -> list[Event]:
        begun: list[Event] = []
        item = self._open
        if not isinstance(item, OpenReasoning):
            item = OpenReasoning(
                f"rs_{self._token()}", summarizes=self._terms.summarizes, signs=self._terms.signs
            )
            begun = self._begin(item)
        return begun + self._placed(item, item.add(text))

    def _call(self, index: int, call_id: str | None, name: str) -> list[Event]:
        origin = self._terms.origin_of(name)
        item_id = f"{id_prefix(origin.kind)}{self._token()}"
        return self._begin(OpenCall(item_id, index, origin, call_id or f"call_{self._token()}"))

    def _go_on(self, index: int, text: str) -> list[Event]:
        call = self._open
        if not isinstance(call, OpenCall) or call.index != index:
            return []
        return self._placed(call, call.add(text))

    def _begin(self, item: OpenItem) -> list[Event]:
        """Open an item; the one before it is done with that."""
        events = self._close(COMPLETED)
        self._open = item
        return events if _is_held(item) else events + self._announce(item)

    def _announce(self, item: OpenItem) -> list[Event]:
        added: JsonObject = {**self._place(), "item": item.item(IN_PROGRESS)}
        return [("response.output_item.added", added), *self._placed(item, item.begin())]

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
        events = [*held, *self._placed(item, item.end()), done]
        self.done.append(json.dump(whole))
        return events

    def _place(self) -> JsonObject:
        return {"output_index": self.place}

    def _placed(self, item: OpenItem, events: list[Event]) -> list[Event]:
        place: JsonObject = {"item_id": item.id, **self._place()}
        return [(kind, {**place, **members}) for kind, members in events]


def _is_held(item: OpenItem) -> bool:
    """Return whether an item is shown at its end only: typed clients take no half of it."""
    return isinstance(item, OpenCall) and not item.is_streamed
