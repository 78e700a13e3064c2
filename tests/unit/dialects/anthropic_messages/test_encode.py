import pytest
from anthropic.lib.streaming._messages import accumulate_event
from anthropic.types import ErrorResponse, Message, RawMessageStreamEvent
from anthropic.types.beta import BetaRawMessageDeltaEvent
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.replies import (
    PromptProgress,
    ReasoningDelta,
    ReplyEvent,
    ReplyFinished,
    ReplyStarted,
    RoundMessages,
    TextDelta,
    ToolCallArgumentsDelta,
    ToolCalled,
    ToolCallStarted,
    UsageReported,
)
from proxy.conversation.tools import ToolCall
from proxy.dialects.anthropic_messages.encode import (
    MESSAGE_STOP,
    PING,
    MessageBuilder,
    MessageStream,
    error_object,
    error_reply,
    usage_at_end,
    usage_at_start,
    usage_of_delta,
)
from proxy.dialects.dialect import Problem
from proxy.dialects.foreign_history import sign
from tests.unit.dialects.anthropic_messages.streams import (
    USAGE,
    answers,
    built,
    chaos,
    check,
    member,
    reasons,
    terms,
    told,
    written,
)

NOTHING: JsonObject = {
    "input_tokens": 0,
    "cache_creation_input_tokens": 0,
    "cache_read_input_tokens": 0,
    "cache_creation": {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 0},
    "output_tokens": 0,
    "service_tier": "standard",
}


def test_what_is_cached_is_told_apart_from_what_is_read() -> None:
    progress = usage_at_start(PromptProgress(total=10, cached=4, processed=1))
    assert progress == {**NOTHING, "input_tokens": 6, "cache_read_input_tokens": 4}
    usage: JsonObject = {
        "prompt_tokens": 10,
        "completion_tokens": 3,
        "prompt_tokens_details": {"cached_tokens": 4},
        "completion_tokens_details": {"reasoning_tokens": 2},
    }
    assert usage_at_end(UsageReported(usage)) == {
        **progress,
        "output_tokens": 3,
        "output_tokens_details": {"thinking_tokens": 2},
    }


@pytest.mark.parametrize(
    "usage",
    [
        {},
        {"prompt_tokens": None, "completion_tokens": "3"},
        {"prompt_tokens": True, "prompt_tokens_details": None},
        {"prompt_tokens_details": {"cached_tokens": None}, "completion_tokens_details": {}},
    ],
)
def test_numbers_are_never_null(usage: JsonObject) -> None:
    assert usage_at_start(None) == usage_at_end(None) == NOTHING
    assert usage_at_end(UsageReported(usage)) == NOTHING


def test_a_cache_is_never_larger_than_the_prompt() -> None:
    usage: JsonObject = {"prompt_tokens": 3, "prompt_tokens_details": {"cached_tokens": 9}}
    assert usage_at_end(UsageReported(usage))["input_tokens"] == 0


def test_behind_a_stream_only_the_totals_stand() -> None:
    assert usage_of_delta(NOTHING) == {
        "input_tokens": 0,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
        "output_tokens": 0,
    }


def overflow(**details: JsonValue) -> Problem:
    message = "This model's maximum context length is 8 tokens: too long"
    return Problem(
        400,
        "invalid_request_error",
        message,
        "context_length_exceeded",
        "messages",
        details=details,
    )


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "invalid_request_error"),
        (401, "authentication_error"),
        (402, "billing_error"),
        (403, "permission_error"),
        (404, "not_found_error"),
        (405, "invalid_request_error"),
        (408, "invalid_request_error"),
        (413, "request_too_large"),
        (415, "invalid_request_error"),
        (422, "invalid_request_error"),
        (429, "rate_limit_error"),
        (500, "api_error"),
        (502, "api_error"),
        (503, "overloaded_error"),
        (504, "timeout_error"),
        (529, "overloaded_error"),
    ],
)
def test_every_status_has_its_kind(status: int, kind: str) -> None:
    reply = error_reply(Problem(status, "whatever", "No.", headers={"retry-after": "5"}), "req_1")
    assert reply.status == status
    assert json.parse(reply.body) == {
        "type": "error",
        "error": {"type": kind, "message": "No."},
        "request_id": "req_1",
    }
    final = {"x-should-retry": "false"} if status == 401 else {}
    assert reply.headers == {"retry-after": "5", **final}
    if status != 413:  # the SDK has an exception for it, and no type
        assert ErrorResponse.model_validate_json(reply.body).request_id == "req_1"


