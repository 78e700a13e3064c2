"""Lines below other output, on an emulated terminal whose visible rows are compared."""

import asyncio
import io
import os
import re
import select
import sys

import pytest

from proxy.cli.live_lines import LiveLines, keep_drawing, open_live_lines

_CODE = re.compile(r"\x1b\[\??(\d*)([A-Za-z])|([\r\n])|([^\x1b\r\n]+)")


class FakeTerminal(io.StringIO):
    """A terminal that interprets output into rows; `can_wrap` is its wrap mode."""

    def __init__(self, columns: int = 40, lines: int = 10) -> None:
        super().__init__()
        self.size = os.terminal_size((columns, lines))
        self.rows = [""]
        self.row = self.column = 0
        self.can_wrap = True
        self.is_closed = False

    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        return 2

    def write(self, text: str) -> int:
        if self.is_closed:
            raise OSError
        for number, code, control, printed in _CODE.findall(text):
            match code or control:
                case "A":
                    self.row -= int(number)
                case "J":
                    del self.rows[self.row + 1 :]
                    self.rows[self.row] = self.rows[self.row][: self.column]
                case "l" | "h":
                    self.can_wrap = code == "h"
                case "\r":
                    self.column = 0
                case "\n":
                    self.row, self.column = self.row + 1, 0
                    self.rows += [""] * (self.row + 1 - len(self.rows))
                case _:
                    self._print(printed)
        return len(text)

    def _print(self, text: str) -> None:
        line = self.rows[self.row]
        self.rows[self.row] = line[: self.column].ljust(self.column) + text
        self.column += len(text)


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> FakeTerminal:
    made = FakeTerminal()
    monkeypatch.setattr(os, "get_terminal_size", lambda _file: made.size)
    monkeypatch.setattr(select, "select", lambda *_lists: ([], [2], []))
    return made


def test_log_lines_are_printed_above_the_live_lines(terminal: FakeTerminal) -> None:
    lines = LiveLines(terminal)
    lines.write("ready\n")
    lines.show(["first", "second"])
    assert terminal.rows == ["ready", "first", "second"]
    lines.write("a log line\n")
    assert terminal.rows == ["ready", "a log line", "first", "second"]
    lines.show(["second"])
    assert terminal.rows == ["ready", "a log line", "second"]
    lines.show([])
    assert terminal.rows == ["ready", "a log line", ""]
    assert (terminal.row, terminal.column, terminal.can_wrap) == (2, 0, True)


def test_live_lines_are_not_drawn_after_output_without_a_newline(terminal: FakeTerminal) -> None:
    lines = LiveLines(terminal)
    lines.show(["request"])
    lines.write("loading 40 %")
    assert terminal.rows == ["loading 40 %"]
    lines.show(["another request"])
    assert terminal.rows == ["loading 40 %"]
    lines.write("\n\x1b[?25h")
    assert terminal.rows == ["loading 40 %", "another request"]


def test_live_lines_are_truncated_to_the_current_width_of_the_terminal(
    terminal: FakeTerminal,
) -> None:
    lines = LiveLines(terminal)
    lines.show(["x" * 60])
    assert terminal.rows == ["x" * 39]
    terminal.size = os.terminal_size((20, 10))
    lines.show(["日" * 30])
    assert terminal.rows == ["日" * 9]
    terminal.size = os.terminal_size((1, 1))
    lines.show(["x" * 30])
    assert terminal.rows == [""]


def test_unchanged_lines_and_a_paused_terminal_cause_no_output(
    terminal: FakeTerminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = LiveLines(terminal)
    lines.show(["first"])
    terminal.rows = []
    lines.show(["first"])
    assert terminal.rows == []
    monkeypatch.setattr(select, "select", lambda *_lists: ([], [], []))  # after Ctrl-S
    lines.show(["second"])
    assert terminal.rows == []


def test_showing_lines_on_a_closed_terminal_raises_no_error(terminal: FakeTerminal) -> None:
    lines = LiveLines(terminal)
    terminal.is_closed = True
    lines.show(["first"])


def test_lines_are_drawn_on_at_most_half_of_the_screen(terminal: FakeTerminal) -> None:
    texts = iter([["first"], ["second"], []])
    maximums: list[int] = []
    lines = LiveLines(terminal)

    def compose(number: int) -> list[str]:
        maximums.append(number)
        return next(texts, [])

    async def draw() -> None:
        task = asyncio.create_task(keep_drawing(lines, compose, lambda: len(maximums) > 3))
        while len(maximums) <= 3:  # noqa: ASYNC110 - no event reports that lines were drawn
            await asyncio.sleep(0)
        task.cancel()

    asyncio.run(draw())
    assert maximums[0] == 5  # half of the screen
    assert terminal.rows == [""]


def test_live_lines_are_opened_only_on_a_terminal_that_can_move_the_cursor(
    terminal: FakeTerminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_live_lines(is_wanted=True) as lines:
        assert lines is None
    monkeypatch.setattr(sys, "stderr", terminal)
    with open_live_lines(is_wanted=False) as lines:
        assert lines is None
    with open_live_lines(is_wanted=True) as lines:
        assert lines is not None
        assert sys.stderr.isatty()
        assert sys.stderr.fileno() == 2
        lines.show(["request"])
        print("a line", file=sys.stderr, flush=True)  # noqa: T201
        assert terminal.rows == ["a line", "request"]
    assert sys.stderr is terminal
    assert terminal.rows == ["a line", ""]
    monkeypatch.setenv("TERM", "dumb")
    with open_live_lines(is_wanted=True) as lines:
        assert lines is None


def test_live_lines_assume_80_columns_and_24_lines_if_the_terminal_size_is_unknown() -> None:
    lines = LiveLines(io.StringIO())
    assert lines.size == (80, 24)
    lines.show(["x" * 100])
    assert lines.write("") == 0
