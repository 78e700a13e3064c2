"""What a client saw is read strictly: whatever no client has to understand is a problem."""

import pytest

from benchmarks.faults.demands import Call, Kind
from benchmarks.faults.reading import read_body, read_stream
from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue

IDENTITY: JsonObject = {"id": "chatcmpl-1", "created": 1, "model": "m"}
ERROR: JsonObject = {"message": "no luck", "type": "server_error", "param": None, "code": None}
DONE = b"data: [DONE]\n\n"
PARIS = Call("get_weather", {"city": "Paris"})


def event(value: JsonValue) -> bytes:
    return b"data: " + json.dump(value) + b"\n\n"


def chunk(delta: JsonObject, reason: str | None = None, **others: JsonValue) -> bytes:
    choice: JsonObject = {"index": 0, "delta": delta, "finish_reason": reason}
    return event({**IDENTITY, "object": "chat.completion.chunk", "choices": [choice], **others})


def call(call_id: str = "call_1", arguments: str = '{"city": "Paris"}') -> JsonObject:
    function: JsonObject = {"name": "get_weather", "arguments": arguments}
    return {"id": call_id, "type": "function", "function": function}


def call_delta(index: int, call_id: str = "call_1") -> JsonObject:
    return {"tool_calls": [{"index": index, **call(call_id)}]}


ROLE = chunk({"role": "assistant", "content": ""})
END = chunk({}, "stop")


def completion(**message: JsonValue) -> JsonObject:
    choice: JsonObject = {
        "index": 0,
        "message": {"role": "assistant", **message},
        "finish_reason": "stop",
    }
    return {**IDENTITY, "object": "chat.completion", "choices": [choice], "usage": {}}


def test_a_stream_is_read_to_its_end() -> None:
    usage = event({**IDENTITY, "object": "chat.completion.chunk", "choices": [], "usage": {}})
    told = b": x-temper attempts=2; repairs=rejected=prose\n\n"
    seen = read_stream(
        ROLE
        + chunk({"reasoning_content": "Hm."})
        + chunk({"content": "It is"})
        + chunk({"content": " sunny."})
        + chunk(call_delta(0))
        + END
        + usage
        + told
        + DONE
    )
    assert (seen.problem, seen.kind, seen.reason) == ("", Kind.ANSWER, "stop")
    assert (seen.text, seen.thoughts, seen.calls) == ("It is sunny.", "Hm.", [PARIS])
    assert seen.report == {"attempts": "2", "repairs": "rejected=prose"}


def test_a_stream_that_breaks_off_with_an_error_shows_what_came_before() -> None:
    seen = read_stream(ROLE + chunk({"content": "It is"}) + event({"error": ERROR}))
    assert (seen.problem, seen.kind, seen.text) == ("", Kind.ERROR_EVENT, "It is")
    assert seen.error == ERROR


def test_a_stream_without_an_end_is_nothing_whole() -> None:
    assert read_stream(ROLE + END).kind is Kind.NOTHING
    assert read_stream(b"").kind is Kind.NOTHING


@pytest.mark.parametrize(
    ("stream", "problem"),
    [
        (ROLE + b"data: {", "half an event"),
        (ROLE + b"data: {\n\n", "EOF"),
        (ROLE + b"hello\n\n", "no event"),
        (ROLE + b"data: \xff\n\n", "utf-8"),
        (ROLE + DONE, "[DONE] without a finish reason"),
        (ROLE + END + DONE + DONE, "followed the end"),
        (ROLE + event({"error": ERROR}) + DONE, "followed the end"),
        (ROLE + event({"error": "no luck"}), "the error is no object"),
        (ROLE + event({"error": {"message": "no luck"}}), "another envelope"),
        (ROLE + ROLE, "the role is not first and once"),
        (chunk({"content": "Hi."}), "the role is not first and once"),
        (ROLE + chunk({}, None, id="chatcmpl-2"), "two identities"),
        (ROLE + END + chunk({"content": "Hi."}), "a choice behind the end"),
        (ROLE + chunk(call_delta(1)), "a call out of its turn"),
        (ROLE + chunk(call_delta(0)) + chunk(call_delta(1)), "an id of its own"),
        (ROLE + chunk({"content": 7}), "no text"),
    ],
)
def test_a_stream_that_no_client_has_to_understand_is_a_problem(
    stream: bytes, problem: str
) -> None:
    assert problem in read_stream(stream).problem


def test_a_whole_answer_says_the_same() -> None:
    body = json.dump(completion(content=None, reasoning_content="Hm.", tool_calls=[call()]))
    seen = read_body(200, body, {"attempts": "1"})
    assert (seen.problem, seen.kind, seen.reason) == ("", Kind.ANSWER, "stop")
    assert (seen.text, seen.thoughts, seen.calls) == ("", "Hm.", [PARIS])
    assert seen.report == {"attempts": "1"}


def test_an_error_is_read_with_its_status() -> None:
    seen = read_body(502, json.dump({"error": ERROR}), {})
    assert (seen.problem, seen.kind, seen.status, seen.error) == ("", Kind.ERROR, 502, ERROR)


@pytest.mark.parametrize(
    ("status", "body", "problem"),
    [
        (500, b"Internal Server Error", "status 500"),
        (200, json.dump({"error": ERROR}), "an error under the status 200"),
        (502, json.dump(completion(content="Hi.")), "the error is no object"),
        (502, json.dump({"error": {**ERROR, "message": ""}}), "another envelope"),
        (200, b"[]", "the body is no object"),
        (200, json.dump({**completion(content="Hi."), "choices": []}), "the only choice"),
        (200, json.dump({**completion(content="Hi."), "id": ""}), "no chat.completion"),
        (200, json.dump({**completion(content="Hi."), "usage": None}), "the usage is no object"),
        (200, json.dump(completion(role="user")), "without its role"),
        (200, json.dump(completion(tool_calls=[call(""), call()])), "an id of its own"),
        (200, json.dump(completion(tool_calls=[call(arguments="[1]")])), "the arguments"),
        (200, json.dump(completion(tool_calls=[call(arguments="{")])), "EOF"),
    ],
)
def test_a_body_that_no_client_has_to_understand_is_a_problem(
    status: int, body: bytes, problem: str
) -> None:
    assert problem in read_body(status, body, {}).problem
