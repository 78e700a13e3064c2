"""Log lines in all formats; clients cannot forge a line."""

import json
import logging
import os
import re
import socket
import sys
from io import StringIO
from typing import get_args

import pytest
from msgspec.structs import replace

from proxy.conversation.json import JsonObject
from proxy.facts import Coerced, ReplyOutcome, Rescued
from proxy.observability.logs import (
    LONGEST_VALUE,
    RequestLog,
    ShortFormatter,
    columns_of,
    configure_logging,
    replica_name,
    takes_color,
)
from proxy.observability.record import AttemptRecord, Phase, RequestRecord, Tokens
from proxy.observability.trace_context import TraceContext


@pytest.fixture(autouse=True)
def _without_kubernetes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("POD_NAME", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)


def test_outside_kubernetes_the_replica_name_is_host_name_and_process_id() -> None:
    assert replica_name() == f"{socket.gethostname()}:{os.getpid()}"


def test_in_kubernetes_the_replica_name_is_the_host_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    assert replica_name() == socket.gethostname()


def test_the_value_of_the_variable_pod_name_is_the_replica_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("POD_NAME", "temper-7d9f-x2k")
    assert replica_name() == "temper-7d9f-x2k"


SHORT = RequestRecord(
    id="r1",
    begun_at=0,
    model="qwen3",
    status=200,
    seconds=1.234,
    tokens=Tokens(1234, 1000, 56),
    attempts=(AttemptRecord("as_asked", 0, 1.2),),
    outcome=ReplyOutcome.REPAIRED,
    facts=(Rescued("hermes", "f"), Coerced("f", "/a")),
)
COLOR = re.compile("\x1b\\[[0-9]+m")


def line_for(record: RequestRecord, columns: int = 200, *, is_colored: bool = False) -> str:
    log_record = logging.LogRecord("proxy.requests", logging.INFO, "", 0, "request", (), None)
    log_record.request = record
    return ShortFormatter(lambda: columns, is_colored=is_colored).format(log_record)


def test_a_short_line_has_the_outcome_model_seconds_tokens_and_repairs() -> None:
    time, _, fields = line_for(SHORT).partition("  ")
    assert re.fullmatch(r"\d\d:\d\d:\d\d", time)
    assert fields == (
        "repaired  qwen3  1.2 s  1,234 in, 56 out"
        "  a call rescued from text (hermes), a value converted  1,000 cached"
    )


@pytest.mark.parametrize(
    ("record", "words"),
    [
        (replace(SHORT, outcome=ReplyOutcome.CLEAN, facts=()), "ok  qwen3"),
        (replace(SHORT, outcome=ReplyOutcome.EXHAUSTED), "gave up  qwen3"),
        (replace(SHORT, outcome=None, status=503), "error 503  qwen3"),
        (replace(SHORT, attempts=SHORT.attempts * 2), "2 attempts"),
        (replace(SHORT, client="ann"), "  by ann  "),
        (replace(SHORT, seconds=0.0321), "  32 ms  "),
        (replace(SHORT, path="/v1/messages"), "  /v1/messages  "),
        (
            replace(SHORT, outcome=None, status=499, left="streaming"),
            "the client disconnected while the response was streaming",
        ),
        (
            replace(
                SHORT,
                outcome=None,
                status=502,
                attempts=(AttemptRecord("as_asked", 0, 1, error="timed_out"),),
            ),
            "the backend: timed out",
        ),
    ],
)
def test_a_short_line_shows_the_outcome_attempts_client_path_and_error(
    record: RequestRecord, words: str
) -> None:
    assert words in line_for(record)


@pytest.mark.parametrize("phase", get_args(Phase))
def test_the_short_line_reports_a_client_disconnect_in_every_phase(phase: Phase) -> None:
    disconnected = replace(SHORT, outcome=None, status=499, left=phase)
    assert "the client disconnected" in line_for(disconnected)


@pytest.mark.parametrize("columns", range(10, 120, 9))
def test_a_short_line_is_never_wider_than_the_terminal(columns: int) -> None:
    for record in (SHORT, replace(SHORT, model="m" * 500, status=503, outcome=None)):
        for is_colored in (True, False):
            line = line_for(record, columns, is_colored=is_colored)
            assert 0 < len(COLOR.sub("", line)) <= columns
            assert "\n" not in line


def test_a_short_line_in_forty_columns_has_no_time_of_day() -> None:
    assert line_for(SHORT, 40) == "repaired  qwen3  1.2 s  1,234 in, 56 out"


