"""`temper serve` on terminals of 80 and 40 columns, without colors, and without a terminal."""

import fcntl
import itertools
import re
import signal
from pathlib import Path

import httpx
import pytest

from proxy.conversation import json
from tests.fakes.command import temper
from tests.fakes.llama import build_model
from tests.fakes.pseudo_terminal import CODES, WatchedCommand, on_terminal
from tests.timeouts import TIMEOUT_SECONDS

READY = r"ready at (http://[^ ]+)/v1 \(scripted, loaded in [0-9.]+ s\)"
CTRL_S, CTRL_Q = "\x13", "\x11"  # Ctrl-S pauses the output of a terminal, Ctrl-Q continues it
BODY = {"model": "scripted", "messages": [{"role": "user", "content": "[[plain]] hello"}]}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_model(tmp_path_factory.mktemp("terminal") / "scripted.gguf")


def ask(url: str) -> None:
    answer = httpx.post(
        f"{url}/v1/chat/completions", json=BODY, trust_env=False, timeout=TIMEOUT_SECONDS
    )
    assert answer.status_code == 200


def end(command: WatchedCommand) -> str:
    command.process.send_signal(signal.SIGTERM)
    shown = command.read_to_the_end()
    assert command.process.wait(TIMEOUT_SECONDS) == 0
    return shown


@pytest.mark.parametrize("columns", [80, 40])
def test_on_a_terminal_the_loading_progress_and_each_request_take_one_line(
    model: Path, columns: int
) -> None:
    serve = ("serve", "--model", str(model), "--port", "0")
    with on_terminal(columns, *serve) as command:
        ask(command.read_until(READY)[1])
        command.read_until(r"ok  scripted ")
        shown = end(command)
    assert "\x1b[32mok" in command.raw
    assert re.search("(?:starting|loading)", shown)  # the name is truncated to the width
    assert shown.count("ready at ") == 1
    request = next(line for line in shown.splitlines() if "ok  scripted" in line)
    assert len(request.rstrip()) <= columns
    assert re.search(r"\d m?s  ", request)
    assert " in, " in request


def test_the_environment_variable_no_color_disables_colors(model: Path) -> None:
    serve = ("serve", "--model", str(model), "--port", "0")
    with on_terminal(80, *serve, environment={"NO_COLOR": "1"}) as command:
        ask(command.read_until(READY)[1])
        command.read_until(r"ok  scripted ")
        end(command)
    colors = {code for code in CODES.findall(command.raw) if code.endswith("m")}
    assert colors <= {"\x1b[0m", "\x1b[1m", "\x1b[2m", "\x1b[3m", "\x1b[m"}


def test_debug_level_prints_all_fields(model: Path) -> None:
    serve = ("serve", "--model", str(model), "--port", "0")
    with on_terminal(200, *serve, environment={"TEMPER_LOGGING__LEVEL": "debug"}) as command:
        ask(command.read_until(READY)[1])
        command.read_until(r"request id=req_\w+ status=200 ")
        end(command)


@pytest.mark.parametrize("has_live_lines", [True, False])
def test_a_paused_terminal_delays_log_lines_but_no_responses(
    model: Path, *, has_live_lines: bool
) -> None:
    serve = ("serve", "--model", str(model), "--port", "0")
    environment = {"TERM": "xterm-256color" if has_live_lines else "dumb"}  # see `open_live_lines`
    with on_terminal(80, *serve, environment=environment) as command:
        url = command.read_until(READY)[1]
        command.type(CTRL_S)
        for _ in range(3):
            ask(url)
        command.type(CTRL_Q)
        command.read_until(r"(?s)(ok  scripted .*){3}")
        command.type(CTRL_S)
        ask(url)
        command.process.send_signal(signal.SIGTERM)
        assert command.process.wait(TIMEOUT_SECONDS) == 0


def test_a_full_log_pipe_delays_no_responses(model: Path) -> None:
    with temper("serve", "--model", str(model), "--port", "0", "--json") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        announced = json.parse(process.stdout.readline())
        assert isinstance(announced, dict)
        url = str(announced["url"])
        fcntl.fcntl(process.stderr, fcntl.F_SETPIPE_SZ, 4096)
        for _ in range(30):  # about 500 bytes of log each
            ask(url)
        requests = (line for line in process.stderr if '"event": "request"' in line)
        assert len(list(itertools.islice(requests, 30))) == 30
        process.send_signal(signal.SIGTERM)
        process.communicate()
        assert process.returncode == 0


def test_with_json_output_every_log_line_is_a_json_document(model: Path) -> None:
    with temper("serve", "--model", str(model), "--port", "0", "--json") as process:
        assert process.stdout is not None
        announced = json.parse(process.stdout.readline())
        assert isinstance(announced, dict)
        ask(str(announced["url"]))
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate()
    lines = [json.parse(line) for line in errors.splitlines()]
    events = [line["event"] for line in lines if isinstance(line, dict)]
    assert "llama-server: ready" in events
    assert "request" in events
    assert len(events) == len(lines)
