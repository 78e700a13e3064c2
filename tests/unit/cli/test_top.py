"""`temper top` connected to a real Temper, on pseudo terminals and without one."""

import codecs
import contextlib
import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.fakes.command import ended, running_temper
from tests.fakes.quick_start import COMMAND, Program
from tests.timeouts import TIMEOUT_SECONDS

NOWHERE = "http://127.0.0.1:1"


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """A Temper with a key and an unreachable backend; one request has failed."""
    environment = {"TEMPER_SERVER__API_KEY": "operators-key"}
    with running_temper("--backend-url", NOWHERE, environment=environment) as url:
        body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
        httpx.post(
            f"{url}/v1/chat/completions",
            json=body,
            headers={"authorization": "Bearer operators-key"},
            timeout=TIMEOUT_SECONDS,
            trust_env=False,
        )
        yield url


@pytest.fixture
def key(tmp_path: Path) -> Path:
    path = tmp_path / "key"
    path.write_text("operators-key\n", encoding="utf-8")
    return path


def command(url: str, *others: str) -> tuple[str, ...]:
    return ("top", "--url", url, *others)


@contextlib.contextmanager
def terminal(columns: int) -> Iterator[tuple[int, int]]:
    """Open a pseudo terminal; yield the file descriptors of the user's and the program's side."""
    person, program = pty.openpty()
    fcntl.ioctl(program, termios.TIOCSWINSZ, struct.pack("HHHH", 30, columns, 0, 0))
    try:
        yield person, program
    finally:
        os.close(person)
        os.close(program)


@pytest.mark.parametrize("columns", [80, 40])
def test_top_refreshes_until_q_is_pressed(columns: int, server: str, key: Path) -> None:
    with terminal(columns) as (person, program):
        before = termios.tcgetattr(program)
        running = Program[bytes](
            [*COMMAND, *command(server, "--key-file", str(key))],
            stdin=program,
            stdout=program,
            stderr=subprocess.PIPE,
            env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "", "LINES": ""},
        )
        watchdog = threading.Timer(TIMEOUT_SECONDS, running.kill)
        watchdog.start()
        try:
            seen = b""
            while b"1 failed" not in seen:
                seen += os.read(person, 65536)
            os.write(person, b"q")
            drain = threading.Thread(target=read_all, args=(person, running), daemon=True)
            drain.start()
            _, errors = running.communicate()
        finally:
            watchdog.cancel()
        assert running.returncode == 0, errors
        assert b"Traceback" not in errors
        assert termios.tcgetattr(program) == before
    output = codecs.getincrementaldecoder("utf-8")().decode(seen)  # the last piece may be cut off
    plain = re.sub(r"\x1b(\[[0-9;?]*([A-Za-z]|$)|$)", "", output)
    assert all(len(line) <= columns for line in plain.replace("\r", "").split("\n"))
    assert "1 request" in plain


def read_all(person: int, running: "subprocess.Popen[bytes]") -> None:
    """Read the output of a program until it ends; it blocks if nobody empties the terminal."""
    with contextlib.suppress(OSError):
        while running.poll() is None:
            os.read(person, 65536)


def test_without_a_terminal_the_current_state_is_printed_once(server: str, key: Path) -> None:
    done = ended(*command(server, "--key-file", str(key)))
    assert done.returncode == 0
    assert "1 request in the last hour" in done.stdout
    assert "\x1b" not in done.stdout


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("wrong-key", "Send the server's API key"),
        ("two keys", "must contain exactly one key"),
        ("", "must contain exactly one key"),
        ("\udcff", "is not a text file"),
        (None, "cannot be read: No such file or directory"),
    ],
)
def test_a_wrong_key_or_an_invalid_key_file_is_reported(
    content: str | None, problem: str, server: str, tmp_path: Path
) -> None:
    path = tmp_path / "key"
    if content is not None:
        path.write_bytes(content.encode("utf-8", "surrogateescape"))
    done = ended(*command(server, "--key-file", str(path)))
    assert done.returncode == 1
    assert "--key-file" in done.stderr
    assert problem in done.stderr
    assert content is None or not content or content not in done.stderr


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        (NOWHERE, f"no Temper is running at {NOWHERE}; start one with 'temper serve'"),
        ("nonsense", "'nonsense' is not a URL; use a form like http://127.0.0.1:8367"),
        ("http://", "is not a URL"),
    ],
)
def test_an_address_without_temper_is_reported(url: str, problem: str) -> None:
    done = ended(*command(url))
    assert done.returncode == 1
    assert problem in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_temper_top_reports_a_server_that_is_not_temper(server: str, key: Path) -> None:
    done = ended(*command(f"{server}/v1", "--key-file", str(key)))
    assert done.returncode == 1
    assert f"{server}/v1 is not a Temper, or its dashboard is disabled" in done.stderr
