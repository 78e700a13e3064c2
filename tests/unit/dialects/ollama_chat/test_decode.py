import pytest

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.replies import (
    ReasoningDelta,
    ReplyFinished,
    ReplyStarted,
    TextDelta,
    ToolCallArgumentsDelta,
    ToolCallStarted,
    UsageReported,
)
from proxy.dialects.ollama_chat.decode import LineReader, decode_error
from proxy.dialects.openai_chat.replies import ReplyPart, StreamedError

STARTED = ReplyStarted(model="m")
COUNTS: JsonObject = {"prompt_eval_count": 10, "eval_count": 5}
USAGE = UsageReported({"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15})


def line(*, done: bool = False, told: JsonObject | None = None, **message: JsonValue) -> bytes:
    said: JsonObject = {"role": "assistant", "content": "", **message}
    end: JsonObject = {"done_reason": "stop", **COUNTS} if done else {}
    return json.dump({"model": "m", "message": said, "done": done, **end, **(told or {})})


def call(name: str, arguments: JsonValue, call_id: str | None = None) -> JsonObject:
    function: JsonObject = {"name": name, "arguments": arguments}
    return {"function": function} if call_id is None else {"id": call_id, "function": function}


def read(*lines: bytes) -> list[ReplyPart]:
    reader = LineReader()
    parts = [part for one in lines for part in reader.feed(one)]
    return parts + reader.finish()


def test_text_and_thoughts_come_as_they_are_generated() -> None:
    assert read(
        line(thinking="Hm. "), line(content="Hel"), line(content="lo"), line(done=True)
    ) == [
        STARTED,
        ReasoningDelta("Hm. "),
        TextDelta("Hel"),
        TextDelta("lo"),
        USAGE,
        ReplyFinished("stop"),
    ]


def test_calls_may_come_in_the_last_line() -> None:
    made: list[JsonValue] = [call("look", {"at": "sky"}, "a"), call("wait", None, "b")]
    assert read(line(done=True, tool_calls=made)) == [
        STARTED,
        ToolCallStarted(0, "a", "look"),
        ToolCallArgumentsDelta(0, '{"at":"sky"}'),
        ToolCallStarted(1, "b", "wait"),
        ToolCallArgumentsDelta(1, "{}"),
        USAGE,
        ReplyFinished("tool_calls"),
    ]


def test_calls_may_come_in_earlier_lines() -> None:
    first, second = [call("look", {}, "a")], [call("look", '{"at": 1}', "a")]
    assert read(line(tool_calls=[*first]), line(tool_calls=[*second]), line(done=True)) == [
        STARTED,
        ToolCallStarted(0, "a", "look"),
        ToolCallArgumentsDelta(0, "{}"),
        ToolCallStarted(1, None, "look"),
        ToolCallArgumentsDelta(1, '{"at": 1}'),
        USAGE,
        ReplyFinished("tool_calls"),
    ]


def test_calls_without_ids_and_names_are_left_to_the_guardrails() -> None:
    parts = read(line(done=True, tool_calls=[{"function": {}}, {"function": {"name": "look"}}]))
    assert parts[1:5] == [
        ToolCallStarted(0, None, ""),
        ToolCallArgumentsDelta(0, "{}"),
        ToolCallStarted(1, None, "look"),
        ToolCallArgumentsDelta(1, "{}"),
    ]


@pytest.mark.parametrize(
    ("reason", "meant"),
    [("length", "length"), ("stop", "stop"), ("", "stop"), ("unload", "stop"), (None, "stop")],
)
def test_reasons_have_their_names_in_openais_language(reason: JsonValue, meant: str) -> None:
    assert read(line(done=True, told={"done_reason": reason}))[-1] == ReplyFinished(meant)


def test_a_call_that_the_limit_ended_is_cut_off() -> None:
    told: JsonObject = {"done_reason": "length"}
    parts = read(line(done=True, told=told, tool_calls=[call("look", {})]))
    assert parts[-1] == ReplyFinished("length")


def test_what_was_cached_is_told_where_ollama_tells_it() -> None:
    parts = read(line(done=True, told={"prompt_eval_cached_count": 8}))
    assert parts[-2] == UsageReported(
        {**USAGE.usage, "prompt_tokens_details": {"cached_tokens": 8}}
    )
    odd = read(line(done=True, told={"prompt_eval_count": True, "eval_count": None}))
    assert odd[-2] == UsageReported({"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0})


def test_log_probabilities_stand_beside_the_text_that_they_are_of() -> None:
    """A line that is held back for a call's sake may have some and no text."""
    rival: JsonObject = {"token": "é", "logprob": -2.0}
    first: JsonObject = {"token": "e", "logprob": -0.1, "top_logprobs": [rival]}
    second: JsonObject = {"token": "f", "logprob": -0.2, "bytes": [102]}
    parts = read(
        line(told={"logprobs": [first]}),
        line(told={"logprobs": [second, 7]}, content="ef"),
        line(content="g"),
        line(done=True),
    )
    assert parts[1:3] == [
        TextDelta(
            "ef",
            {
                "content": [
                    {
                        "token": "e",
                        "logprob": -0.1,
                        "bytes": [101],
                        "top_logprobs": [
                            {"token": "é", "logprob": -2.0, "bytes": [195, 169], "top_logprobs": []}
                        ],
                    },
                    {"token": "f", "logprob": -0.2, "bytes": [102], "top_logprobs": []},
                    7,
                ]
            },
        ),
        TextDelta("g"),
    ]


def test_nothing_is_read_after_the_end() -> None:
    assert read(line(done=True), line(content="more")) == read(line(done=True))


def test_an_error_in_the_middle_ends_the_reply() -> None:
    parts = read(line(content="Hel"), b'{"error": "runner stopped"}', line(done=True))
    assert parts[-1] == StreamedError({"error": "runner stopped", "message": "runner stopped"})


@pytest.mark.parametrize(
    "broken",
    [
        b"[]",
        b"data: {}",
        b"{}",
        line(tool_calls="look"),
        line(tool_calls=[1]),
        line(tool_calls=[{"name": "look"}]),
    ],
)
def test_nonsense_is_nonsense(broken: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - whatever it says
        LineReader().feed(broken)


def test_a_reply_that_breaks_off_is_noticed() -> None:
    with pytest.raises(ValueError, match="before finishing"):
        read(line(content="Hel"))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"error": "model not found"}', "model not found"),
        (b"no JSON", "no JSON"),
        (b'{"error": "{not JSON"}', "{not JSON"),
    ],
)
def test_errors_are_strings(body: bytes, message: str) -> None:
    assert decode_error(body)["message"] == message


def test_what_the_runner_answered_stands_within_the_string() -> None:
    inner: JsonObject = {
        "code": 400,
        "message": "too long",
        "type": "exceed_context_size_error",
        "n_prompt_tokens": 9000,
        "n_ctx": 4096,
    }
    body = json.dump({"error": json.dump_text({"error": inner})})
    assert decode_error(body) == inner
