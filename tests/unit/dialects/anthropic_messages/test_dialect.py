from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.replies import ReplyEvent, ReplyFinished, ReplyStarted, TextDelta
from proxy.conversation.requests import UpstreamRequest
from proxy.dialects.anthropic_messages.table import FIELDS
from proxy.dialects.dialect import Answering, Client, Decoded, Dialect, Problem
from proxy.dialects.field_table import Handling
from proxy.dialects.openai_chat.encode import encode_request
from proxy.errors import InvalidRequest
from tests.examples import examples
from tests.fakes.arrivals import is_linear
from tests.fakes.mutations import mutated
from tests.unit.dialects.anthropic_messages.conversations import (
    DIALECT,
    TOOLS,
    body,
    decode_request,
)

HI: JsonObject = {"role": "user", "content": "Hi"}
SENDER = Client(request_id="req_1")


def read(headers: dict[str, str] | None = None, **members: JsonValue) -> Decoded:
    return DIALECT.decode(body([HI], **members), Client("", headers or {}, "req_1"))


def whole_answer(answering: Answering, *events: ReplyEvent) -> JsonObject:
    builder = answering.builder(events[0])
    for event in events:
        builder.add(event)
    message = json.parse(builder.build())
    assert isinstance(message, dict)
    return message


def test_the_dialect_has_a_name_and_the_schema_of_its_requests() -> None:
    dialect: Dialect = DIALECT
    assert dialect.name == "messages"
    assert dialect.schemas().request["title"] == "MessagesRequest"


def test_an_answer_has_a_new_id_and_the_model_of_the_request() -> None:
    answering = read(context_management={"edits": []}).answering
    message = whole_answer(answering, ReplyStarted("c1", 0, "local"), ReplyFinished("stop"))
    assert (message["id"], message["model"]) == ("msg_abc", "m")
    assert message["context_management"] == {"applied_edits": []}
    assert answering.new_call_id() == "toolu_abc"
    assert "context_management" not in whole_answer(read().answering, ReplyFinished("stop"))


def test_without_a_requested_model_the_answer_names_the_model_of_the_reply() -> None:
    request = json.dump({"messages": [HI], "max_tokens": 9})
    answering = DIALECT.decode(request, SENDER).answering
    assert whole_answer(answering, ReplyStarted("c1", 0, "local"))["model"] == "local"
    assert whole_answer(answering, TextDelta("a"))["model"] == ""


def test_a_request_with_max_tokens_zero_gets_an_answer_without_content() -> None:
    message = whole_answer(read(max_tokens=0).answering, TextDelta("a"), ReplyFinished("length"))
    assert (message["content"], message["stop_reason"]) == ([], "max_tokens")
    message = whole_answer(read(max_tokens=1).answering, TextDelta("a"), ReplyFinished("length"))
    assert message["content"] == [{"type": "text", "text": "a"}]


def test_a_stream_is_complete_after_message_stop_but_not_after_an_error() -> None:
    stream = read().answering.begin(None)
    stream.encode_all([ReplyStarted(), ReplyFinished("stop")])
    assert DIALECT.is_complete(stream.comment("x") + stream.end())
    broken = stream.fail(Problem(500, "server_error", "No."))
    assert not DIALECT.is_complete(broken)
    assert b'"request_id":"req_1"' in broken


def test_an_error_has_the_format_of_the_messages_api() -> None:
    reply = DIALECT.error(Problem(404, "invalid_request_error", "No."), "req_1")
    assert b'"not_found_error"' in reply.body


def test_a_count_request_is_decoded_to_the_same_messages_and_tools_as_a_request() -> None:
    document = json.dump({"model": "m", "messages": [HI], "tools": TOOLS, "system": "Be kind."})
    with pytest.raises(InvalidRequest):
        DIALECT.decode(document, SENDER)
    counted = DIALECT.decode_count(document, SENDER).request
    answered = read(tools=TOOLS, system="Be kind.").request
    assert (counted.messages, counted.tools) == (answered.messages, answered.tools)
    assert DIALECT.encode_count(17, is_estimated=False) == b'{"input_tokens":17}'


CAPTURES = Path(__file__).parent / "captures"
ROWS = ("messages", "tools")
LOOK: JsonObject = {"name": "look", "input_schema": {"type": "object"}}
PLAIN: dict[str, JsonValue] = {"model": "m", "messages": [HI], "max_tokens": 100}


def decoded(**members: JsonValue) -> Decoded:
    return decode_request(body([HI], **members))


def refused(document: bytes) -> str:
    with pytest.raises(InvalidRequest) as raised:
        decode_request(document)
    return str(raised.value)


