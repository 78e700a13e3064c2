"""Lenient reading of foreign JSON: a value of an unexpected type counts as absent.

Engines differ in the members that they add to chat completions. An unexpected value in such a
member is not a reason to fail the request with a 502.
"""

from typing import NamedTuple

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue

_YEAR_9999 = 253_402_300_799  # the last second of the year 9999, the maximum of `datetime`

# This member marks a usage or a count that Temper has estimated, because no engine reported it.
ESTIMATED: JsonObject = {"temper": {"estimated": True}}


def parse_object(document: bytes | str) -> JsonObject | None:
    try:
        value = json.parse(document)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def as_object(value: JsonValue) -> JsonObject:
    return value if isinstance(value, dict) else {}


def as_list(value: JsonValue) -> list[JsonValue]:
    return value if isinstance(value, list) else []


def as_text(value: JsonValue) -> str:
    return value if isinstance(value, str) else ""


def as_integer(value: JsonValue) -> int | None:
    # a boolean must not count as an integer, although it is an instance of `int` in Python
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def as_positive(value: JsonValue) -> int | None:
    number = as_integer(value)
    return number if number is not None and number > 0 else None


def as_count(value: JsonValue) -> int:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return as_integer(value) or 0


def as_unix_time(value: JsonValue) -> int:
    """Read a Unix time in seconds; 0 for any other value and for a time after the year 9999."""
    seconds = as_count(value)
    return seconds if 0 <= seconds <= _YEAR_9999 else 0


def member(value: JsonValue, *path: str | int) -> JsonValue:
    """Return the value at a path of keys and indexes, None if the path does not exist."""
    for step in path:
        if isinstance(value, dict) and isinstance(step, str):
            value = value.get(step)
        elif isinstance(value, list) and isinstance(step, int) and step < len(value):
            value = value[step]
        else:
            return None
    return value


class TokenCounts(NamedTuple):
    """The tokens of a reply: `prompt` includes `cached`, and `answer` includes `thoughts`."""

    prompt: int
    answer: int
    cached: int
    thoughts: int
    total: int


def read_usage(usage: JsonObject | None) -> TokenCounts:
    """Read the `usage` of a chat completion; missing counts are 0."""
    counts = usage or {}
    prompt = as_count(counts.get("prompt_tokens"))
    answer = as_count(counts.get("completion_tokens"))
    return TokenCounts(
        prompt,
        answer,
        as_count(as_object(counts.get("prompt_tokens_details")).get("cached_tokens")),
        as_count(as_object(counts.get("completion_tokens_details")).get("reasoning_tokens")),
        as_count(counts.get("total_tokens")) or prompt + answer,  # some engines omit the total
    )


def cached_tokens(usage: JsonObject) -> int | None:
    """Return how many prompt tokens came from the cache; None if the engine does not report it."""
    return as_integer(as_object(usage.get("prompt_tokens_details")).get("cached_tokens"))


def prompt_seconds(timings: JsonObject | None) -> float | None:
    """Return how many seconds the engine read the prompt, from llama-server's or Ollama's times."""
    for name, unit in (("prompt_ms", 1e-3), ("prompt_eval_duration", 1e-9)):
        value = (timings or {}).get(name)
        if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0:
            return value * unit
    return None


def write_usage(prompt: int, answer: int, cached: int | None, thoughts: int = 0) -> JsonObject:
    """Write the `usage` of a chat completion; `cached` is None if the engine does not report it."""
    usage: JsonObject = {
        "prompt_tokens": prompt,
        "completion_tokens": answer,
        "total_tokens": prompt + answer,
    }
    if cached is not None:
        usage["prompt_tokens_details"] = {"cached_tokens": cached}
    if thoughts:
        usage["completion_tokens_details"] = {"reasoning_tokens": thoughts}
    return usage
