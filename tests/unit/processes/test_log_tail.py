import pytest

from proxy.processes.log_tail import LONGEST_LINE, MOST_LINES, LogTail


@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_lines_are_the_same_however_the_output_is_cut(size: int) -> None:
    output = "first\nse\u00e9cond\r\n\n  \nloading ...\rthird".encode()
    tail = LogTail()
    told: list[str] = []
    for start in range(0, len(output), size):
        told += tail.feed(output[start : start + size])
    told += tail.finish()
    assert told == ["first", "se\u00e9cond", "loading ...", "third"]
    assert tail.lines == tuple(told)


def test_only_the_last_lines_are_kept() -> None:
    tail = LogTail()
    tail.feed(b"".join(b"%d\n" % number for number in range(MOST_LINES + 5)))
    assert tail.lines == tuple(str(number) for number in range(5, MOST_LINES + 5))


def test_a_line_without_an_end_stays_within_bounds() -> None:
    tail = LogTail()
    for _ in range(100):
        assert tail.feed(b"x" * LONGEST_LINE) == []
    assert tail.finish() == ["x" * LONGEST_LINE]
    assert tail.finish() == []


def test_what_could_command_a_terminal_is_shown_as_an_escape() -> None:
    tail = LogTail()
    assert tail.feed(b"a\t\x1b[31mred\x07 \xff\n") == ["a \\x1b[31mred\\x07 \ufffd"]


def test_a_row_of_dots_is_seen_while_it_grows() -> None:
    tail = LogTail()
    tail.feed(b"loading\n..")
    assert tail.dots == ".."
    tail.feed(b".")
    assert tail.dots == "..."
    tail.feed(b"x")
    assert tail.dots == ""
    tail.feed(b"\n")
    assert tail.dots == ""


def test_of_a_progress_bar_the_latest_state_is_kept() -> None:
    tail = LogTail()
    lines = tail.feed(b"start\rDownloading 1%\rDownloading 2%\x1b[K\rDownloading 3%\rend\n")
    assert len(lines) == 5
    assert tail.lines == ("start", "Downloading 3%", "end")
