"""A parsed response, in the same form for streams and for single bodies.

Reading a stream also checks the invariants of streams, see `_check`.
"""

from dataclasses import dataclass, field
from typing import cast

import httpx

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue

REPORT = "x-temper"
_NO_FACTS = ("x-temper-backend", "x-temper-prefix")


@dataclass
class Answer:
    """A response; `report` holds Temper's outcomes, `chunks` the raw chunks of a stream.

    `news` are the comments of the stream that report no outcome.
    """

    status: int
    headers: httpx.Headers
    body: bytes
    identity: JsonObject = field(default_factory=dict)
    text: str | None = None
    reasoning: str = ""
    calls: list[JsonObject] = field(default_factory=list)
    reason: JsonValue = None
    usage: JsonValue = None
    error: JsonObject | None = None
    report: dict[str, str] = field(default_factory=dict)
    chunks: list[JsonObject] = field(default_factory=list)
    news: list[str] = field(default_factory=list)
    is_done: bool = False

    @property
    def called(self) -> list[tuple[JsonValue, JsonValue]]:
        """The names and parsed arguments of the calls."""
        functions = [cast("JsonObject", call["function"]) for call in self.calls]
        return [
            (function["name"], json.parse(cast("str", function["arguments"])))
            for function in functions
        ]

    @property
    def runnable(self) -> list[JsonObject]:
        """The calls that a client runs: none unless the response ended with `tool_calls`."""
        return self.calls if self.reason == "tool_calls" else []

    @property
    def deltas(self) -> list[JsonObject]:
        """The deltas of a stream, including those of the role and of the end."""
        return [
            cast("JsonObject", choice["delta"])
            for chunk in self.chunks
            for choice in _choices(chunk)
        ]

    @property
    def pieces(self) -> list[JsonValue]:
        """The text deltas of a stream."""
        return [delta["content"] for delta in self.deltas if delta.get("content")]


def read_answer(response: httpx.Response) -> Answer:
    """Parse a complete response, streamed or not."""
    answer = Answer(response.status_code, response.headers, response.content)
    if response.headers["content-type"].startswith("text/event-stream"):
        _read_stream(answer)
    else:
        _read_body(answer)
    return answer


def _read_body(answer: Answer) -> None:
    document = json.parse(answer.body)
    assert isinstance(document, dict)
    if "error" in document:
        answer.error = cast("JsonObject", document["error"])
        return
    (choice,) = _choices(document)
    message = cast("JsonObject", choice["message"])
    assert message["role"] == "assistant"
    answer.identity = _identity(document, "chat.completion")
    answer.text = cast("str | None", message["content"])
    answer.reasoning = cast("str", message.get("reasoning_content", ""))
    answer.calls = cast("list[JsonObject]", message.get("tool_calls", []))
    answer.reason = choice["finish_reason"]
    answer.usage = document["usage"]
    answer.report = {
        name.removeprefix(f"{REPORT}-"): value
        for name, value in answer.headers.items()
        if name.startswith(REPORT) and name not in _NO_FACTS
    }
    answer.is_done = True


def _read_stream(answer: Answer) -> None:
    *events, rest = answer.body.decode().split("\n\n")
    assert rest == ""
    for event in events:
        if event.startswith(f": {REPORT} "):
            facts = event.removeprefix(f": {REPORT} ").split("; ")
            answer.report = dict(fact.split("=", 1) for fact in facts)
        elif event.startswith(f": {REPORT}-context "):
            answer.report["context"] = event.removeprefix(f": {REPORT}-context ")
        elif event.startswith(": "):
            answer.news.append(event.removeprefix(": "))
        elif event == "data: [DONE]":
            answer.is_done = True
        else:
            assert event.startswith("data: ")
            _read_chunk(answer, json.parse(event.removeprefix("data: ")))
    _check(answer)


def _read_chunk(answer: Answer, chunk: JsonValue) -> None:
    assert isinstance(chunk, dict)
    assert answer.error is None, "something followed the error"
    if "error" in chunk:
        answer.error = cast("JsonObject", chunk["error"])
        return
    answer.chunks.append(chunk)
    identity = _identity(chunk, "chat.completion.chunk")
    # vLLM sends its fingerprint in the last chunk of a stream
    assert all(identity.get(name, known) == known for name, known in answer.identity.items())
    answer.identity = {**answer.identity, **identity}
    answer.usage = chunk.get("usage", answer.usage)
    for choice in _choices(chunk):
        assert choice["index"] == 0
        assert answer.reason is None, "something followed the finish reason"
        answer.reason = choice["finish_reason"]
        _read_delta(answer, cast("JsonObject", choice["delta"]))


def _read_delta(answer: Answer, delta: JsonObject) -> None:
    if isinstance(content := delta.get("content"), str):
        answer.text = (answer.text or "") + content
    answer.reasoning += cast("str", delta.get("reasoning_content", ""))
    for call in cast("list[JsonObject]", delta.get("tool_calls", [])):
        _read_call(answer, call)


def _read_call(answer: Answer, piece: JsonObject) -> None:
    """Add a delta of a call: only the first delta of each call carries the id and the name."""
    index = cast("int", piece["index"])
    function = cast("JsonObject", piece["function"])
    if "name" in function:
        assert index == len(answer.calls)
        answer.calls.append({"id": piece["id"], "type": piece["type"], "function": {**function}})
        return
    assert index < len(answer.calls)
    whole = cast("JsonObject", answer.calls[index]["function"])
    whole["arguments"] = f"{whole['arguments']}{function['arguments']}"


def _check(answer: Answer) -> None:
    """Check the invariants: one role, first; one finish reason; `[DONE]` only on success."""
    roles = ["role" in delta for delta in answer.deltas]
    assert roles[:1] == [True]
    assert sum(roles) == 1
    assert answer.is_done is (answer.error is None)
    assert answer.is_done is (answer.reason is not None)
    assert answer.body.endswith(b"data: [DONE]\n\n") is answer.is_done
    assert b"\nid:" not in answer.body


def _choices(document: JsonObject) -> list[JsonObject]:
    return cast("list[JsonObject]", document["choices"])


def _identity(document: JsonObject, kind: str) -> JsonObject:
    assert document["object"] == kind
    names = ("id", "created", "model", "system_fingerprint")
    return {name: document[name] for name in names if name in document}
