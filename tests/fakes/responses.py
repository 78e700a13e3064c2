"""The Responses dialect for tests, and a validator of its streams."""

from collections.abc import Callable, Iterable
from itertools import count

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.replies import ReplyEvent
from proxy.dialects.dialect import Client, Decoded, IdsAndClock
from proxy.dialects.openai_responses.dialect import ResponsesDialect
from proxy.dialects.openai_responses.store import ResponseStore
from proxy.dialects.sse import Event, EventDecoder
from proxy.state.memory_responses import MemoryStore

NOW = 1_700_000_000.0
OWNER = Client(owner="somebody")
_LIFECYCLE = ("created", "in_progress", "completed", "incomplete", "failed")
_ENDS = ("response.completed", "response.incomplete", "response.failed")


def make_token(first: int = 1) -> Callable[[], str]:
    numbers = count(first)
    return lambda: f"{next(numbers):024x}"


def make_dialect(store: ResponseStore | None = None, first_id: int = 1) -> ResponsesDialect:
    return ResponsesDialect(IdsAndClock(lambda: NOW, make_token(first_id)), store)


def make_store() -> ResponseStore:
    return MemoryStore(lambda: NOW)


def tool(name: str, **members: JsonValue) -> JsonObject:
    return {"type": "function", "name": name, "parameters": {"type": "object"}, **members}


def user(content: JsonValue, **members: JsonValue) -> JsonObject:
    return {"role": "user", "content": content, **members}


def assistant(content: JsonValue, **members: JsonValue) -> JsonObject:
    return {"type": "message", "role": "assistant", "content": content, **members}


def call(name: str, call_id: str = "c", arguments: JsonValue = "{}") -> JsonObject:
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments}


def result(output: JsonValue, call_id: str = "c") -> JsonObject:
    return {"type": "function_call_output", "call_id": call_id, "output": output}


def decode(store: ResponseStore | None = None, /, **fields: JsonValue) -> Decoded:
    body: JsonObject = {"model": "m", "input": "Hi", **fields}
    sent: JsonObject = {name: value for name, value in body.items() if value != "absent"}
    return make_dialect(store).decode(json.dump(sent), OWNER)


def written(given: JsonValue, **fields: JsonValue) -> list[JsonValue]:
    """Return the messages that a backend receives for an input."""
    messages = json.parse(decode(input=given, **fields).request.fields["messages"])
    assert isinstance(messages, list)
    return messages


def objects(value: JsonValue) -> list[JsonObject]:
    assert isinstance(value, list)
    return [item for item in value if isinstance(item, dict)]


def member(value: JsonValue, *names: str) -> JsonValue:
    for name in names:
        assert isinstance(value, dict)
        value = value[name]
    return value


def streamed(decoded: Decoded, events: Iterable[ReplyEvent]) -> bytes:
    """Encode a successful response as a stream, one event at a time."""
    encoder = decoded.answering.begin(None)
    return b"".join([encoder.encode_all([event]) for event in events]) + encoder.end()


def whole(decoded: Decoded, events: Iterable[ReplyEvent]) -> JsonObject:
    builder = decoded.answering.builder(None)
    for event in events:
        builder.add(event)
    value = json.parse(builder.build())
    assert isinstance(value, dict)
    return value


def read_stream(data: bytes) -> list[JsonObject]:
    """Return the data of each event."""
    return [_data(event) for event in EventDecoder().feed(data)]


def _data(event: Event) -> JsonObject:
    value = json.parse(event.data)
    assert isinstance(value, dict)
    assert value["type"] == event.event
    return value


class StreamJudge:
    """Validates each event of a stream against the guarantees that clients rely on."""

    def __init__(self) -> None:
        self.done: list[JsonValue] = []
        self._id: JsonValue = None
        self._open: JsonObject | None = None
        self._part: tuple[str, JsonValue] | None = None
        self._deltas: list[str] = []
        self._is_over = False

    def judge(self, events: list[JsonObject]) -> "StreamJudge":
        assert [event["sequence_number"] for event in events] == [*range(len(events))]
        kinds = [event["type"] for event in events]
        assert kinds[:2] == ["response.created", "response.in_progress"]
        assert [kind for kind in kinds if kind in _ENDS] == kinds[-1:]
        for event in events:
            self._take(event)
        assert self._is_over
        return self

    def _take(self, event: JsonObject) -> None:
        assert not self._is_over
        name = f"{event['type']}".removeprefix("response.")
        if name in _LIFECYCLE:
            self._take_response(name, event)
        elif name == "output_item.added":
            self._take_added(event)
        elif name == "output_item.done":
            self._take_done(event)
        else:
            self._take_inner(name, event)

    def _take_response(self, name: str, event: JsonObject) -> None:
        response = event["response"]
        assert isinstance(response, dict)
        self._id = self._id or response["id"]
        assert response["id"] == self._id
        is_progress = name in ("created", "in_progress")
        assert response["status"] == ("in_progress" if is_progress else name)
        assert response["output"] == ([] if is_progress else self.done)
        self._is_over = not is_progress

    def _take_added(self, event: JsonObject) -> None:
        assert self._open is None
        assert event["output_index"] == len(self.done)
        item = event["item"]
        assert isinstance(item, dict)
        assert item["status"] == "in_progress"
        self._open, self._deltas = item, []

    def _take_done(self, event: JsonObject) -> None:
        item = event["item"]
        assert isinstance(item, dict)
        assert self._open is not None
        assert self._part is None
        assert event["output_index"] == len(self.done)
        same = ("id", "type", "call_id", "name", "namespace")
        assert [item.get(name) for name in same] == [self._open.get(name) for name in same]
        assert _text_of(item) == "".join(self._deltas)
        self.done.append(item)
        self._open = None

    def _take_inner(self, name: str, event: JsonObject) -> None:
        assert self._open is not None
        assert (event["item_id"], event["output_index"]) == (self._open["id"], len(self.done))
        family, _, what = name.rpartition(".")
        index = "summary_index" if "summary" in family else "content_index"
        if "arguments" not in family and "input" not in family:
            assert event[index] == 0
        if family.endswith("_part"):
            assert (self._part is None) is (what == "added")
            self._part = (family, event["part"]) if what == "added" else None
        elif what == "delta":
            assert event["delta"]
            self._deltas.append(f"{event['delta']}")
        else:
            (text,) = (event[key] for key in ("text", "arguments", "input") if key in event)
            assert text == "".join(self._deltas)


def _text_of(item: JsonObject) -> str:
    """Return the text that the deltas of an item must add up to."""
    match item["type"]:
        case "function_call":
            return f"{item['arguments']}"
        case "custom_tool_call":
            return f"{item['input']}"
        case "message":
            (part,) = objects(item["content"])
        case "reasoning":
            (part,) = objects(item["summary"]) + objects(item.get("content", []))
        case _:
            return ""
    return f"{part['text']}"
