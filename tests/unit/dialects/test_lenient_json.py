from datetime import UTC, datetime

import pytest

from proxy.conversation.json import JsonObject, JsonValue
from proxy.dialects.lenient_json import (
    TokenCounts,
    as_count,
    as_integer,
    as_list,
    as_object,
    as_positive,
    as_text,
    as_unix_time,
    member,
    parse_object,
    prompt_seconds,
    read_usage,
    write_usage,
)

VALUES: list[JsonValue] = ["a", 3, True, None, [1], {"b": 2}]


NESTED: JsonValue = {"choices": [{"message": {"content": "x"}}], "usage": {"prompt_tokens": 3}}


def test_a_member_is_found_by_keys_and_indexes() -> None:
    assert member(NESTED, "choices", 0, "message", "content") == "x"


@pytest.mark.parametrize(
    "path", [("choices", 1), ("choices", "message"), ("usage", 0), ("none", "at all")]
)
def test_a_missing_path_gives_none(path: tuple[str | int, ...]) -> None:
    assert member(NESTED, *path) is None


def test_a_value_of_the_wrong_type_counts_as_missing() -> None:
    assert [as_text(value) for value in VALUES] == ["a", "", "", "", "", ""]
    assert [as_count(value) for value in VALUES] == [0, 3, 0, 0, 0, 0]
    assert [as_list(value) for value in VALUES] == [[], [], [], [], [1], []]
    assert [as_object(value) for value in VALUES] == [{}, {}, {}, {}, {}, {"b": 2}]


@pytest.mark.parametrize(("number", "count"), [(5, 5), (5.0, 5), (5.5, 0)])
def test_as_count_accepts_a_float_only_without_a_fraction(number: JsonValue, count: int) -> None:
    assert as_count(number) == count


@pytest.mark.parametrize(
    ("number", "whole", "positive"),
    [(5, 5, 5), (0, 0, None), (-1, -1, None), (True, None, None), (5.0, None, None)],
)
def test_as_integer_accepts_only_integers(
    number: JsonValue, whole: int | None, positive: int | None
) -> None:
    assert (as_integer(number), as_positive(number)) == (whole, positive)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (1_700_000_000, 1_700_000_000),
        (1_700_000_000.0, 1_700_000_000),
        (253_402_300_799, 253_402_300_799),
        (253_402_300_800, 0),
        (1_700_000_000_000, 0),
        (10**400, 0),
        (-1, 0),
        ("now", 0),
    ],
)
def test_as_unix_time_returns_zero_for_a_time_outside_the_calendar(
    value: JsonValue, seconds: int
) -> None:
    assert as_unix_time(value) == seconds
    assert datetime.fromtimestamp(seconds, UTC).year <= 9999


def test_parse_object_returns_none_for_any_other_document() -> None:
    assert parse_object(b'{"a":1}') == {"a": 1}
    assert [parse_object(other) for other in ("[]", "{", "")] == [None] * 3


@pytest.mark.parametrize(
    ("timings", "seconds"),
    [
        ({"prompt_n": 3, "prompt_ms": 1500}, 1.5),
        ({"prompt_eval_duration": 250_000_000}, 0.25),
        ({"prompt_ms": True}, None),
        ({"prompt_ms": "soon"}, None),
        ({"prompt_ms": -1.0}, None),
        ({}, None),
        (None, None),
    ],
)
def test_prompt_seconds_converts_the_prompt_timings_of_each_engine_to_seconds(
    timings: JsonObject | None, seconds: float | None
) -> None:
    assert prompt_seconds(timings) == seconds


def test_a_written_usage_is_read_as_the_same_counts() -> None:
    usage = write_usage(12, 5, 4, 2)
    assert read_usage(usage) == TokenCounts(12, 5, 4, 2, 17)
    assert usage["total_tokens"] == 17


@pytest.mark.parametrize("usage", [None, {}, {"prompt_tokens": "12", "prompt_tokens_details": 1}])
def test_missing_usage_fields_are_zero(usage: JsonObject | None) -> None:
    assert read_usage(usage) == TokenCounts(0, 0, 0, 0, 0)


def test_fields_not_reported_by_the_engine_are_omitted_from_usage() -> None:
    assert write_usage(1, 2, None).keys() == {"prompt_tokens", "completion_tokens", "total_tokens"}