@pytest.mark.parametrize("message", ["Field required", "max_tokens: Field required"])
def test_the_field_to_blame_stands_once_before_the_problem(message: str) -> None:
    problem = Problem(400, "invalid_request_error", message, param="max_tokens")
    error = error_object(problem, "")["error"]
    assert error == {"type": "invalid_request_error", "message": "max_tokens: Field required"}


@pytest.mark.parametrize(
    ("problem", "message"),
    [
        (
            overflow(n_prompt_tokens=9000, n_ctx=8192),
            "prompt is too long: 9000 tokens > 8192 maximum",
        ),
        (
            overflow(n_prompt_tokens=8100, n_ctx=8192),
            "prompt is too long: 8193 tokens > 8192 maximum",
        ),
        (overflow(n_prompt_tokens=None, n_ctx=8192), "prompt is too long"),
        (overflow(n_prompt_tokens=9000), "prompt is too long"),
    ],
)
def test_an_overflow_has_the_only_words_that_claude_code_reads_numbers_from(
    problem: Problem, message: str
) -> None:
    error = error_object(problem, "")["error"]
    assert error == {"type": "invalid_request_error", "message": message}


EVENTS: TypeAdapter[RawMessageStreamEvent] = TypeAdapter(RawMessageStreamEvent)
FAILURE = Problem(502, "server_error", "The backend is gone.", "backend_unavailable")


def accumulated(payload: bytes) -> dict[str, object]:
    snapshot, buffers = None, dict[int, bytes]()
    for event in told(payload):
        read = EVENTS.validate_python(event)
        snapshot = accumulate_event(event=read, current_snapshot=snapshot, json_bufs=buffers)
    assert snapshot is not None
    return Message.model_validate(snapshot.to_dict()).to_dict(exclude_none=True)


class TestAStream:
    @given(answers(), st.data())
    def test_is_sound_however_its_events_come_together(
        self, events: list[ReplyEvent], data: st.DataObject
    ) -> None:
        stream = MessageStream(terms())
        payload, left = stream.keep_alive(), events
        while left:
            count = data.draw(st.integers(1, len(left)))
            payload += stream.encode_all(left[:count]) + stream.keep_alive()
            left = left[count:]
        payload += stream.comment("x-temper outcome=clean") + stream.end()
        check(payload)
        assert payload.endswith(b": x-temper outcome=clean\n\n" + MESSAGE_STOP)
        assert payload.startswith(PING)

    @given(chaos, reasons)
    def test_is_sound_whatever_a_backend_writes(
        self, events: list[ReplyEvent], reason: str
    ) -> None:
        check(written([*events, ReplyFinished(reason)], terms()))

    @given(answers(), st.data())
    def test_that_breaks_ends_with_an_error(
        self, events: list[ReplyEvent], data: st.DataObject
    ) -> None:
        stream = MessageStream(terms())
        before = events[: data.draw(st.integers(0, len(events) - 1))]
        payload = stream.encode_all(before) + stream.fail(FAILURE)
        check(payload, is_broken=True)
        assert told(payload)[-1] == {
            "type": "error",
            "error": {"type": "api_error", "message": "The backend is gone."},
            "request_id": "req_1",
        }

    def test_begins_with_the_first_event_and_says_how_long_the_prompt_is(self) -> None:
        stream = MessageStream(terms())
        assert stream.encode_all([]) == b""
        assert stream.keep_alive() == b'event: ping\ndata: {"type":"ping"}\n\n'
        (start,) = told(stream.encode_all([ReplyStarted(), PromptProgress(12, 4, 6)]))
        assert start == {
            "type": "message_start",
            "message": {
                "id": "msg_1",
                "type": "message",
                "role": "assistant",
                "model": "m",
                "content": [],
                "stop_reason": None,
                "stop_sequence": None,
                "stop_details": None,
                "usage": {
                    "input_tokens": 8,
                    "cache_creation_input_tokens": 0,
                    "cache_read_input_tokens": 4,
                    "cache_creation": {
                        "ephemeral_5m_input_tokens": 0,
                        "ephemeral_1h_input_tokens": 0,
                    },
                    "output_tokens": 0,
                    "service_tier": "standard",
                },
            },
        }
        assert stream.encode_all([ReplyStarted(), PromptProgress(12, 4, 12)]) == b""

    def test_writes_deltas_as_they_come(self) -> None:
        stream = MessageStream(terms())
        stream.encode_all([ReplyStarted(), TextDelta("a")])
        assert stream.encode_all([TextDelta('"ü"')]) == (
            b"event: content_block_delta\n"
            b'data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta",'
            b'"text":"\\"\xc3\xbc\\""}}\n\n'
        )

    def test_tells_the_totals_at_its_end(self) -> None:
        payload = written([UsageReported(USAGE), ReplyFinished("stop")], terms())
        assert told(payload)[-2] == {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn", "stop_sequence": None, "stop_details": None},
            "usage": {
                "input_tokens": 8,
                "cache_creation_input_tokens": 0,
                "cache_read_input_tokens": 4,
                "output_tokens": 5,
                "output_tokens_details": {"thinking_tokens": 2},
            },
        }


