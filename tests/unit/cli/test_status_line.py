"""The status line on a fake terminal of 60 columns."""

import asyncio
import io
import os
import sys

import pytest

from proxy.cli.status_line import StatusLine, format_seconds, open_status_line
from tests.fakes.pseudo_terminal import visible_line

COLUMNS = 60


class FakeTerminal(io.StringIO):
    """A terminal; `line` is the visible text of its last line."""

    def isatty(self) -> bool:
        return True

    @property
    def line(self) -> str:
        return visible_line(self.getvalue().rpartition("\n")[2])


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> FakeTerminal:
    made = FakeTerminal()
    size = os.terminal_size((COLUMNS, 24))
    monkeypatch.setattr(os, "get_terminal_size", lambda _file: size)
    monkeypatch.setattr(made, "fileno", lambda: 2)
    return made


async def test_an_activity_is_shown_with_its_elapsed_seconds(
    terminal: FakeTerminal, clock: Clock
) -> None:
    status = StatusLine(terminal, clock)
    status.begin("reading the prompt")
    status.draw()
    assert terminal.line == "reading the prompt (0 s)"
    clock.now += 12
    status.update("reading the prompt 40 %")
    status.draw()
    assert terminal.line == "reading the prompt 40 % (12 s)"
    status.begin("generating")
    status.draw()
    assert terminal.line == "generating (0 s)"
    status.end()
    assert terminal.line == ""


async def test_the_event_loop_redraws_the_line_until_its_end(
    terminal: FakeTerminal, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proxy.cli.status_line._TICK_SECONDS", 0.0)
    with StatusLine(terminal, clock) as status:
        status.begin("waiting")
        while not terminal.line:  # noqa: ASYNC110 - no event reports that it was drawn
            await asyncio.sleep(0)
        assert terminal.line == "waiting (0 s)"
    clock.now += 5
    for _ in range(10):
        await asyncio.sleep(0)
    assert terminal.line == ""


async def test_the_line_is_erased_for_output_and_redrawn_after_a_pause(
    terminal: FakeTerminal, clock: Clock
) -> None:
    status = StatusLine(terminal, clock)
    status.begin("generating")
    status.draw()
    status.clear()
    terminal.write("Sure: ")
    status.follow("Sure: ")
    status.draw()
    assert terminal.line == "Sure: "
    clock.now += 2
    status.draw()
    assert terminal.line == "Sure:   generating (2 s)"
    status.clear()
    assert terminal.line == "Sure: "
    status.follow("\n")
    status.end()


async def test_typed_keys_that_the_terminal_echoes_after_the_line_are_erased(
    terminal: FakeTerminal, clock: Clock
) -> None:
    status = StatusLine(terminal, clock)
    status.begin("generating")
    status.draw()
    terminal.write("^C")
    status.end()
    assert terminal.line == ""


@pytest.mark.parametrize(
    ("printed", "has_room"),
    [
        ("x" * 30, True),
        ("x" * 50, False),
        ("x" * COLUMNS, False),  # the cursor stays in the full row
        ("x" * (COLUMNS + 5), True),
        ("日" * 15, True),
        ("日" * 25, False),
        ("\t" * 7, False),
        ("x" * 59 + "日", True),  # the wide character begins a new row
        (f"{'x' * 50}\n", True),
    ],
)
async def test_the_line_is_drawn_only_if_the_row_has_space(
    terminal: FakeTerminal, clock: Clock, printed: str, *, has_room: bool
) -> None:
    status = StatusLine(terminal, clock)
    status.begin("generating")
    status.follow(printed)
    status.draw()
    assert ("generating (0 s)" in terminal.getvalue()) is has_room
    status.end()


async def test_a_long_status_line_is_truncated_and_its_control_characters_are_escaped(
    terminal: FakeTerminal, clock: Clock
) -> None:
    status = StatusLine(terminal, clock)
    status.begin(lambda: "a\x1b[2J" + "b" * 200)
    status.draw()
    assert terminal.line.startswith("a\\x1b[2Jbbb")
    assert len(terminal.line) == COLUMNS - 1
    status.end()


def test_without_a_terminal_nothing_is_drawn(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    status = open_status_line()
    status.begin("waiting")  # there is not even an event loop
    status.follow("text")
    status.clear()
    status.draw()
    status.end()
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(sys, "stderr", FakeTerminal())
    open_status_line(is_wanted=False).begin("waiting")
    monkeypatch.setenv("TERM", "dumb")
    open_status_line().begin("waiting")


def test_the_line_has_79_columns_on_a_terminal_of_unknown_width(clock: Clock) -> None:
    async def draw() -> str:
        terminal = FakeTerminal()
        with StatusLine(terminal, clock) as status:
            status.begin(lambda: "x" * 200)
            status.draw()
            return terminal.line

    assert asyncio.run(draw()) == "x" * 79


@pytest.mark.parametrize(
    ("seconds", "text"), [(-1, "0 s"), (12.9, "12 s"), (119, "119 s"), (200, "3 min 20 s")]
)
def test_format_seconds_uses_minutes_only_above_two_minutes(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text
