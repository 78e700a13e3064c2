"""The picture of the README shows the text that a terminal shows at the end of a command."""

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
def test_text_that_later_output_overwrites_is_not_in_the_picture(
    output: str, lines: list[str]
) -> None:
    assert final_lines(output) == lines


def test_a_drawn_picture_has_no_external_references() -> None:
    picture = draw([prompt("demo"), "\x1b[31mred\x1b[0m"])
    assert "temper&#160;demo" in picture
    assert "@font-face" not in picture
    without_comments = re.sub(r"<!--.*?-->", "", picture, flags=re.DOTALL)
    assert re.findall(r"https?://[^ )\"]+", without_comments) == ["http://www.w3.org/2000/svg"]


def test_stored_picture_is_small_and_shows_the_demonstration() -> None:
    stored = PICTURE.read_text(encoding="utf-8")
    assert len(stored.encode()) < 100_000
    assert "6&#160;of&#160;6&#160;with&#160;Temper." in stored
    assert "ready&#160;at&#160;http://127.0.0.1:8367/v1" in stored