class TestAWholeMessage:
    @given(answers())
    def test_is_what_the_sdk_accumulates_from_the_stream(self, events: list[ReplyEvent]) -> None:
        whole = Message.model_validate(built(events, terms())).to_dict(exclude_none=True)
        assert accumulated(written(events, terms())) == whole

    def test_tells_that_the_context_was_not_edited_if_that_is_asked(self) -> None:
        events: list[ReplyEvent] = [ReplyStarted(), TextDelta("a"), ReplyFinished("stop")]
        whole = built(events, terms(reports_edits=True))
        assert whole["context_management"] == {"applied_edits": []}
        assert "context_management" not in built(events, terms())
        (ended,) = told(written(events, terms(reports_edits=True)))[-2:-1]
        read = BetaRawMessageDeltaEvent.model_validate(ended)
        assert read.context_management is not None
        assert read.context_management.applied_edits == []

    def test_holds_thoughts_text_and_calls_in_their_order(self) -> None:
        events: list[ReplyEvent] = [
            ReasoningDelta("H"),
            ReasoningDelta("m"),
            TextDelta("Let's "),
            TextDelta("see."),
            ToolCallStarted(0, "c0", "f"),
            ToolCallArgumentsDelta(0, '{"a"'),
            ReasoningDelta("Again?"),
            ToolCallArgumentsDelta(0, ":1.50}"),
            ToolCalled(1, ToolCall("", "g", "")),
            ReplyFinished("tool_calls"),
        ]
        whole = built(events, terms())
        assert whole["content"] == [
            {"type": "thinking", "thinking": "Hm", "signature": sign("Hm")},
            {"type": "text", "text": "Let's see."},
            {"type": "tool_use", "id": "c0", "name": "f", "input": {"a": 1.5}},
            {"type": "thinking", "thinking": "Again?", "signature": sign("Again?")},
            {"type": "tool_use", "id": "toolu_0", "name": "g", "input": {}},
        ]
        assert whole["stop_reason"] == "tool_use"

    def test_may_be_empty(self) -> None:
        whole = built([ReplyStarted(), TextDelta(""), ReplyFinished("stop")], terms())
        assert (whole["content"], whole["stop_reason"]) == ([], "end_turn")

    def test_keeps_the_spelling_of_arguments(self) -> None:
        written = '{"\\u0061": [-0, 1e5, 2.50, 18446744073709551616, 1e400], "b":"\\/"}'
        builder = MessageBuilder(terms())
        builder.add(ToolCalled(0, ToolCall("c", "f", written)))
        builder.add(ReplyFinished("tool_calls"))
        assert f'"input":{written}'.encode() in builder.build()

    def test_keeps_arguments_that_nobody_can_read(self) -> None:
        whole = built([ToolCalled(0, ToolCall("c", "f", "[1"))], terms())
        call = {"type": "tool_use", "id": "c", "name": "f", "input": {"unparsable": "[1"}}
        assert whole["content"] == [call]


CALL = ToolCalled(0, ToolCall("c", "f", "{}"))
HALF: list[ReplyEvent] = [ToolCallStarted(0, "c", "f"), ToolCallArgumentsDelta(0, '{"a":"b')]


