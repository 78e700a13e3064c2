"""Answers to Ollama clients, as a stream of JSON lines and as a single JSON body."""

from collections.abc import Sequence

import pytest

from proxy.conversation import json
from proxy.conversation.json import JsonObject
from proxy.conversation.replies import (
    TextDelta,
    UsageReported,
)
from proxy.dialects.dialect import IdsAndClock
from proxy.dialects.lenient_json import as_object
from proxy.dialects.ollama_chat.downstream.encode import (
    AnswerOptions,
    OllamaBuilder,
    OllamaStream,
    moment,
)

BEGAN = 1_764_000_000.0
USAGE: JsonObject = {"prompt_tokens": 11, "completion_tokens": 7}


def options(*, is_text: bool = False, seconds: Sequence[float] = ()) -> AnswerOptions:
    """Return options whose clock shows BEGAN plus the next of `seconds`, and repeats the last."""
    remaining = [*seconds] or [0.5]

    def now() -> float:
        return BEGAN + (remaining.pop(0) if len(remaining) > 1 else remaining[0])

    return AnswerOptions(
        "m:latest", is_text, IdsAndClock(now, lambda: "id"), BEGAN, lambda: "call_id"
    )


def lines(body: bytes) -> list[JsonObject]:
    assert body == b"" or body.endswith(b"\n")
    return [as_object(json.parse(line)) for line in body.splitlines()]


def content_of(line: JsonObject) -> JsonObject:
    return as_object(line["message"])


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
def test_durations_come_from_the_engine_or_are_measured(
    timings: JsonObject | None, expected: tuple[int, ...]
) -> None:
    builder = OllamaBuilder(options(seconds=(1, 4)))
    builder.add(TextDelta("Hi"))
    details: JsonObject = {"prompt_tokens_details": {"cached_tokens": 3}}
    builder.add(UsageReported({**USAGE, **details}, timings))
    answer = as_object(json.parse(builder.build()))
    names = ("total_duration", "load_duration", "prompt_eval_duration", "eval_duration")
    assert tuple(answer[name] for name in names) == expected
    assert answer["prompt_eval_cached_count"] == 3


def test_keepalive_lines_have_no_content() -> None:
    stream = OllamaStream(options())
    (line,) = lines(stream.keep_alive())
    assert (content_of(line), line["done"]) == ({"role": "assistant", "content": ""}, False)
    assert stream.comment("loading") == b""


@pytest.mark.parametrize("reason", ["load", "unload"])
def test_loading_and_unloading_are_reported_without_content(reason: str) -> None:
    (line,) = lines(options().load_status(reason))
    assert (line["done"], line["done_reason"]) == (True, reason)
    assert content_of(line) == {"role": "assistant", "content": ""}


def test_the_function_moment_formats_a_time_like_ollama() -> None:
    assert moment(0) == "1970-01-01T00:00:00.000000Z"
