"""Answers to Ollama's clients: as lines, and as one body of the same events."""

from collections.abc import Sequence

import pytest
from ollama import ChatResponse, GenerateResponse

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
from proxy.dialects.dialect import IdsAndClock, Problem
from proxy.dialects.lenient_json import as_object
from proxy.dialects.ollama_chat.downstream.encode import (
    AnswerTerms,
    OllamaBuilder,
    OllamaStream,
    error_object,
    moment,
)

BEGAN = 1_764_000_000.0
USAGE: JsonObject = {"prompt_tokens": 11, "completion_tokens": 7}


def terms(*, is_text: bool = False, seconds: Sequence[float] = ()) -> AnswerTerms:
    """Make terms of an answer; the clock says these seconds after its beginning, then the last."""
    left = [*seconds] or [0.5]

    def now() -> float:
        return BEGAN + (left.pop(0) if len(left) > 1 else left[0])

    return AnswerTerms(
        "m:latest", is_text, IdsAndClock(now, lambda: "id"), BEGAN, lambda: "call_id"
    )


def lines(written: bytes) -> list[JsonObject]:
    assert written == b"" or written.endswith(b"\n")
    return [as_object(json.parse(line)) for line in written.splitlines()]


def streamed(*events: ReplyEvent, is_text: bool = False) -> list[JsonObject]:
    stream = OllamaStream(terms(is_text=is_text))
    return lines(b"".join([stream.encode_all([event]) for event in events]) + stream.end())


def whole(*events: ReplyEvent, is_text: bool = False) -> JsonObject:
    builder = OllamaBuilder(terms(is_text=is_text))
    for event in events:
        builder.add(event)
    return as_object(json.parse(builder.build()))


def said(line: JsonObject) -> JsonObject:
    return as_object(line["message"])


TALK = (
    ReplyStarted(model="other"),
    PromptProgress(10, 0, 5),
    ReasoningDelta("Hm"),
    ReasoningDelta("m."),
    TextDelta(""),
    TextDelta("It is "),
    TextDelta("sunny."),
    UsageReported(USAGE),
    ReplyFinished("stop"),
)


def test_a_conversation_streams_line_by_line() -> None:
    *before, last = streamed(*TALK)
    assert [said(line) for line in before] == [
        {"role": "assistant", "content": "", "thinking": "Hm"},
        {"role": "assistant", "content": "", "thinking": "m."},
        {"role": "assistant", "content": "It is "},
        {"role": "assistant", "content": "sunny."},
    ]
    assert all(line["done"] is False and line["model"] == "m:latest" for line in before)
    assert last.pop("created_at") == "2025-11-24T16:00:00.500000Z"
    assert last == {
        "model": "m:latest",
        "message": {"role": "assistant", "content": ""},
        "done": True,
        "done_reason": "stop",
        "total_duration": 500_000_000,
        "load_duration": 0,
        "prompt_eval_duration": 500_000_000,
        "eval_duration": 0,
        "prompt_eval_count": 11,
        "eval_count": 7,
    }
    for line in (*before, last):
        ChatResponse.model_validate({"created_at": "", **line})


def test_the_whole_is_what_the_lines_add_up_to() -> None:
    answer = whole(*TALK)
    assert said(answer) == {"role": "assistant", "content": "It is sunny.", "thinking": "Hmm."}
    last = streamed(*TALK)[-1]
    assert {**answer, "message": None} == {**last, "message": None}


def test_a_prompt_is_answered_with_a_text() -> None:
    *before, last = streamed(*TALK, is_text=True)
    assert [line.get("response") for line in before] == ["", "", "It is ", "sunny."]
    assert [line.get("thinking") for line in before[:2]] == ["Hm", "m."]
    assert (last["response"], last["done"]) == ("", True)
    answer = whole(*TALK, is_text=True)
    assert (answer["response"], answer["thinking"]) == ("It is sunny.", "Hmm.")
    assert "message" not in answer
    GenerateResponse.model_validate(answer)


CALLS = (
    ToolCallStarted(0, "c1", "get_weather"),
    ToolCallArgumentsDelta(0, '{"city":\n '),
    ToolCallArgumentsDelta(0, '"Paris"}'),
    ToolCalled(1, ToolCall("c2", "get_time", '{"at": 1.0}')),
    ToolCalled(2, ToolCall("", "stop", "")),
    ReplyFinished("tool_calls"),
)
MADE: list[JsonValue] = [
    {"id": "c1", "function": {"index": 0, "name": "get_weather", "arguments": {"city": "Paris"}}},
    {"id": "c2", "function": {"index": 1, "name": "get_time", "arguments": {"at": 1.0}}},
    {"id": "call_id", "function": {"index": 2, "name": "stop", "arguments": {}}},
]


