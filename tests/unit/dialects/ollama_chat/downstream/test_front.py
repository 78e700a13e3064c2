import pytest

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.replies import ReplyStarted, TextDelta
from proxy.dialects.front import Decoded, Front, IdsAndClock, Problem, Sender
from proxy.dialects.lenient_json import as_object
from proxy.dialects.ollama_chat.downstream.front import OllamaFront

STAMP = IdsAndClock(now=lambda: 1.0, token=lambda: "abc")
CHAT, GENERATE = OllamaFront(STAMP), OllamaFront(STAMP, is_text=True)
HI: JsonObject = {"role": "user", "content": "Hi"}


def decoded(front: OllamaFront, **members: JsonValue) -> Decoded:
    asked: JsonObject = {"prompt": "Hi"} if front.is_text else {"messages": [HI]}
    return front.decode(json.dump({"model": "m:latest", **asked, **members}), Sender())


@pytest.mark.parametrize(
    ("front", "title"), [(CHAT, "OllamaChatRequest"), (GENERATE, "OllamaGenerateRequest")]
)
def test_it_is_a_front_end(front: Front, title: str) -> None:
    assert (front.name, front.stream_type) == ("ollama", "application/x-ndjson")
    schemas = front.schemas()
    assert schemas.request["title"] == title
    assert schemas.error["title"] == "OllamaError"


@pytest.mark.parametrize(("front", "member"), [(CHAT, "message"), (GENERATE, "response")])
def test_it_answers_as_it_was_asked(front: OllamaFront, member: str) -> None:
    answering = decoded(front).answering
    stream = answering.begin(None)
    assert b'"%b":' % member.encode() in stream.encode_all([ReplyStarted(), TextDelta("Hi")])
    builder = answering.builder(None)
    builder.add(TextDelta("Hi"))
    answer = as_object(json.parse(builder.build()))
    assert member in answer
    assert answer["model"] == "m:latest"
    assert answering.new_call_id() == "call_abc"


def test_a_stream_is_complete_with_its_last_line() -> None:
    stream = decoded(CHAT).answering.begin(None)
    text = stream.encode_all([TextDelta('"done":true')])
    assert not CHAT.is_complete(text)
    assert not CHAT.is_complete(stream.fail(Problem(502, "k", '"done":true')))
    assert CHAT.is_complete(stream.end())


@pytest.mark.parametrize(
    ("members", "reason"),
    [
        ({"messages": []}, "load"),
        ({"messages": [], "keep_alive": "10m"}, "load"),
        ({"messages": [], "keep_alive": 0}, "unload"),
        ({"messages": [], "keep_alive": "0s"}, "unload"),
        ({}, None),
    ],
)
def test_what_only_loads_is_answered_at_once(members: JsonObject, reason: str | None) -> None:
    loaded = decoded(CHAT, **members).load_answer
    assert (as_object(json.parse(loaded)).get("done_reason") if loaded else None) == reason


def test_who_has_sent_pictures_hears_that_the_model_sees_none() -> None:
    picture: JsonObject = {**HI, "images": ["iVBORw0KGgo="]}
    assert decoded(CHAT).blindness == ""
    assert decoded(CHAT, messages=[picture]).blindness.startswith("This model takes no pictures.")


def test_errors_and_counts() -> None:
    reply = CHAT.error(Problem(400, "k", "No."), "req_1")
    assert (reply.status, reply.body) == (400, b'{"error":"No."}')
    body = json.dump({"model": "m", "messages": [HI]})
    assert CHAT.decode_count(body, Sender()).request.model == "m"
    assert CHAT.encode_count(5) == b'{"prompt_eval_count":5}'
