"""Differences between operating systems; the code for Windows is tested with fakes."""

import asyncio
import os
import signal
import subprocess
import sys
import types
from collections.abc import Iterator

import pytest

from proxy import systems
from tests.timeouts import TIMEOUT_SECONDS

NUMBER = signal.SIGUSR1


@pytest.fixture(params=["", "win32"], ids=["this system", "as on Windows"])
def system(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    before = signal.getsignal(NUMBER)
    if request.param:
        monkeypatch.setattr(sys, "platform", request.param)
    yield
    signal.signal(NUMBER, before)


async def test_a_signal_is_handled_in_the_event_loop_while_the_block_runs(system: None) -> None:
    signals: list[int] = []
    woken = asyncio.Event()

    def act(number: int) -> None:
        signals.append(number)
        woken.set()

    with systems.handle_signals((NUMBER,), act):
        signal.raise_signal(NUMBER)
        await asyncio.wait_for(woken.wait(), TIMEOUT_SECONDS)
    assert signals == [NUMBER]
    assert signal.getsignal(NUMBER) == signal.SIG_DFL


def test_open_file_limit_is_negative_on_systems_without_a_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert systems.open_file_limit() > 0
    monkeypatch.setitem(sys.modules, "resource", None)
    assert systems.open_file_limit() < 0


def test_a_process_tree_is_killed_entirely() -> None:
    script = "sleep 60 & echo $!; wait"
    with subprocess.Popen(
        ["/bin/sh", "-c", script], start_new_session=True, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert int(process.stdout.readline()) > 0
        systems.kill_tree(process.pid)
        assert process.stdout.read() == ""  # returns only after every process has closed the pipe
        assert process.wait(TIMEOUT_SECONDS) == -signal.SIGKILL
    systems.kill_tree(process.pid)  # it has already exited


def test_tie_to_parent_wraps_a_command_except_on_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    start = (sys.executable, "-P", "-S")
    wrapped = systems.tie_to_parent(("run", "this"), "/wrapper.py")
    assert wrapped == (*start, "/wrapper.py", str(os.getpid()), "run", "this")

    monkeypatch.setattr(sys, "frozen", True, raising=False)
    wrapped = systems.tie_to_parent(("run",), "/wrapper.py")
    assert wrapped == (*start, "-m", "proxy.processes.parent_death", str(os.getpid()), "run")

    monkeypatch.setattr(sys, "platform", "win32")
    assert systems.tie_to_parent(("run",), "/wrapper.py") == ("run",)


async def test_pressed_keys_are_polled_on_windows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    typed = ["q", "x"]
    console = types.SimpleNamespace(kbhit=lambda: bool(typed), getwch=lambda: typed.pop())
    monkeypatch.setitem(sys.modules, "msvcrt", console)
    monkeypatch.setattr(sys, "platform", "win32")
    keys: asyncio.Queue[bytes] = asyncio.Queue()
    with systems.handle_keys(keys.put_nowait):
        pressed = [await asyncio.wait_for(keys.get(), TIMEOUT_SECONDS) for _ in range(2)]
    assert pressed == [b"x", b"q"]


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A terminal as standard input with non-blocking reads."""
    parent, child = os.openpty()
    os.set_blocking(child, False)
    monkeypatch.setattr(sys, "stdin", types.SimpleNamespace(fileno=lambda: child))
    yield child
    os.close(parent)
    os.close(child)


async def test_handle_keys_sets_a_nonblocking_terminal_to_blocking(terminal: int) -> None:
    with systems.handle_keys(print):
        assert os.get_blocking(terminal)


def test_block_on_terminal_sets_a_nonblocking_terminal_to_blocking(
    terminal: int, system: None
) -> None:
    systems.block_on_terminal()
    assert os.get_blocking(terminal) is (sys.platform != "win32")
