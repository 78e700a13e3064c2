"""Logs: what a line holds in both forms, and that nobody can write lines but us."""

import json
import logging
import sys
from io import StringIO

import pytest
from msgspec.structs import replace

from proxy.conversation.json import JsonObject
from proxy.facts import Coerced, Outcome, Rescued
from proxy.observability.logs import LONGEST_VALUE, RequestLog, configure_logging
from proxy.observability.record import AttemptRecord, Phase, RequestRecord, Tokens
from proxy.observability.trace_context import TraceContext

pytestmark = pytest.mark.usefixtures("logging_as_it_was")

RECORD = RequestRecord(
    id="r1",
    begun_at=1_700_000_000.0,
    model="qwen3",
    service="default",
    backend="http://127.0.0.1:8080",
    status=200,
    stream=True,
    queued=0.01,
    first_token=0.012345,
    seconds=0.1,
    tokens=Tokens(10, 0, 5),
    attempts=(AttemptRecord("as_asked", 0.01, 0.03, "prose"), AttemptRecord("nudged", 0.04, 0.05)),
    outcome=Outcome.RETRIED,
    facts=(Rescued("hermes", "f"), Coerced("f", "/a"), Coerced("f", "/b")),
    trace=TraceContext(0xAB, 1),
)


def a_record(name: str) -> RequestRecord:
    return RequestRecord(id=name, begun_at=0, status=400, seconds=0.001)


class FakeTerminal(StringIO):
    def isatty(self) -> bool:
        return True


HOSTILE = 'a\r\nb \x1b[31m \u202e \u2028 \x7f \x85 "c" =d \\n \ud800 \u200b'


def as_json(stream: StringIO) -> JsonObject:
    value: JsonObject = json.loads(stream.getvalue())
    return value


def text_of(record: RequestRecord) -> str:
    stream = StringIO()
    configure_logging("text", "info", stream, replica="temper-0")
    RequestLog().take(record)
    return stream.getvalue()


def test_a_request_is_one_line_of_names_and_values() -> None:
    time, _, rest = text_of(RECORD).partition(" ")
    assert time.endswith("Z")
    assert rest == (
        "info    request id=r1 status=200 total_ms=100.0 model=qwen3"
        " backend=http://127.0.0.1:8080 dialect=chat stream=true queued_ms=10.0 first_token_ms=12.3"
        " overhead_ms=10.0 prompt_tokens=10 cached_tokens=0 output_tokens=5 attempts=2"
        " outcome=retried"
        ' repairs="rescued=hermes;coerced=2" trace=000000000000000000000000000000ab'
        " replica=temper-0\n"
    )


def test_what_is_not_known_is_left_out_of_the_text() -> None:
    line = text_of(a_record("r2"))
    assert line.endswith(
        'request id=r2 status=400 total_ms=1.0 dialect=chat overhead_ms=1.0 attempts=0 repairs=""'
        " replica=temper-0\n"
    )


def test_what_kept_an_answer_from_coming_is_told() -> None:
    failed = AttemptRecord("as_asked", 0, 0.1, error="unavailable")
    line = text_of(replace(RECORD, status=502, outcome=None, attempts=(failed,)))
    assert " error=unavailable " in line
    assert " left=" not in line
    gone = replace(RECORD, status=499, outcome=None, attempts=(), left=Phase.QUEUED)
    assert " left=queued " in text_of(gone)


def test_a_request_is_one_json_object_with_every_field() -> None:
    stream = StringIO()
    configure_logging("json", "info", stream, replica="temper-0")
    RequestLog().take(replace(RECORD, client="ann"))
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
        "client": "ann",
        "dialect": "chat",
        "stream": True,
        "queued_ms": 10.0,
        "first_token_ms": 12.3,
        "overhead_ms": 10.0,
        "prompt_tokens": 10,
        "cached_tokens": 0,
        "output_tokens": 5,
        "attempts": 2,
        "outcome": "retried",
        "tools": None,
        "repairs": "rescued=hermes;coerced=2",
        "context": None,
        "error": None,
        "left": None,
        "trace": f"{0xAB:032x}",
        "replica": "temper-0",
    }


def test_a_hostile_value_stays_inside_its_line_and_its_quotes() -> None:
    line = text_of(a_record(HOSTILE))
    assert line.removesuffix("\n").isprintable()
    assert (
        r'id="a\r\nb \x1b[31m \u202e \u2028 \x7f \x85 \"c\" =d \\n \ud800 \u200b" status=' in line
    )


def test_a_hostile_value_is_plain_ascii_in_json_and_comes_back_whole() -> None:
    stream = StringIO()
    configure_logging("json", "info", stream)
    RequestLog().take(a_record(HOSTILE))
    line = stream.getvalue().removesuffix("\n")
    assert line.isascii()
    assert line.isprintable()
    assert as_json(stream)["id"] == HOSTILE


def test_a_hostile_message_stays_on_one_line() -> None:
    stream = StringIO()
    configure_logging("text", "info", stream, replica="temper-0")
    logging.getLogger("proxy.somewhere").warning("odd: %s", HOSTILE)
    assert stream.getvalue().count("\n") == 1
    assert stream.getvalue().removesuffix("\n").isprintable()
    assert stream.getvalue().endswith("logger=proxy.somewhere replica=temper-0\n")


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
    line = text_of(a_record("x" * (LONGEST_VALUE + 1)))
    assert f"id={'x' * LONGEST_VALUE}... " in line
    assert f"id={'x' * LONGEST_VALUE} " in text_of(a_record("x" * LONGEST_VALUE))


def test_libraries_are_heard_from_warnings_upwards_only() -> None:
    stream = StringIO()
    configure_logging("text", "debug", stream)
    logging.getLogger("httpcore.http11").debug("authorization: canary")
    logging.getLogger("uvicorn").info("chunk: canary")
    logging.getLogger("uvicorn.error").warning("careful")
    logging.getLogger("proxy.backends").debug("details")
    assert "canary" not in stream.getvalue()
    assert "careful" in stream.getvalue()
    assert "details" in stream.getvalue()


def test_a_higher_level_silences_lines_below_it() -> None:
    stream = StringIO()
    configure_logging("text", "error", stream)
    RequestLog().take(RECORD)
    logging.getLogger("elsewhere").warning("careful")
    assert stream.getvalue() == ""


def test_configuring_twice_does_not_write_twice() -> None:
    stream = StringIO()
    configure_logging("text", "info", stream)
    configure_logging("text", "info", stream)
    RequestLog().take(RECORD)
    assert stream.getvalue().count("\n") == 1


def test_what_is_no_terminal_gets_json_where_nobody_says_otherwise() -> None:
    stream = StringIO()
    configure_logging("auto", "info", stream)
    RequestLog().take(RECORD)
    assert as_json(stream)["id"] == "r1"


def test_a_terminal_gets_short_lines_and_at_debug_level_everything() -> None:
    stream = FakeTerminal()
    configure_logging("auto", "info", stream)
    RequestLog().take(RECORD)
    assert "id=r1" not in stream.getvalue()
    assert "10 in, 5 out" in stream.getvalue()
    configure_logging("auto", "debug", stream)
    RequestLog().take(RECORD)
    assert "id=r1" in stream.getvalue()


def test_lines_follow_standard_error_when_it_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    configure_logging("text", "info")
    replacement = StringIO()
    monkeypatch.setattr(sys, "stderr", replacement)
    RequestLog().take(RECORD)
    assert "id=r1" in replacement.getvalue()


def test_lines_go_to_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("text", "info")
    RequestLog().take(RECORD)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "id=r1" in captured.err
