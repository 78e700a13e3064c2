"""The README's picture: what is drawn is what a terminal would show."""

import re
from pathlib import Path

import pytest

from benchmarks.terminal_recording import draw, final_lines, prompt

PICTURE = Path(__file__).parents[2] / "docs" / "terminal.svg"


@pytest.mark.parametrize(
    ("output", "lines"),
    [
        ("one\r\ntwo\r\n", ["one", "two"]),
        ("\x1b[?25lspin 1\r\x1b[2Kspin 2\r\x1b[2K\x1b[?25hdone\r\n", ["done"]),
        ("spin\r\n\x1b[?25h\r\x1b[1A\x1b[2Kready\r\n", ["ready"]),
        ("\x1b[32mgreen\x1b[0m\r\n", ["\x1b[32mgreen\x1b[0m"]),
    ],
)
def test_what_was_written_over_is_not_shown(output: str, lines: list[str]) -> None:
    assert final_lines(output) == lines


def test_the_picture_takes_nothing_from_anywhere() -> None:
    picture = draw([prompt("demo"), "\x1b[31mred\x1b[0m"])
    assert "temper&#160;demo" in picture
    assert "@font-face" not in picture
    shown_of_it = re.sub(r"<!--.*?-->", "", picture, flags=re.DOTALL)
    assert re.findall(r"https?://[^ )\"]+", shown_of_it) == ["http://www.w3.org/2000/svg"]


def test_the_picture_that_is_kept_is_small_and_shows_the_demonstration() -> None:
    kept = PICTURE.read_text(encoding="utf-8")
    assert len(kept.encode()) < 100_000
    assert "6&#160;of&#160;6&#160;with&#160;Temper." in kept
    assert "ready&#160;at&#160;http://127.0.0.1:8367/v1" in kept
