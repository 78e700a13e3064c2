"""Short lines: what is told of a request in passing, in the columns that there are."""

import logging
import os
import re
from io import StringIO

import pytest
from msgspec.structs import replace

from proxy.facts import Coerced, Outcome, Rescued
from proxy.observability.record import AttemptRecord, Phase, RequestRecord, Tokens
from proxy.observability.short_lines import ShortFormatter, columns_of, takes_colour

RECORD = RequestRecord(
    id="r1",
    begun_at=0,
    model="qwen3",
    status=200,
    seconds=1.234,
    tokens=Tokens(1234, 1000, 56),
    attempts=(AttemptRecord("as_asked", 0, 1.2),),
    outcome=Outcome.REPAIRED,
    facts=(Rescued("hermes", "f"), Coerced("f", "/a")),
)
COLOUR = re.compile("\x1b\\[[0-9]+m")


def line_for(record: RequestRecord, columns: int = 200, *, is_coloured: bool = False) -> str:
    written = logging.LogRecord("proxy.requests", logging.INFO, "", 0, "request", (), None)
    written.request = record
    return ShortFormatter(lambda: columns, is_coloured=is_coloured).format(written)


def test_a_request_is_what_happened_model_seconds_tokens_and_repairs() -> None:
    time, _, rest = line_for(RECORD).partition("  ")
    assert re.fullmatch(r"\d\d:\d\d:\d\d", time)
    assert rest == (
        "repaired  qwen3  1.2 s  1,234 in, 56 out"
        "  a call rescued from text (hermes), a value converted  1,000 cached"
    )


@pytest.mark.parametrize(
    ("record", "words"),
    [
        (replace(RECORD, outcome=Outcome.CLEAN, facts=()), "ok  qwen3"),
        (replace(RECORD, outcome=Outcome.EXHAUSTED), "gave up  qwen3"),
        (replace(RECORD, outcome=None, status=503), "error 503  qwen3"),
        (replace(RECORD, attempts=RECORD.attempts * 2), "2 attempts"),
        (replace(RECORD, client="ann"), "  by ann  "),
        (replace(RECORD, seconds=0.0321), "  32 ms  "),
        (replace(RECORD, path="/v1/messages"), "  /v1/messages  "),
        (
            replace(RECORD, outcome=None, status=499, left=Phase.STREAMING),
            "the client left amid the answer",
        ),
        (
            replace(
                RECORD,
                outcome=None,
                status=502,
                attempts=(AttemptRecord("as_asked", 0, 1, error="timed_out"),),
            ),
            "the backend: timed out",
        ),
    ],
)
def test_how_it_ended_is_told_in_words(record: RequestRecord, words: str) -> None:
    assert words in line_for(record)


@pytest.mark.parametrize("phase", Phase)
def test_a_client_that_left_is_told_of_in_every_phase(phase: Phase) -> None:
    gone = replace(RECORD, outcome=None, status=499, left=phase)
    assert "the client left" in line_for(gone)


@pytest.mark.parametrize("columns", range(10, 120))
def test_a_line_is_never_wider_than_the_terminal(columns: int) -> None:
    for record in (RECORD, replace(RECORD, model="m" * 500, status=503, outcome=None)):
        for is_coloured in (True, False):
            line = line_for(record, columns, is_coloured=is_coloured)
            assert 0 < len(COLOUR.sub("", line)) <= columns
            assert "\n" not in line


def test_on_forty_columns_there_is_no_time_but_what_happened() -> None:
    assert line_for(RECORD, 40) == "repaired  qwen3  1.2 s  1,234 in, 56 out"


def test_colours_are_there_where_they_are_wanted_only() -> None:
    assert "\x1b" not in line_for(RECORD)
    coloured = line_for(RECORD, is_coloured=True)
    assert "\x1b[33mrepaired\x1b[0m" in coloured
    assert COLOUR.sub("", coloured).partition("  ")[2] == line_for(RECORD).partition("  ")[2]


def test_a_client_can_neither_begin_a_line_nor_steer_the_terminal() -> None:
    line = line_for(replace(RECORD, model="\x1b[2J\nfake\u202e"))
    assert line.isprintable()


def test_other_lines_are_whole_and_say_how_grave_they_are() -> None:
    shorter = ShortFormatter(lambda: 40, is_coloured=False)
    text = "the backend http://127.0.0.1:8080 is unreachable: requests fail"
    told = shorter.format(logging.LogRecord("proxy", logging.WARNING, "", 0, text, (), None))
    assert told.endswith(f"  warning  {text}")
    told = shorter.format(logging.LogRecord("proxy", logging.INFO, "", 0, text, (), None))
    assert "info" not in told


def test_a_traceback_keeps_its_lines() -> None:
    try:
        raise ValueError("odd")
    except ValueError as error:
        raised = (ValueError, error, error.__traceback__)
    record = logging.LogRecord("proxy", logging.ERROR, "", 0, "a bug", (), raised)
    told = ShortFormatter(lambda: 80, is_coloured=True).format(record).splitlines()
    assert told[0].endswith("a bug")
    assert told[-1] == "ValueError: odd"


def test_the_width_is_the_terminals_or_what_columns_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "57")
    assert columns_of(StringIO()) == 57
    own, child = os.openpty()
    with os.fdopen(child, "w") as terminal:
        assert columns_of(terminal) == 57
        monkeypatch.delenv("COLUMNS")
        assert columns_of(terminal) == 80  # a terminal that knows no size of its own
    os.close(own)


def test_colours_need_a_terminal_and_nobody_who_is_against_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Terminal(StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert not takes_colour(StringIO())
    assert takes_colour(Terminal())
    monkeypatch.setenv("TERM", "dumb")
    assert not takes_colour(Terminal())
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    assert not takes_colour(Terminal())
