"""Commands that wait for a slow model: the progress that they show, and Ctrl-C during the wait.

The engine answers only when a test releases it.
"""

import re
import shlex
import signal
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from proxy.conversation.json import JsonObject
from temper_evals.records import read_runs
from tests.examples import mostly_deep
from tests.fakes.command import ended, temper
from tests.fakes.paced_engine import PacedEngine
from tests.fakes.pseudo_terminal import WatchedCommand, on_terminal
from tests.fakes.scripted_backend import Ending, Script, ScriptedBackend
from tests.fakes.sockets import listening_in_thread
from tests.fakes.sse import START, calls, end, part, text
from tests.timeouts import TIMEOUT_SECONDS, wait_until

TOOLS = '''
import asyncio

async def get_weather(city: str) -> str:
    """Tell the weather in a city."""
    await asyncio.Event().wait()
    return "never"
'''
STUCK = '''
import time

def get_weather(city: str) -> str:
    """Tell the weather in a city."""
    time.sleep(10_000)
    return "never"
'''
READS: JsonObject = {"total": 1100, "cache": 100, "processed": 500, "time_ms": 9000}
READING = Script((START, part([], prompt_progress=READS), Ending.NEVER))
GENERATING = Script((START, text("It is "), text("sunny"), Ending.NEVER))
SILENT = Script((START, Ending.NEVER))
ANNOUNCED = START + text("I'll check the weather.") + end()


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    # this terminal does not report the cursor position
    monkeypatch.setenv("PROMPT_TOOLKIT_NO_CPR", "1")


@pytest.fixture
def engine() -> Iterator[tuple[PacedEngine, str]]:
    """An engine that processes every prompt until a test releases it."""
    silent = PacedEngine(is_silent=True)
    with listening_in_thread(silent) as url:
        yield silent, url


def interrupt(command: WatchedCommand) -> str:
    """Send one Ctrl-C; returns the output until the end of the command."""
    command.process.send_signal(signal.SIGINT)
    shown = command.read_to_the_end()
    assert command.process.wait(TIMEOUT_SECONDS) == 130
    assert "Traceback" not in shown
    return shown


@pytest.mark.parametrize(
    ("scripts", "shown"),
    mostly_deep(
        [
            ([READING], r"reading the prompt 40 % \(\d+ s\)"),
            ([SILENT], r"reading the prompt \(\d+ s\)"),
            ([GENERATING], r"It is sunny  generating \(\d+ s\)"),
            ([ANNOUNCED, SILENT], r"retrying: an announced call that was not made \(\d+ s\)"),
            ([calls("get_weather", '{"city": "Paris"}')], r"running get_weather \(\d+ s\)"),
        ]
    ),
)
def test_the_chat_command_shows_its_activity_and_returns_to_the_prompt_at_ctrl_c(
    scripts: Sequence[Script | bytes], shown: str
) -> None:
    Path("tools.py").write_text(TOOLS, encoding="utf-8")
    backend = ScriptedBackend(*scripts)
    with (
        listening_in_thread(backend) as url,
        on_terminal(
            80,
            *("chat", "--backend-url", url, "--tools", "tools.py"),
            environment={"TEMPER_BACKEND__KIND": "llama-server"},
        ) as command,
    ):
        command.read_until(r"Ctrl-D quits\.")
        command.type("How is Paris?\r")
        command.read_until(shown)
        command.process.send_signal(signal.SIGINT)
        command.read_until(r"stopped\s+>")
        if "running" not in shown:
            wait_until(backend.upstream_requests[-1].left.is_set)
        command.type("\x03")  # the second Ctrl-C
        command.read_to_the_end()
        assert command.process.wait(TIMEOUT_SECONDS) == 0
    for activity in ("reading", "generating", "retrying", "running", "stopping", "waiting"):
        assert activity not in command.visible


def test_serve_shows_running_requests_below_the_log_lines() -> None:
    body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "Hello"}]}
    with (
        listening_in_thread(ScriptedBackend(READING, GENERATING)) as engine,
        on_terminal(80, "serve", "--backend-url", engine, "--port", "0") as command,
    ):
        url = command.read_until(r"ready at (http://[^ ]+)/v1 ")[1]
        assert (
            command.read_until(r"Try it in another terminal: temper chat --backend-url (.+)\r")[1]
            == url
        )
        with ExitStack() as stack:
            for seen in (r"\d s  reading the prompt 40 %  m", r"\d s  generating, 3 tokens  m"):
                post = httpx.stream(
                    "POST",
                    f"{url}/v1/chat/completions",
                    json=body,
                    trust_env=False,
                    timeout=TIMEOUT_SECONDS,
                )
                stack.enter_context(post)
                command.read_until(seen)
            command.process.send_signal(signal.SIGINT)
            command.read_until(r"stopping: running requests \(2\) have \d+ s to finish")
        command.read_until(r"left  m (?s:.*)left  m ")
        command.read_to_the_end()
        assert command.process.wait(TIMEOUT_SECONDS) == 0