def test_a_colored_line_has_the_same_text_and_the_plain_line_has_no_escape_codes() -> None:
    assert "\x1b" not in line_for(SHORT)
    colored = line_for(SHORT, is_colored=True)
    assert "\x1b[33mrepaired\x1b[0m" in colored
    assert COLOR.sub("", colored).partition("  ")[2] == line_for(SHORT).partition("  ")[2]


def test_line_breaks_and_escape_codes_in_a_model_name_are_escaped() -> None:
    line = line_for(replace(SHORT, model="\x1b[2J\nfake\u202e"))
    assert line.isprintable()


def test_messages_wider_than_the_terminal_are_not_truncated_and_warnings_show_the_level() -> None:
    shorter = ShortFormatter(lambda: 40, is_colored=False)
    text = "the backend http://127.0.0.1:8080 is unreachable: requests fail"
    line = shorter.format(logging.LogRecord("proxy", logging.WARNING, "", 0, text, (), None))
    assert line.endswith(f"  warning  {text}")
    line = shorter.format(logging.LogRecord("proxy", logging.INFO, "", 0, text, (), None))
    assert "info" not in line


def test_the_short_format_prints_a_traceback_on_several_lines() -> None:
    try:
        raise ValueError("odd")
    except ValueError as error:
        raised = (ValueError, error, error.__traceback__)
    record = logging.LogRecord("proxy", logging.ERROR, "", 0, "a bug", (), raised)
    lines = ShortFormatter(lambda: 80, is_colored=True).format(record).splitlines()
    assert lines[0].endswith("a bug")
    assert lines[-1] == "ValueError: odd"


def test_the_variable_columns_overrides_the_terminal_width_and_the_default_is_80(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "57")
    assert columns_of(StringIO()) == 57
    parent, child = os.openpty()
    with os.fdopen(child, "w") as terminal:
        assert columns_of(terminal) == 57
        monkeypatch.delenv("COLUMNS")
        assert columns_of(terminal) == 80  # a terminal of unknown size
    os.close(parent)


def test_colors_need_a_terminal_and_are_off_if_no_color_is_set_or_term_is_dumb(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Terminal(StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert not takes_color(StringIO())
    assert takes_color(Terminal())
    monkeypatch.setenv("TERM", "dumb")
    assert not takes_color(Terminal())
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    assert not takes_color(Terminal())


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
    outcome=ReplyOutcome.RETRIED,
    facts=(Rescued("hermes", "f"), Coerced("f", "/a"), Coerced("f", "/b")),
    trace=TraceContext(0xAB, 1),
)


def make_record(name: str) -> RequestRecord:
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


def test_the_text_format_logs_a_request_as_one_line_of_keys_and_values() -> None:
    time, _, fields = text_of(RECORD).partition(" ")
    assert time.endswith("Z")
    assert fields == (
        "info    request id=r1 status=200 total_ms=100.0 model=qwen3"
        " backend=http://127.0.0.1:8080 dialect=chat stream=true queued_ms=10.0 first_token_ms=12.3"
        " overhead_ms=10.0 prompt_tokens=10 cached_tokens=0 output_tokens=5 attempts=2"
        " outcome=retried"
        ' repairs="rescued=hermes;coerced=2" trace=000000000000000000000000000000ab'
        " replica=temper-0\n"
    )


def test_the_text_format_omits_unknown_values() -> None:
    line = text_of(make_record("r2"))
    assert line.endswith(
        'request id=r2 status=400 total_ms=1.0 dialect=chat overhead_ms=1.0 attempts=0 repairs=""'
        " replica=temper-0\n"
    )


def test_the_text_format_logs_the_backend_error_or_the_phase_of_the_disconnect() -> None:
    failed = AttemptRecord("as_asked", 0, 0.1, error="unavailable")
    line = text_of(replace(RECORD, status=502, outcome=None, attempts=(failed,)))
    assert " error=unavailable " in line
    assert " left=" not in line
    disconnected = replace(RECORD, status=499, outcome=None, attempts=(), left="queued")
    assert " left=queued " in text_of(disconnected)


def test_the_json_format_logs_a_request_as_one_object_with_all_fields() -> None:
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
        "fallback": None,
        "tools": None,
        "repairs": "rescued=hermes;coerced=2",
        "context": None,
        "error": None,
        "left": None,
        "trace": f"{0xAB:032x}",
        "replica": "temper-0",
    }


def test_the_text_format_quotes_and_escapes_control_characters_in_a_value() -> None:
    line = text_of(make_record(HOSTILE))
    assert line.removesuffix("\n").isprintable()
    assert (
        r'id="a\r\nb \x1b[31m \u202e \u2028 \x7f \x85 \"c\" =d \\n \ud800 \u200b" status=' in line
    )