def test_a_request_is_converted_to_a_chat_completion_request() -> None:
    request = decoded(tools=[LOOK]).request
    upstream_request = UpstreamRequest(
        request, request.messages, request.tools, request.tool_choice
    )
    assert json.parse(encode_request(upstream_request, {})) == {
        "model": "m",
        "messages": [HI],
        "tools": [
            {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
        ],
        "max_tokens": 100,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


@pytest.mark.parametrize(
    "name",
    [name for name, row in FIELDS.items() if row.handling is Handling.IGNORED] + ["brand_new"],
)
def test_ignored_fields_have_no_effect(name: str) -> None:
    plain = decoded()
    members: dict[str, JsonValue] = {name: {"a": 1}}
    ignored = decoded(**members)
    assert ignored.request == plain.request
    assert (
        ignored.request.fields
        == plain.request.fields
        == {name: json.dump(value) for name, value in PLAIN.items()}
    )


@pytest.mark.parametrize(
    "name", [name for name, row in FIELDS.items() if row.handling is Handling.REFUSED]
)
def test_unsupported_fields_are_refused_by_name_unless_their_value_is_neutral(name: str) -> None:
    members: dict[str, JsonValue] = {name: {"a": 1}}
    assert refused(body([HI], **members)) == f"{name}: {FIELDS.remedy(name)}"
    nothing: list[JsonValue] = [None, [], {}]
    for value in nothing:
        assert decoded(**{name: value}).request == decoded().request


def test_max_tokens_is_required_except_in_a_count_request() -> None:
    document = json.dump({"model": "m", "messages": [HI]})
    assert refused(document) == "max_tokens: Field required"
    counted = decode_request(document, is_count=True)
    assert counted.request.max_tokens is counted.request.answer_reserve is None
    assert counted.request.messages == decoded().request.messages


# Shortened requests of Claude Code 2.1.330: `loop` is a tool loop, `tour` uses many of its tools.
@pytest.mark.parametrize("name", ["loop_1", "loop_2", "loop_3", "tour_1", "tour_2"])
def test_requests_of_claude_code_are_converted_to_the_captured_bytes(name: str) -> None:
    request = decode_request((CAPTURES / f"{name}.json").read_bytes()).request
    stored = (CAPTURES / f"{name}.chat.json").read_bytes()
    members = json.split_object(stored)
    rows = {name: json.join_array(json.split_array(members.pop(name))) for name in ROWS}
    assert request.fields == {**members, **rows}
    assert [*request.fields] == [*json.split_object(stored)]


@pytest.mark.parametrize(
    ("earlier", "later"), [("loop_1", "loop_2"), ("loop_2", "loop_3"), ("tour_1", "tour_2")]
)
def test_a_later_request_of_claude_code_begins_with_the_messages_of_the_earlier_one(
    earlier: str, later: str
) -> None:
    first = decode_request((CAPTURES / f"{earlier}.json").read_bytes()).request
    second = decode_request((CAPTURES / f"{later}.json").read_bytes()).request
    assert second.messages[: len(first.messages)] == first.messages
    assert second.tools == first.tools


ANYTHING: st.SearchStrategy[JsonValue] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-1, 9),
    st.sampled_from(("", "text", "image", "document", "tool_use", "tool_result", "tool_reference")),
    st.builds(list[JsonValue]),
    st.builds(dict[str, JsonValue]),
)


MUTATED = st.one_of(
    *(mutated((CAPTURES / f"{name}.json").read_bytes(), ANYTHING) for name in ("loop_1", "tour_2"))
)


@settings(max_examples=examples(300))
@given(MUTATED)
def test_an_error_for_a_mutated_request_names_a_field(document: bytes) -> None:
    try:
        decode_request(document)
    except InvalidRequest as refused:
        assert refused.param  # noqa: PT017 - most mutated requests are valid


@given(st.binary() | st.text().map(str.encode))
def test_a_random_document_raises_invalid_request(document: bytes) -> None:
    assert refused(document)


def test_decoding_takes_time_linear_in_the_history() -> None:
    def history(rounds: int) -> str:
        call: JsonObject = {"type": "tool_use", "id": "c", "name": "f", "input": {"a": "x" * 500}}
        result: JsonObject = {"type": "tool_result", "tool_use_id": "c", "content": "word " * 300}
        turn: list[JsonObject] = [
            {"role": "assistant", "content": [call]},
            {"role": "user", "content": [result]},
            {"role": "system", "content": "Mind the gap."},
        ]
        return body([HI, *turn * rounds]).decode()

    assert is_linear(lambda text: decode_request(text.encode()), history, 400)