def test_calls_come_whole_and_with_objects() -> None:
    *before, last = streamed(*CALLS)
    assert [said(line)["tool_calls"] for line in before] == [[one] for one in MADE]
    assert last["done_reason"] == "stop"
    assert said(whole(*CALLS))["tool_calls"] == MADE


@pytest.mark.parametrize("pieces", [1, 2])
def test_a_call_that_was_cut_off_is_left_out(pieces: int) -> None:
    events = (TextDelta("See:"), *CALLS[:pieces], ReplyFinished("length"))
    *before, last = streamed(*events)
    assert [said(line) for line in before] == [{"role": "assistant", "content": "See:"}]
    assert last["done_reason"] == "length"
    assert said(whole(*events)) == {"role": "assistant", "content": "See:"}


def test_what_makes_no_object_is_no_call() -> None:
    events = (ToolCalled(0, ToolCall("c", "a", "[1]")), ReplyFinished("stop"))
    assert len(streamed(*events)) == 1
    assert "tool_calls" not in said(whole(*events))


def test_log_probabilities_are_beside_the_words() -> None:
    token: JsonObject = {"token": "a", "logprob": -0.1, "bytes": [97], "top_logprobs": []}
    rival: JsonObject = {**token, "top_logprobs": [{"token": "b", "logprob": -2.0}]}
    events = (
        TextDelta("a", {"content": [token]}),
        TextDelta("a", {"content": [rival]}),
        ReplyFinished("stop"),
    )
    without = {name: value for name, value in token.items() if name != "top_logprobs"}
    first, second, _ = streamed(*events)
    assert (first["logprobs"], second["logprobs"]) == ([without], [rival])
    assert whole(*events)["logprobs"] == [without, rival]


@pytest.mark.parametrize(
    ("timings", "expected"),
    [
        (
            {
                "total_duration": 5,
                "load_duration": 1,
                "prompt_eval_duration": 2,
                "eval_duration": 3,
            },
            (5, 1, 2, 3),
        ),
        ({"prompt_ms": 1.5, "predicted_ms": 250}, (4_000_000_000, 0, 1_500_000, 250_000_000)),
        (None, (4_000_000_000, 0, 1_000_000_000, 3_000_000_000)),
    ],
)
def test_durations_are_the_engines_or_measured(
    timings: JsonObject | None, expected: tuple[int, ...]
) -> None:
    builder = OllamaBuilder(terms(seconds=(1, 4)))
    builder.add(TextDelta("Hi"))
    details: JsonObject = {"prompt_tokens_details": {"cached_tokens": 3}}
    builder.add(UsageReported({**USAGE, **details}, timings))
    answer = as_object(json.parse(builder.build()))
    names = ("total_duration", "load_duration", "prompt_eval_duration", "eval_duration")
    assert tuple(answer[name] for name in names) == expected
    assert answer["prompt_eval_cached_count"] == 3


def test_signs_of_life_are_lines_that_say_nothing() -> None:
    stream = OllamaStream(terms())
    (line,) = lines(stream.keep_alive())
    assert (said(line), line["done"]) == ({"role": "assistant", "content": ""}, False)
    assert stream.comment("loading") == b""


def test_a_stream_that_breaks_ends_with_an_error() -> None:
    stream = OllamaStream(terms())
    problem = Problem(502, "server_error", "It broke.", "backend_unavailable")
    assert stream.fail(problem) == b'{"error":"It broke."}\n'


@pytest.mark.parametrize(
    ("problem", "message"),
    [
        (
            Problem(400, "k", "options.seed: Expected 1.", None, "options.seed"),
            "options.seed: Expected 1.",
        ),
        (Problem(400, "k", "Expected 1.", None, "options.seed"), "options.seed: Expected 1."),
        (
            Problem(
                404, "k", "The model 'x' does not exist. Available: y.", "model_not_found", "model"
            ),
            "model 'x' not found. Available: y.",
        ),
    ],
)
def test_errors_are_one_sentence(problem: Problem, message: str) -> None:
    assert json.parse(error_object(problem)) == {"error": message}


@pytest.mark.parametrize("reason", ["load", "unload"])
def test_a_model_that_was_loaded_is_reported(reason: str) -> None:
    (line,) = lines(terms().load_status(reason))
    assert (line["done"], line["done_reason"]) == (True, reason)
    assert said(line) == {"role": "assistant", "content": ""}


def test_a_moment_is_written_as_ollama_does() -> None:
    assert moment(0) == "1970-01-01T00:00:00.000000Z"
