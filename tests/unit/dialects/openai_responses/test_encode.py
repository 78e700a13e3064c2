from itertools import pairwise
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openai import omit
from openai._models import construct_type
from openai.lib.streaming.responses._responses import ResponseStreamState
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import BaseModel

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.replies import (
    PromptProgress,
    ReasoningDelta,
    ReplyEvent,
    ReplyFinished,
    ReplyStarted,
    TextDelta,
    ToolCallArgumentsDelta,
    ToolCalled,
    ToolCallStarted,
    UsageReported,
)
from proxy.conversation.tools import ToolCall
from proxy.dialects.dialect import Client, Decoded, Dialect, Problem
from proxy.dialects.openai_responses.store import ResponseStore
from tests.examples import examples
from tests.fakes.responses import (
    OWNER,
    StreamJudge,
    decode,
    make_dialect,
    make_store,
    member,
    read_stream,
    streamed,
    tool,
    whole,
)
from tests.unit.dialects.openai_responses.names import SENT_EVENTS

TOOLS: JsonValue = [
    tool("f", strict=False),
    {"type": "namespace", "name": "n", "description": "N.", "tools": [tool("g", strict=True)]},
    {"type": "custom", "name": "run"},
    {"type": "tool_search", "execution": "client"},
    {"type": "shell"},
    {"type": "local_shell"},
    {"type": "apply_patch"},
]
# Calls of the model, with the names of the tools in the upstream request.
CALLS: dict[str, str] = {
    "f": '{"city": "Par\\u00eds", "days": [1, 2]}',
    "n__g": "{}",
    "run": '{"input": "a\\n\\"b\\""}',
    "tool_search": '{"query": "x"}',
    "shell": '{"commands": ["ls"]}',
    "local_shell": '{"command": ["ls"]}',
    "apply_patch": '{"type": "delete_file", "path": "a"}',
}
USAGE = UsageReported({"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11})
BROKEN = Problem(502, "server_error", "The backend is gone.", "backend_unavailable")
# The SDK's class of each event, by its type.
EVENTS: dict[str, type[BaseModel]] = {
    get_args(kind.model_fields["type"].annotation)[0]: kind
    for kind in get_args(get_args(ResponseStreamEvent)[0])
}


TEXT = st.text(min_size=1, max_size=6)


def pieces(text: str, cuts: list[int]) -> list[str]:
    places = sorted({cut % (len(text) + 1) for cut in cuts} | {0, len(text)})
    return [text[start:end] for start, end in pairwise(places)]


@st.composite
def answers(draw: st.DrawFn) -> list[ReplyEvent]:
    """Generate the events of an answer, including those of repeated attempts."""
    events: list[ReplyEvent] = [ReplyStarted("chatcmpl-1", 1, "backend-model")]
    calls = 0
    for kind in draw(st.lists(st.sampled_from(("text", "thought", "call", "whole")), max_size=6)):
        if kind == "text":
            events += [TextDelta(text) for text in draw(st.lists(TEXT, max_size=3))]
        elif kind == "thought":
            events += [ReasoningDelta(text) for text in draw(st.lists(TEXT, max_size=3))]
        else:
            name = draw(st.sampled_from(sorted(CALLS)))
            made = ToolCall(f"call_{calls}", name, CALLS[name])
            cuts = draw(st.lists(st.integers(0, 60), max_size=4))
            events += called(calls, made, cuts if kind == "call" else None)
            calls += 1
        events += draw(st.sampled_from(([], [ReplyStarted()], [PromptProgress(9, 0, 3)])))
    events += draw(st.sampled_from(([], [USAGE])))
    return [
        *events,
        ReplyFinished(draw(st.sampled_from(("stop", "tool_calls", "length", "content_filter")))),
    ]


def called(index: int, call: ToolCall, cuts: list[int] | None) -> list[ReplyEvent]:
    if cuts is None:
        return [ToolCalled(index, call)]
    deltas = [ToolCallArgumentsDelta(index, text) for text in pieces(call.arguments, cuts)]
    return [ToolCallStarted(index, call.id, call.name), *deltas]


REQUESTS = st.sampled_from(
    [
        {},
        {"reasoning": {"summary": "auto"}, "include": ["reasoning.encrypted_content"]},
        {"instructions": "Be\nbrief.", "metadata": {"a": "b"}},
    ]
)


def request_of(body: JsonObject) -> Decoded:
    return decode(tools=TOOLS, stream=True, **body)


def accumulated(events: list[JsonObject]) -> ResponseStreamState[None]:
    """Accumulate a stream with the SDK, which raises if the stream is invalid."""
    state: ResponseStreamState[None] = ResponseStreamState(input_tools=omit, text_format=omit)
    for event in events:
        EVENTS[f"{event['type']}"].model_validate(event)
        typed = construct_type(type_=ResponseStreamEvent, value=event)
        state.handle_event(typed)  # type: ignore[arg-type] # the SDK creates events in this way
    return state


@given(answers(), REQUESTS, st.data())
def test_every_stream_is_valid_for_any_batches_of_events(
    events: list[ReplyEvent], body: JsonObject, data: st.DataObject
) -> None:
    encoder = request_of(body).answering.begin(None)
    sent = b""
    while events:
        count = data.draw(st.integers(1, len(events)))
        sent += data.draw(st.sampled_from((encoder.keep_alive, bytes)))()
        sent += encoder.encode_all(events[:count])
        sent += data.draw(st.sampled_from((b"", encoder.comment("all is well"))))
        events = events[count:]
    end = encoder.comment("done\nand gone") + encoder.end()
    assert make_dialect().is_complete(end)
    assert not make_dialect().is_complete(sent)
    read = read_stream(sent + end)
    StreamJudge().judge(read)
    assert {f"{event['type']}" for event in read} <= SENT_EVENTS


@settings(max_examples=examples(40))  # the SDK's models are slow
@given(answers(), REQUESTS, st.data())
def test_a_failed_stream_ends_with_an_error(
    events: list[ReplyEvent], body: JsonObject, data: st.DataObject
) -> None:
    encoder = request_of(body).answering.begin(None)
    before = events[: data.draw(st.integers(0, len(events)))]
    sent = (encoder.encode_all(before) if before else b"") + encoder.fail(BROKEN)
    assert not make_dialect().is_complete(sent)
    read = read_stream(sent)
    StreamJudge().judge(read)
    response = read[-1]["response"]
    assert member(response, "error") == {"code": "server_error", "message": BROKEN.message}
    assert member(response, "completed_at") is None
    accumulated(read)


@settings(max_examples=examples(40))
@given(answers(), REQUESTS)
def test_the_sdk_accumulates_a_stream_to_the_complete_answer(
    events: list[ReplyEvent], body: JsonObject
) -> None:
    read = read_stream(streamed(request_of(body), events))
    accumulated(read)
    answer = whole(request_of(body), events)
    assert read[-1]["response"] == answer
    Response.model_validate(answer, strict=False)


def test_a_keepalive_before_any_content_starts_the_response() -> None:
    encoder = decode(stream=True).answering.begin(None)
    assert [event["type"] for event in read_stream(encoder.keep_alive())] == [
        "response.created",
        "response.in_progress",
    ]


def test_a_failed_stream_reports_the_usage_if_it_is_known() -> None:
    encoder = decode(stream=True).answering.begin(None)
    encoder.encode_all([TextDelta("Hi"), USAGE])
    (last,) = read_stream(encoder.fail(BROKEN))
    assert member(last["response"], "usage", "total_tokens") == 11


def test_a_stream_is_complete_after_a_completed_or_incomplete_event() -> None:
    data = b'event: x\ndata: {"a": "event: response.completed"}\n\n'
    assert not make_dialect().is_complete(data)
    assert make_dialect().is_complete(b"event: response.completed\ndata: {}\n\n")
    assert make_dialect().is_complete(b": done\n\nevent: response.incomplete\ndata: {}\n\n")
    assert not make_dialect().is_complete(b"event: response.failed\ndata: {}\n\n")


HI: list[ReplyEvent] = [TextDelta("Hi"), ReplyFinished("stop")]


def test_the_dialect_is_named_responses_and_its_streams_end_without_the_mark_done() -> None:
    dialect: Dialect = make_dialect()
    assert dialect.name == "responses"
    assert dialect.is_complete(b"event: response.completed\ndata: {}\n\n")
    assert not dialect.is_complete(b"data: [DONE]\n\n")


def test_a_count_request_is_decoded_like_a_response_request() -> None:
    dialect, body = make_dialect(), b'{"model":"m","input":"Hi"}'
    counted = dialect.decode_count(body, Client()).request
    assert counted == dialect.decode(body, Client()).request
    assert json.parse(dialect.encode_count(7, is_estimated=False)) == {
        "object": "response.input_tokens",
        "input_tokens": 7,
    }
    assert dialect.schemas().request["title"] == "ResponseRequest"


def test_the_ids_of_calls_and_responses_have_a_prefix() -> None:
    answering = decode().answering
    assert answering.new_call_id() == "call_000000000000000000000001"
    answer = whole(decode(), HI)
    assert f"{answer['id']}".startswith("resp_")


@pytest.mark.parametrize(("requested", "model"), [("m", "m"), ("absent", "backend-model")])
def test_the_answer_names_the_requested_model_or_else_the_model_of_the_reply(
    requested: str, model: str
) -> None:
    decoded = decode(model=requested)
    builder = decoded.answering.builder(ReplyStarted(model="backend-model"))
    assert member(json.parse(builder.build()), "model") == model


def is_stored(store: ResponseStore, answer_id: object) -> bool:
    return store.find(OWNER.owner, f"{answer_id}") is not None


def test_a_successful_answer_is_stored_for_its_owner() -> None:
    store = make_store()
    answer = whole(decode(store), HI)
    stored = store.find(OWNER.owner, f"{answer['id']}")
    assert stored is not None
    assert json.parse(stored.whole) == answer
    assert [json.parse(item) for item in stored.output] == answer["output"]
    assert stored.inputs == [
        b'{"type":"message","role":"user","content":"Hi","id":"item_000000000000000000000001_0"}'
    ]
    assert store.find("other", f"{answer['id']}") is None


def test_a_complete_stream_is_stored_and_a_failed_stream_is_not() -> None:
    store = make_store()
    answering = decode(store, stream=True).answering
    encoder = answering.begin(None)
    encoder.encode_all(HI)
    broken = answering.begin(None)
    broken.fail(Problem(502, "server_error", "Gone."))
    assert len(store.history("somebody", "resp_000000000000000000000001") or []) == 0
    encoder.end()
    assert is_stored(store, "resp_000000000000000000000001")
    assert not is_stored(store, "resp_000000000000000000000003")


def test_an_answer_is_not_stored_if_the_field_store_is_false_or_there_is_no_store() -> None:
    store = make_store()
    answer = whole(decode(store, store=False), HI)
    assert not is_stored(store, answer["id"])
    assert answer["store"] is False
    assert whole(decode(None), HI)["store"] is False
    assert whole(decode(store), HI)["store"] is True


def test_a_conversation_continues_from_a_stored_response() -> None:
    store = make_store()
    first = whole(decode(store), HI)
    dialect = make_dialect(store, first_id=50)
    body = json.dump({"input": "And?", "previous_response_id": first["id"], "instructions": "Go."})
    second = dialect.decode(body, OWNER)
    roles = [(message.role, message.text) for message in second.request.messages]
    assert roles == [("system", "Go."), ("user", "Hi"), ("assistant", "Hi"), ("user", "And?")]
    assert b'"previous_response_id":"resp_' in streamed(second, HI)
    with pytest.raises(Exception, match="not found"):
        dialect.decode(body, Client(owner="other"))
