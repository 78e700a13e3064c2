"""JSON of others, read leniently: a value of another type than expected is as good as absent."""

from typing import NamedTuple

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue

_YEAR_9999 = 253_402_300_799  # the last second of it, which is the last that `datetime` knows


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


def as_whole(value: JsonValue) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def as_positive(value: JsonValue) -> int | None:
    number = as_whole(value)
    return number if number is not None and number > 0 else None


def as_count(value: JsonValue) -> int:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return as_whole(value) or 0


def as_unix_time(value: JsonValue) -> int:
    """Read a Unix time in seconds; 0 for what is none, and for what no calendar has."""
    seconds = as_count(value)
    return seconds if 0 <= seconds <= _YEAR_9999 else 0


def member(value: JsonValue, *path: str | int) -> JsonValue:
    """Return what lies at a path of keys and positions, None where the path leads nowhere."""
    for step in path:
        if isinstance(value, dict) and isinstance(step, str):
            value = value.get(step)
        elif isinstance(value, list) and isinstance(step, int) and step < len(value):
            value = value[step]
        else:
            return None
    return value


class TokenCounts(NamedTuple):
    """What a reply has cost: the `prompt` with what was `cached`, the `answer` with `thoughts`."""

    prompt: int
    answer: int
    cached: int
    thoughts: int
    total: int


def read_usage(usage: JsonObject | None) -> TokenCounts:
    """Read a usage of chat completions; what it does not tell is 0."""
    told = usage or {}
    prompt, answer = as_count(told.get("prompt_tokens")), as_count(told.get("completion_tokens"))
    return TokenCounts(
        prompt,
        answer,
        as_count(as_object(told.get("prompt_tokens_details")).get("cached_tokens")),
        as_count(as_object(told.get("completion_tokens_details")).get("reasoning_tokens")),
        as_count(told.get("total_tokens")) or prompt + answer,
    )


def write_usage(prompt: int, answer: int, cached: int | None, thoughts: int = 0) -> JsonObject:
    """Write a usage of chat completions; `cached` is None where an engine does not tell it."""
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
