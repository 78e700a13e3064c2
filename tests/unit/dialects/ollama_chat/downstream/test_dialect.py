import pytest

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.replies import ReplyStarted, TextDelta
from proxy.dialects.dialect import Client, Decoded, Dialect, IdsAndClock, Problem
from proxy.dialects.lenient_json import as_object
from proxy.dialects.ollama_chat.downstream.dialect import OllamaDialect, read_duration

STAMP = IdsAndClock(now=lambda: 1.0, token=lambda: "abc")
CHAT, GENERATE = OllamaDialect(STAMP), OllamaDialect(STAMP, is_text=True)
HI: JsonObject = {"role": "user", "content": "Hi"}


def decoded(dialect: OllamaDialect, **members: JsonValue) -> Decoded:
    body: JsonObject = {"prompt": "Hi"} if dialect.is_text else {"messages": [HI]}
    return dialect.decode(json.dump({"model": "m:latest", **body, **members}), Client())


@pytest.mark.parametrize(
    ("dialect", "title"), [(CHAT, "OllamaChatRequest"), (GENERATE, "OllamaGenerateRequest")]
)
def test_the_dialect_has_a_name_and_the_schemas_of_its_bodies(dialect: Dialect, title: str) -> None:
    assert (dialect.name, dialect.stream_type) == ("ollama", "application/x-ndjson")
    schemas = dialect.schemas()
    assert schemas.request["title"] == title
    assert schemas.error["title"] == "OllamaError"


@pytest.mark.parametrize(("dialect", "member"), [(CHAT, "message"), (GENERATE, "response")])
def test_a_chat_answer_has_a_message_and_a_generate_answer_has_a_response(
    dialect: OllamaDialect, member: str
) -> None:
    answering = decoded(dialect).answering
    stream = answering.begin(None)
    assert b'"%b":' % member.encode() in stream.encode_all([ReplyStarted(), TextDelta("Hi")])
    builder = answering.builder(None)
    builder.add(TextDelta("Hi"))
    answer = as_object(json.parse(builder.build()))
    assert member in answer
    assert answer["model"] == "m:latest"
    assert answering.new_call_id() == "call_abc"


def test_a_stream_is_complete_only_after_its_last_line() -> None:
    stream = decoded(CHAT).answering.begin(None)
    text = stream.encode_all([TextDelta('"done":true')])
    assert not CHAT.is_complete(text)
    assert not CHAT.is_complete(stream.fail(Problem(502, "k", '"done":true')))
    assert CHAT.is_complete(stream.end())


def test_an_error_and_a_count_have_the_format_of_ollama() -> None:
    reply = CHAT.error(Problem(400, "k", "No."), "req_1")
    assert (reply.status, reply.body) == (400, b'{"error":"No."}')
    body = json.dump({"model": "m", "messages": [HI]})
    assert CHAT.decode_count(body, Client()).request.model == "m"
    assert CHAT.encode_count(5, is_estimated=False) == b'{"prompt_eval_count":5}'


def decode_chat(body: bytes) -> Decoded:
    return OllamaDialect(STAMP).decode(body, Client())


def decode_generate(body: bytes) -> Decoded:
    return OllamaDialect(STAMP, is_text=True).decode(body, Client())


def chat(*messages: JsonValue, **members: JsonValue) -> Decoded:
    return decode_chat(json.dump({"model": "m", "messages": [*(messages or (HI,))], **members}))


def generate(**members: JsonValue) -> Decoded:
    return decode_generate(json.dump({"model": "m", "prompt": "Hi", **members}))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("", None),
        ("5m", 300.0),
        ("1h30m", 5400.0),
        ("1.5s", 1.5),
        ("250ms", 0.25),
        ("-1m", -60.0),
        ("+2s", 2.0),
        ("0", 0.0),
        ("-1", -1.0),
    ],
)
def test_durations_in_the_format_of_go_are_converted_to_seconds(
    text: str, seconds: float | None
) -> None:
    assert read_duration(text) == seconds


@pytest.mark.parametrize(
    "read", [chat(keep_alive=0), decode_chat(b'{"model":"m"}'), generate(prompt="", system="x")]
)
def test_only_a_request_without_messages_has_a_load_status(read: Decoded) -> None:
    assert bool(read.load_status) is (read.request.messages == ())