def test_a_json_line_is_ascii_and_decodes_to_the_original_value() -> None:
    stream = StringIO()
    configure_logging("json", "info", stream)
    RequestLog().take(make_record(HOSTILE))
    line = stream.getvalue().removesuffix("\n")
    assert line.isascii()
    assert line.isprintable()
    assert as_json(stream)["id"] == HOSTILE


def test_the_text_format_escapes_line_breaks_in_a_message() -> None:
    stream = StringIO()
    configure_logging("text", "info", stream, replica="temper-0")
    logging.getLogger("proxy.somewhere").warning("odd: %s", HOSTILE)
    assert stream.getvalue().count("\n") == 1
    assert stream.getvalue().removesuffix("\n").isprintable()
    assert stream.getvalue().endswith("logger=proxy.somewhere replica=temper-0\n")


def test_the_text_format_logs_a_traceback_escaped_in_the_same_line() -> None:
    stream = StringIO()
    configure_logging("text", "info", stream)
    try:
        raise ValueError("odd\nvalue")
    except ValueError:
        logging.getLogger("proxy.somewhere").exception("failed")
    assert stream.getvalue().count("\n") == 1
    assert r"ValueError: odd\nvalue" in stream.getvalue()


def test_a_value_above_the_longest_length_is_truncated_with_dots() -> None:
    line = text_of(make_record("x" * (LONGEST_VALUE + 1)))
    assert f"id={'x' * LONGEST_VALUE}... " in line
    assert f"id={'x' * LONGEST_VALUE} " in text_of(make_record("x" * LONGEST_VALUE))


def test_libraries_log_only_warnings_and_above() -> None:
    stream = StringIO()
    configure_logging("text", "debug", stream)
    logging.getLogger("httpcore.http11").debug("authorization: canary")
    logging.getLogger("uvicorn").info("chunk: canary")
    logging.getLogger("uvicorn.error").warning("careful")
    logging.getLogger("proxy.backends").debug("details")
    assert "canary" not in stream.getvalue()
    assert "careful" in stream.getvalue()
    assert "details" in stream.getvalue()


def test_lines_below_the_configured_level_are_dropped() -> None:
    stream = StringIO()
    configure_logging("text", "error", stream)
    RequestLog().take(RECORD)
    logging.getLogger("elsewhere").warning("careful")
    assert stream.getvalue() == ""


def test_each_line_is_logged_once_even_if_configure_logging_is_called_twice() -> None:
    stream = StringIO()
    configure_logging("text", "info", stream)
    configure_logging("text", "info", stream)
    RequestLog().take(RECORD)
    assert stream.getvalue().count("\n") == 1


def test_logs_are_json_by_default_if_there_is_no_terminal() -> None:
    stream = StringIO()
    configure_logging("auto", "info", stream)
    RequestLog().take(RECORD)
    assert as_json(stream)["id"] == "r1"


def test_a_terminal_gets_short_lines_but_full_lines_at_debug_level() -> None:
    stream = FakeTerminal()
    configure_logging("auto", "info", stream)
    RequestLog().take(RECORD)
    assert "id=r1" not in stream.getvalue()
    assert "10 in, 5 out" in stream.getvalue()
    configure_logging("auto", "debug", stream)
    RequestLog().take(RECORD)
    assert "id=r1" in stream.getvalue()


def test_a_replaced_sys_stderr_gets_the_log_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    configure_logging("text", "info")
    replacement = StringIO()
    monkeypatch.setattr(sys, "stderr", replacement)
    RequestLog().take(RECORD)
    assert "id=r1" in replacement.getvalue()


def test_log_lines_go_to_standard_error_and_not_to_standard_output(
    capsys: pytest.CaptureFixture[str],
) -> None:
    configure_logging("text", "info")
    RequestLog().take(RECORD)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "id=r1" in captured.err


@pytest.mark.parametrize("columns", [80, 40])
def test_the_error_message_of_a_rejected_request_is_not_truncated_to_the_terminal_width(
    columns: int,
) -> None:
    reason = "This model's maximum context length is 8192 tokens. " * 4 + "Please shorten it."
    refused = replace(SHORT, outcome=None, status=400, attempts=(), refusal=reason)
    assert reason in line_for(refused, columns)


def test_the_error_message_of_a_rejected_request_is_logged_escaped() -> None:
    refused = replace(SHORT, outcome=None, status=400, attempts=(), refusal="tools: \x1b[1m not")
    assert "error 400" in line_for(refused)
    assert "tools: \\x1b[1m not" in line_for(refused)
    assert ' error="tools: ' in text_of(refused)
