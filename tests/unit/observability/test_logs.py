"""Logs: what a line holds in both forms, and that nobody can write lines but us."""

import json
import logging
from collections.abc import Iterator
from io import StringIO

import pytest

from proxy.conversation.json import JsonObject
from proxy.facts import Outcome
from proxy.observability.logs import (
    LONGEST_VALUE,
    RequestLog,
    configure_logging,
    escaped,
    log_request,
)

RECORD = RequestLog(
    id="r1",
    model="qwen3",
    backend="http://127.0.0.1:8080",
    status=200,
    stream=True,
    queued_ms=0.1,
    first_token_ms=12.345,
    total_ms=100.0,
    prompt_tokens=10,
    cached_tokens=0,
    output_tokens=5,
    attempts=2,
    outcome=Outcome.RETRIED,
    repairs="rescued=hermes;coerced=2",
)
HOSTILE = 'a\r\nb \x1b[31m \u202e \u2028 \x7f \x85 "c" =d \\n \ud800 \u200b'


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    root, ours = logging.getLogger(), logging.getLogger("proxy")
    handlers, levels = root.handlers, (root.level, ours.level)
    yield
    root.handlers = handlers
    root.setLevel(levels[0])
    ours.setLevel(levels[1])


def as_json(stream: StringIO) -> JsonObject:
    value: JsonObject = json.loads(stream.getvalue())
    return value


def text_of(record: RequestLog) -> str:
    stream = StringIO()
    configure_logging("text", "info", stream)
    log_request(record)
    return stream.getvalue()


def test_a_request_is_one_line_of_names_and_values() -> None:
    time, _, rest = text_of(RECORD).partition(" ")
    assert time.endswith("Z")
    assert rest == (
        "info    request id=r1 status=200 total_ms=100.0 model=qwen3"
        " backend=http://127.0.0.1:8080 stream=true queued_ms=0.1 first_token_ms=12.3"
        " prompt_tokens=10 cached_tokens=0 output_tokens=5 attempts=2 outcome=retried"
        ' repairs="rescued=hermes;coerced=2"\n'
    )


def test_what_is_not_known_is_left_out_of_the_text() -> None:
    line = text_of(RequestLog(id="r2", status=400, total_ms=1))
    assert line.endswith('request id=r2 status=400 total_ms=1 attempts=0 repairs=""\n')


def test_a_request_is_one_json_object_with_every_field() -> None:
    stream = StringIO()
    configure_logging("json", "info", stream)
    log_request(RECORD)
    line = as_json(stream)
    assert line.pop("time")
    assert line == {
        "level": "info",
        "event": "request",
        "id": "r1",
        "status": 200,
        "total_ms": 100.0,
        "model": "qwen3",
        "backend": "http://127.0.0.1:8080",
        "stream": True,
        "queued_ms": 0.1,
        "first_token_ms": 12.3,
        "prompt_tokens": 10,
        "cached_tokens": 0,
        "output_tokens": 5,
        "attempts": 2,
        "outcome": "retried",
        "repairs": "rescued=hermes;coerced=2",
        "context": None,
    }


def test_a_hostile_value_stays_inside_its_line_and_its_quotes() -> None:
    line = text_of(RequestLog(id=HOSTILE, status=200, total_ms=1))
    assert line.removesuffix("\n").isprintable()
    assert (
        r'id="a\r\nb \x1b[31m \u202e \u2028 \x7f \x85 \"c\" =d \\n \ud800 \u200b" status=' in line
    )


def test_a_hostile_value_is_plain_ascii_in_json_and_comes_back_whole() -> None:
    stream = StringIO()
    configure_logging("json", "info", stream)
    log_request(RequestLog(id=HOSTILE, status=200, total_ms=1))
    line = stream.getvalue().removesuffix("\n")
    assert line.isascii()
    assert line.isprintable()
    assert as_json(stream)["id"] == HOSTILE


def test_a_hostile_message_stays_on_one_line() -> None:
    stream = StringIO()
    configure_logging("text", "info", stream)
    logging.getLogger("proxy.somewhere").warning("odd: %s", HOSTILE)
    assert stream.getvalue().count("\n") == 1
    assert stream.getvalue().removesuffix("\n").isprintable()
    assert stream.getvalue().endswith("logger=proxy.somewhere\n")


def test_a_traceback_stays_on_the_line() -> None:
    stream = StringIO()
    configure_logging("text", "info", stream)
    try:
        raise ValueError("odd\nvalue")
    except ValueError:
        logging.getLogger("proxy.somewhere").exception("failed")
    assert stream.getvalue().count("\n") == 1
    assert r"ValueError: odd\nvalue" in stream.getvalue()


def test_a_long_value_is_cut() -> None:
    line = text_of(RequestLog(id="x" * (LONGEST_VALUE + 1), status=200, total_ms=1))
    assert f"id={'x' * LONGEST_VALUE}... " in line
    assert f"id={'x' * LONGEST_VALUE} " in text_of(
        RequestLog(id="x" * LONGEST_VALUE, status=200, total_ms=1)
    )


def test_printable_text_of_any_script_is_left_alone() -> None:
    assert escaped("naïve 日本語 🙂") == "naïve 日本語 🙂"


def test_libraries_are_heard_from_warnings_upwards_only() -> None:
    stream = StringIO()
    configure_logging("text", "debug", stream)
    logging.getLogger("httpcore.http11").debug("authorization: canary")
    logging.getLogger("sse_starlette").info("chunk: canary")
    logging.getLogger("uvicorn.error").warning("careful")
    logging.getLogger("proxy.backends").debug("details")
    assert "canary" not in stream.getvalue()
    assert "careful" in stream.getvalue()
    assert "details" in stream.getvalue()


def test_a_higher_level_silences_lines_below_it() -> None:
    stream = StringIO()
    configure_logging("text", "error", stream)
    log_request(RECORD)
    logging.getLogger("elsewhere").warning("careful")
    assert stream.getvalue() == ""


def test_configuring_twice_does_not_write_twice() -> None:
    stream = StringIO()
    configure_logging("text", "info", stream)
    configure_logging("text", "info", stream)
    log_request(RECORD)
    assert stream.getvalue().count("\n") == 1


def test_lines_go_to_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("text", "info")
    log_request(RECORD)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "id=r1" in captured.err
