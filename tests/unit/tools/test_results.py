import logging
from dataclasses import dataclass
from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from proxy.tools.results import cut, failure, format_result, on_one_line, text_of


class Report(BaseModel):
    """A weather report."""

    city: str
    degrees: int


@dataclass
class Day:
    """A day and its name."""

    on: date
    name: str = "today"


class Silent:
    """An object without members, but with a text."""

    def __str__(self) -> str:
        return "silent"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("as it is\n", "as it is\n"),
        ("", ""),
        (None, "Done."),
        (Report(city="Oslo", degrees=3), '{"city":"Oslo","degrees":3}'),
        (Day(date(2026, 1, 2)), '{"on":"2026-01-02","name":"today"}'),
        ([1, "é", None, float("inf")], '[1,"é",null,"Infinity"]'),
        ({"a": {"b": ()}}, '{"a":{"b":[]}}'),
        (7, "7"),
        (True, "true"),
        (Silent(), '"silent"'),
        (b"\xff", "b'\\xff'"),
    ],
)
def test_a_result_is_text_or_compact_json(value: object, text: str) -> None:
    assert text_of(value) == text


def test_format_result_inserts_members_or_the_whole_result_into_a_template() -> None:
    report = Report(city="Oslo", degrees=3)

    assert format_result(report, "{city}: {degrees} C", "f") == "Oslo: 3 C"
    assert format_result({"n": 1}, "{n}", "f") == "1"
    assert format_result(7, "{value} C", "f") == "7 C"
    assert format_result(report, lambda value: type(value).__name__, "f") == "Report"


def test_a_failing_format_logs_a_warning_without_the_result(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        assert format_result({"secret": 1}, "{city}", "weather") is None
        assert format_result("secret", lambda value: str(1 // 0), "weather") is None

    assert caplog.messages == [
        "the result of weather could not be formatted: KeyError",
        "the result of weather could not be formatted: ZeroDivisionError",
    ]


@given(st.text(), st.integers(min_value=1, max_value=200))
def test_a_result_is_truncated_only_if_it_exceeds_the_limit(text: str, most: int) -> None:
    kept = cut(text, most)

    assert len(kept) <= most
    assert kept == text or len(text) > most


def test_a_truncated_result_keeps_its_beginning_and_its_end_and_shows_its_size() -> None:
    kept = cut("a" * 500 + "b" * 500, 200)

    assert len(kept) == 200
    assert kept.startswith("aaa")
    assert kept.endswith("bbb")
    assert "the middle of 1000 characters is left out" in kept
    assert cut("a" * 100, 20) == "[... the middle of 1"


def test_the_text_of_an_exception_is_one_line() -> None:
    class Unprintable(Exception):
        """Raises in `__str__`."""

        def __str__(self) -> str:
            raise RuntimeError

    assert on_one_line(ValueError("a\n  b")) == "ValueError: a b"
    assert on_one_line(ValueError()) == "ValueError"
    assert on_one_line(Unprintable()) == "Unprintable"
    assert failure("no") == "Error: no"
