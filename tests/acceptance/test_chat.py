"""`temper chat` with a real llama-server: at a terminal, in a pipe, and for one prompt."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from proxy.conversation import json
from tests.fakes.llama import build_model
from tests.fakes.pseudo_terminal import on_terminal
from tests.fakes.quick_start import COMMAND, Program
from tests.timeouts import TIMEOUT_SECONDS

TOOLS = '''
from temper import tool

def get_weather(city: str, days: int = 1) -> str:
    """Tell the weather in a city."""
    return f"21 degrees in {city}"

get_weather = tool(needs_approval=True)(get_weather)
'''
QUESTION = "[[no newline]] what about Lyon?"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_model(tmp_path_factory.mktemp("chat") / "scripted.gguf")


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    file = tmp_path / "my_tools.py"
    file.write_text(TOOLS, encoding="utf-8")
    return file


def chat(text: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    with Program(
        [*COMMAND, "chat", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
    ) as process:
        try:
            answered, complained = process.communicate(text, TIMEOUT_SECONDS)
        finally:
            process.kill()
    return subprocess.CompletedProcess(arguments, process.returncode, answered, complained)


def test_piped_input_is_answered_line_by_line(model: Path, tools: Path) -> None:
    typed = f"{QUESTION}\ny\n/retry\ny\n/tools\n/new\n/retry\n/hepl\n/quit\n[[prose]] never asked\n"
    answered = chat(typed, "--model", str(model), "--tools", str(tools))
    assert answered.returncode == 0, answered.stderr
    round_trip = [
        '  get_weather(city="Lyon")',
        "  get_weather: 21 degrees in Lyon",
        "Thank you: it is sunny there.",
        "  a call rescued from text (hermes)",
    ]
    assert answered.stdout.splitlines() == [
        "  Tools: get_weather. /help lists the commands, Ctrl-D quits.",
        *round_trip,
        *round_trip,
        "  get_weather  Tell the weather in a city.",
        "  new conversation",
        "  there is no message to send again",
        "  unknown command /hepl; did you mean /help?",
    ]


def test_a_call_that_the_user_does_not_confirm_is_not_run(model: Path, tools: Path) -> None:
    answered = chat(f"{QUESTION}\nno\n", "--model", str(model), "--tools", str(tools))
    assert "21 degrees" not in answered.stdout


@pytest.mark.deep
@pytest.mark.parametrize(("answer", "expected"), [("y", '"timezone": "UTC"'), ("", "refused")])
def test_a_tool_of_an_mcp_server_is_listed_and_runs_after_confirmation(
    model: Path, tmp_path: Path, answer: str, expected: str
) -> None:
    settings = tmp_path / "temper.toml"
    command = json.dump_text([sys.executable, "-m", "mcp_server_time"])
    config = "tools = ['get_current_time']\nask = ['get_current_time']\n"
    settings.write_text(f"[mcp.time]\ncommand = {command}\n{config}", encoding="utf-8")
    typed = f"/tools\n[[our time]] what is it?\n{answer}\n"
    answered = chat(typed, "--model", str(model), "--config", str(settings))
    assert answered.returncode == 0, answered.stderr
    assert "  get_current_time  Get current time" in answered.stdout
    result = re.search("  get_current_time: (.+)", answered.stdout)
    assert result is not None
    assert expected in result[1]


def test_a_prompt_as_argument_prints_only_the_answer(model: Path) -> None:
    answered = chat("", "--model", str(model), "[[four]] two and two?")
    assert (answered.stdout, answered.stderr, answered.returncode) == (
        "The answer is four.\n",
        "",
        0,
    )


def test_an_unreachable_backend_is_a_one_line_error() -> None:
    answered = chat("", "--backend-url", "http://127.0.0.1:9", "hello")
    assert answered.returncode == 1
    assert answered.stderr.startswith("temper: The backend http://127.0.0.1:9 cannot be reached")
    assert len(answered.stderr.splitlines()) == 1


def waits_for_terminal(pid: int) -> bool:
    """Return whether a write to a stalled terminal waits instead of failing (Linux only)."""
    fdinfo = Path(f"/proc/{pid}/fdinfo/1")
    flags = re.search(r"flags:\s+([0-7]+)", fdinfo.read_text("ascii")) if fdinfo.exists() else None
    return flags is None or not int(flags[1], 8) & os.O_NONBLOCK


def test_at_a_terminal_ctrl_c_stops_the_answer_and_ctrl_d_ends_the_chat(
    model: Path, tools: Path
) -> None:
    arguments = ("chat", "--model", str(model), "--tools", str(tools))
    plain = {"PROMPT_TOOLKIT_NO_CPR": "1"}  # the terminal reports no cursor position
    with on_terminal(80, *arguments, environment=plain) as command:
        command.read_until(r"Ctrl-D quits\.")
        command.type(f"{QUESTION}\r")
        command.read_until(r'call get_weather\(city="Lyon"\)\? \[y/N\]')
        command.type("y\r")
        command.read_until(r"a call rescued from text")
        command.type("[[forever]] go on\r")
        command.read_until(r"and on and on")
        assert waits_for_terminal(command.process.pid)
        command.process.send_signal(
            signal.SIGINT
        )  # typed Ctrl-C sends no signal: the terminal does not control the process
        command.read_until(r"stopped\s+>")
        command.type("\x04")
        shown = command.read_to_the_end()
        assert command.process.wait(TIMEOUT_SECONDS) == 0
    assert re.search(r"21 degrees in Lyon\s+Thank you: it is sunny there\.", shown)
