"""Standard error that never blocks its writers, even if nothing reads it."""

import io
import os
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress

import click
import pytest

from proxy.observability import standard_error
from proxy.observability.standard_error import BackgroundStream, unblock_standard_error


@contextmanager
def full_pipe() -> Generator[tuple[BackgroundStream, io.BufferedReader], None, None]:
    """Yield a stream whose pipe is full of lines of dots, and the read end of the pipe."""
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    with suppress(BlockingIOError):
        while True:
            os.write(write_end, b"." * 1023 + b"\n")
    os.set_blocking(write_end, True)
    with os.fdopen(read_end, "rb") as reader, io.FileIO(write_end, "w") as writer:
        yield BackgroundStream(writer, "utf-8"), reader


def read_lines(reader: io.BufferedReader, count: int) -> list[str]:
    """Read `count` lines; lines of dots are skipped."""
    lines: list[str] = []
    while len(lines) < count:
        line = reader.readline().decode()
        lines += [line] if not line.startswith(".") else []
    return lines


def test_print_returns_at_once_while_the_pipe_is_full_and_the_text_is_written_later() -> None:
    with full_pipe() as (stream, reader):
        for number in range(100):
            print(number, file=stream, flush=True)
        assert read_lines(reader, 100) == [f"{number}\n" for number in range(100)]
        stream.drain()


def test_lines_above_the_limit_of_waiting_lines_are_dropped_and_counted_in_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(standard_error, "MOST_WAITING", 100)
    with full_pipe() as (stream, reader):
        for number in range(300):
            stream.write(f"{number}\n")
        lines = read_lines(reader, 100)
        stream.drain()
        os.set_blocking(reader.fileno(), False)
        lines += (reader.read() or b"").decode().splitlines(keepends=True)
    assert lines == [f"{number}\n" for number in range(len(lines))]
    dropped = 300 - len(lines)
    assert dropped >= 199  # the thread may already have taken one line, which no longer waits
    assert caplog.messages == [f"standard error was blocked: {dropped} log lines were dropped"]


def test_drain_returns_although_the_pipe_is_still_full() -> None:
    with full_pipe() as (stream, reader):
        stream.write("late\n")
        stream.drain()  # returns although nothing was read
        assert read_lines(reader, 1) == ["late\n"]


def test_writing_to_a_pipe_closed_by_its_reader_raises_no_exception() -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    with io.FileIO(write_end, "w") as writer:
        stream = BackgroundStream(writer, "utf-8")
        stream.write("lost\n")
        stream.write("\ud800 lost as well\n")  # a lone surrogate cannot be encoded
        stream.drain()


def test_unblock_standard_error_does_not_wrap_a_replaced_sys_stderr(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    replacement = io.StringIO()
    monkeypatch.setattr(sys, "stderr", replacement)
    unblock_standard_error()
    assert sys.stderr is replacement


def test_no_text_is_lost_if_another_process_made_the_pipe_non_blocking() -> None:
    with full_pipe() as (stream, reader):
        os.set_blocking(stream.fileno(), False)
        stream.write("late\n")
        assert read_lines(reader, 1) == ["late\n"]


def test_click_writes_to_standard_error_as_to_a_text_stream(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read_end, write_end = os.pipe()
    with os.fdopen(read_end, "rb") as reader, io.FileIO(write_end, "w") as writer:
        stream = BackgroundStream(writer, "utf-8")
        monkeypatch.setattr(sys, "stderr", stream)
        click.echo("an error", err=True)
        assert reader.readline() == b"an error\n"