@pytest.mark.parametrize(
    ("before", "finish", "reason"),
    [
        ([], "stop", "end_turn"),
        ([], "brand_new", "max_tokens"),
        (HALF, "brand_new", "max_tokens"),
        ([], "length", "max_tokens"),
        ([], "content_filter", "refusal"),
        ([CALL], "tool_calls", "tool_use"),
        ([CALL], "stop", "tool_use"),
        ([CALL], "length", "tool_use"),
        (HALF, "length", "max_tokens"),
        (HALF, "content_filter", "refusal"),
        (HALF, "tool_calls", "tool_use"),
        ([ToolCallStarted(0, "c", "f")], "length", "max_tokens"),
    ],
)
def test_an_answer_tells_why_it_ended(before: list[ReplyEvent], finish: str, reason: str) -> None:
    events = [*before, ReplyFinished(finish)]
    assert built(events, terms())["stop_reason"] == reason
    ended: JsonValue = told(written(events, terms()))[-2]["delta"]
    assert member(ended, "stop_reason") == reason


@given(answers())
def test_an_answer_that_nobody_wants_to_see_shows_nothing(events: list[ReplyEvent]) -> None:
    whole = built(events, terms(shows_nothing=True))
    assert (whole["content"], whole["stop_reason"]) == ([], "max_tokens")
    payload = written(events, terms(shows_nothing=True))
    kinds = [event["type"] for event in told(payload)]
    assert kinds == ["message_start", "message_delta", "message_stop"]
    assert json.dump(member(told(payload)[1]["delta"], "stop_reason")) == b'"max_tokens"'


def call_told(call_id: str, name: str, arguments: str) -> JsonObject:
    return {"id": call_id, "function": {"name": name, "arguments": arguments}}


ROUND = RoundMessages(
    (
        {
            "role": "assistant",
            "tool_calls": [
                call_told("a", "time", '{"zone":"UTC"}'),
                call_told("b", "mine", "{}"),
                call_told("c", "fails", "{"),
            ],
        },
        {"role": "tool", "tool_call_id": "a", "content": "noon", "failed": False},
        {"role": "tool", "tool_call_id": "b", "content": "not run yet"},
        {"role": "tool", "tool_call_id": "c", "content": "Error: no", "failed": True},
    ),
    {"time": "clock", "fails": "clock"},
)


def test_calls_that_ran_here_are_blocks_with_their_results() -> None:
    events: list[ReplyEvent] = [
        ReasoningDelta("Hm."),
        ROUND,
        TextDelta("Noon."),
        ReplyFinished("stop"),
    ]
    builder, stream = MessageBuilder(terms()), MessageStream(terms())
    for event in events:
        builder.add(event)
    whole = json.parse(builder.build())
    content = member(whole, "content")
    assert isinstance(content, list)
    kinds = ["thinking", "mcp_tool_use", "mcp_tool_use", "mcp_tool_result", "mcp_tool_result"]
    assert [member(one, "type") for one in content] == [*kinds, "text"]
    assert member(content[1], "id") == "mcptoolu_a"
    assert [member(one, "input") for one in content[1:3]] == [{"zone": "UTC"}, {}]
    assert [member(one, "is_error") for one in content[3:5]] == [False, True]
    sent = stream.encode_all(events)
    started = [one for one in told(sent) if one["type"] == "content_block_start"]
    assert [member(one, "index") for one in started] == [0, 1, 2, 3, 4, 5]
    assert [member(one, "content_block") for one in started][1:5] == content[1:5]


def test_a_thread_is_refused_in_the_words_on_which_the_sdk_sends_whole_histories() -> None:
    refused = error_object(Problem(400, "invalid_request_error", "No.", param="thread"), "r1")
    details = member(member(refused, "error"), "details")
    assert details == {"error_code": "thread_unsupported_request"}


@pytest.mark.parametrize(
    ("reason", "stop", "told_reason"),
    [("stop", "###", "stop_sequence"), ("stop", "", "end_turn"), ("length", "###", "max_tokens")],
)
def test_the_string_that_ended_an_answer_is_named(reason: str, stop: str, told_reason: str) -> None:
    builder = MessageBuilder(terms())
    ended: list[ReplyEvent] = [TextDelta("a"), UsageReported({}, stop=stop), ReplyFinished(reason)]
    for event in ended:
        builder.add(event)
    whole = json.parse(builder.build())
    assert member(whole, "stop_reason") == told_reason
    assert member(whole, "stop_sequence") == (stop if told_reason == "stop_sequence" else None)
