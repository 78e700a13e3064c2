"""`temper demo`: the table, the printed commands, and the end after a signal."""

import shlex
import shutil
import signal
import socket
import subprocess
from pathlib import Path

import httpx
import pytest

from proxy.conversation import json
from temper_evals.demo.scenarios import SCENARIOS, SCRIPTS
from tests.fakes.command import processes_with, temper
from tests.timeouts import TIMEOUT_SECONDS

EXAMPLES = 3
TOP, BOTTOM, BETWEEN_ROWS = "┏", "└", "├"


def paste(command: str) -> str:
    """Run a command line as a shell would; without curl, send the same request."""
    shell = shutil.which("sh")
    if shell is not None and shutil.which("curl") is not None:
        done = subprocess.run(
            [shell, "-c", command], capture_output=True, check=True, timeout=TIMEOUT_SECONDS
        )
        return done.stdout.decode()
    words = shlex.split(command.replace("\\\n", " "))
    headers = dict(words[n + 1].split(": ") for n, word in enumerate(words) if word == "-H")
    address = next(word for word in words if word.startswith("http"))
    body = words[words.index("-d") + 1].encode()
    return httpx.post(
        address, content=body, headers=headers, trust_env=False, timeout=TIMEOUT_SECONDS
    ).text


def read_until_examples(process: subprocess.Popen[str]) -> tuple[str, list[str]]:
    """Read the output up to the example commands; return the output and the commands."""
    assert process.stdout is not None
    printed: list[str] = []
    commands: list[str] = []
    while len(commands) < EXAMPLES:
        line = process.stdout.readline()
        assert line, "it ended before it had printed everything"
        printed.append(line)
        if line.startswith("curl "):
            commands.append(line + process.stdout.readline())
    return "".join(printed), commands


def test_the_demo_prints_a_row_for_each_scenario_and_the_number_of_usable_replies(
    tmp_path: Path,
) -> None:
    environment = {"TMPDIR": str(tmp_path), "COLUMNS": "120"}
    with temper("demo", "--once", "--port", "0", **environment) as process:
        printed, violations = process.communicate()
    assert process.returncode == 0, violations
    assert violations == ""
    assert printed.count(f"\n{BETWEEN_ROWS}") + 1 == len(SCENARIOS)
    table = printed[printed.index(TOP) : printed.index(BOTTOM)]
    cells = [line.split("│") for line in table.splitlines() if line.startswith("│")]
    assert sum("get_weather(" in cell[4] for cell in cells) == len(SCENARIOS)
    assert sum("no call" in cell[3] for cell in cells) == len(SCENARIOS)
    assert "Usable calls: 0 of 6 without Temper, 6 of 6 with Temper." in printed
    assert processes_with(str(tmp_path)) == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.deep
def test_the_commands_that_the_demo_prints_work_while_it_keeps_serving(tmp_path: Path) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as used_port,
        temper("demo", "--port", str(used_port.getsockname()[1]), TMPDIR=str(tmp_path)) as process,
    ):
        printed, commands = read_until_examples(process)
        assert f"Port {used_port.getsockname()[1]} is not available" in printed
        plain, stream, text = map(paste, commands)
        assert processes_with(str(tmp_path)) != []

        process.send_signal(signal.SIGINT)
        _, violations = process.communicate()
    assert called(plain) == ("get_weather", {"city": "Lyon"})
    assert '"name":"get_weather"' in stream
    assert "Oslo" in stream
    assert stream.rstrip().endswith("data: [DONE]")
    assert message(text) == {"role": "assistant", "content": SCRIPTS["Is it raining in Rome?"]}
    assert (process.returncode, violations) == (0, "")
    assert processes_with(str(tmp_path)) == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_during_the_demo_leaves_no_process_and_no_file(
    tmp_path: Path, number: signal.Signals
) -> None:
    with temper("demo", TMPDIR=str(tmp_path)) as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        process.send_signal(number)
        _, violations = process.communicate()
    assert (process.returncode, violations) == (130, "")
    assert processes_with(str(tmp_path)) == []
    assert list(tmp_path.iterdir()) == []


def message(answer: str) -> json.JsonValue:
    completion = json.parse(answer)
    assert isinstance(completion, dict)
    choices = completion["choices"]
    assert isinstance(choices, list)
    assert isinstance(choices[0], dict)
    return choices[0]["message"]


def called(answer: str) -> tuple[str, json.JsonValue]:
    reply = message(answer)
    assert isinstance(reply, dict)
    assert isinstance(reply["tool_calls"], list)
    (call,) = reply["tool_calls"]
    assert isinstance(call, dict)
    function = call["function"]
    assert isinstance(function, dict)
    return str(function["name"]), json.parse(str(function["arguments"]))