def test_serve_says_at_once_that_its_backend_is_not_reachable_yet() -> None:
    with socket.socket() as engine:
        engine.bind(("127.0.0.1", 0))  # it refuses connections, as it does not listen
        url = f"http://127.0.0.1:{engine.getsockname()[1]}"
        with on_terminal(80, "serve", "--backend-url", url, "--port", "0") as command:
            before = command.read_until(r"(?s)(.*)listening at (http://[^ \r]+)/v1\r")
            command.read_until(r"is not reachable yet: requests fail until it runs")
            assert "ready" not in before[1]
            command.process.send_signal(signal.SIGTERM)
            assert "ready at" not in command.read_to_the_end()


def test_chat_exits_while_an_abandoned_tool_still_runs() -> None:
    Path("tools.py").write_text(STUCK, encoding="utf-8")
    backend = ScriptedBackend(calls("get_weather", '{"city": "Paris"}'))
    with (
        listening_in_thread(backend) as url,
        on_terminal(80, "chat", "--backend-url", url, "--tools", "tools.py") as command,
    ):
        command.read_until(r"Ctrl-D quits\.\s+>")
        command.type("How is Paris?\r")
        command.read_until(r"running get_weather")
        command.process.send_signal(signal.SIGINT)
        command.read_until(r"stopped\s+>")
        command.type("\x04")
        command.read_to_the_end()
        assert command.process.wait(TIMEOUT_SECONDS) == 0


def test_chat_ends_at_a_second_ctrl_c_at_an_empty_prompt() -> None:
    with (
        listening_in_thread(ScriptedBackend()) as url,
        on_terminal(80, "chat", "--backend-url", url) as command,
    ):
        command.read_until(r"Ctrl-D quits\.\s+>")
        command.type("a line given up\x03")
        command.read_until(r"press Ctrl-C again to quit\s+>")
        command.type("\x03")
        command.read_to_the_end()
        assert command.process.wait(TIMEOUT_SECONDS) == 0


def test_doctor_shows_the_running_check_and_ends_at_ctrl_c(
    engine: tuple[PacedEngine, str],
) -> None:
    silent, url = engine
    with on_terminal(80, "doctor", "--backend-url", url) as command:
        command.read_until(r"checking: forced call \(\d+ s\)")
        assert silent.arrived.acquire(timeout=TIMEOUT_SECONDS)
        interrupt(command)
    assert silent.left.acquire(timeout=TIMEOUT_SECONDS)
    assert "checking" not in command.visible


@pytest.mark.parametrize("flags", [(), ("--json",)])
def test_doctor_without_a_terminal_shows_no_progress(
    engine: tuple[PacedEngine, str], flags: tuple[str, ...]
) -> None:
    silent, url = engine
    with temper("doctor", "--backend-url", url, *flags) as process:
        assert silent.arrived.acquire(timeout=TIMEOUT_SECONDS)
        time.sleep(1.5)  # a terminal would show the check by now
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=TIMEOUT_SECONDS)
    assert process.returncode == 130
    assert errors == ""
    assert "\x1b" not in output
    assert "checking" not in output


@pytest.mark.deep
def test_tune_shows_the_remaining_time_and_the_current_case_and_ends_at_ctrl_c(
    engine: tuple[PacedEngine, str],
) -> None:
    silent, url = engine
    with on_terminal(120, "tune", "--backend-url", url, "--minutes", "30") as command:
        pattern = r"29 min \d+ s left: without tools in the prompt, as \w+, \w+-\d+ \(\d+ s\)"
        command.read_until(pattern)
        assert silent.arrived.acquire(timeout=TIMEOUT_SECONDS)
        shown = interrupt(command)
    assert silent.left.acquire(timeout=TIMEOUT_SECONDS)
    assert "Stopped after 0 cases." in shown
    assert "left:" not in command.visible


@pytest.mark.deep
def test_endless_reply_cannot_exceed_the_time_limit_of_tune(
    engine: tuple[PacedEngine, str],
) -> None:
    silent, url = engine
    done = ended("tune", "--backend-url", url, "--minutes", "0.1")
    assert done.returncode == 0, done.stderr
    if silent.arrived.acquire(blocking=False):  # on a busy machine, Temper does not start in time
        assert silent.left.acquire(timeout=TIMEOUT_SECONDS)
    assert "respond: no finished case: off" in done.stdout
    text = " ".join(done.stdout.split())
    assert "too short to finish a case with and without a setting. Pass --minutes " in text
    (file,) = Path("cache/temper/tuned/runs").rglob("runs.jsonl")
    assert file.read_bytes() == b""


@pytest.mark.deep
def test_eval_shows_the_current_scenarios_and_can_be_resumed_after_ctrl_c(
    engine: tuple[PacedEngine, str],
) -> None:
    silent, url = engine
    flags = ("--family", "single", "--arms", "direct,temper-off", "--output", "my runs")
    with on_terminal(80, "eval", "--backend-url", url, *flags) as command:
        command.read_until(r"direct 0 of 6: single-\d+ and 2 more \(\d+ s\)")
        assert silent.arrived.acquire(timeout=TIMEOUT_SECONDS)
        shown = interrupt(command)
    assert silent.left.acquire(timeout=TIMEOUT_SECONDS)
    stopped = re.search(r"Stopped after 0 of 12 runs\. Continue with: temper (.+)", shown)
    assert stopped is not None
    silent.is_silent = False
    done = ended(*shlex.split(stopped[1]))
    assert done.returncode == 0, done.stderr
    assert len([*read_runs(Path("my runs"))]) == 12
    assert re.search(r"direct: 6 runs, \d right, \d+ s", done.stderr)
