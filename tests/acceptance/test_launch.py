"""`temper launch` configures an agent, runs it in the foreground, and returns its exit code.

The agent is a script that writes its arguments and environment. `tests/clients` runs real agents.
"""

import os
import re
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from proxy.conversation import json
from proxy.conversation.json import JsonObject
from proxy.dialects.lenient_json import as_list, as_object, member
from tests.fakes.command import processes_with, running_temper, temper
from tests.fakes.tool_loops import MODEL, right_backend
from tests.timeouts import TIMEOUT_SECONDS

_SCRIPT = """#!{python}
import json, os, pathlib, signal, sys
signal.signal(signal.SIGUSR1, lambda *_: sys.exit(5))
report = dict(arguments=sys.argv[1:], environment=dict(os.environ), files=dict(), pid=os.getpid())
for value in os.environ.values():
    if "temper-launch-" in value:
        for file in [pathlib.Path(value), *pathlib.Path(value).glob("*")]:
            if file.is_file():
                report["files"][file.name] = file.read_text()
pathlib.Path({report!r}).write_text(json.dumps(report))
print("started", flush=True)
if "wait" in sys.argv:
    signal.pause()
sys.exit(int(os.environ.get("EXIT_CODE", "0")))
"""


@dataclass(frozen=True)
class Home:
    """An empty home directory with agents on its PATH, and a backend."""

    folder: Path
    backend_url: str

    @property
    def environment(self) -> dict[str, str]:
        path = f"{self.folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
        return {"HOME": str(self.folder), "PATH": path, "XDG_CONFIG_HOME": "", "TERM": "dumb"}

    def add_agent(self, program: str) -> None:
        file = self.folder / "bin" / program
        file.parent.mkdir(exist_ok=True)
        report = str(self.folder / "report.json")
        file.write_text(_SCRIPT.format(python=sys.executable, report=report), encoding="utf-8")
        file.chmod(0o755)

    @property
    def report(self) -> JsonObject:
        """The arguments and environment of the agent, and its temporary files from Temper."""
        return as_object(json.parse((self.folder / "report.json").read_bytes()))


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    with right_backend() as backend:
        yield Home(tmp_path, backend.url)


PROGRAMS = {
    "claude-code": "claude",
    "codex": "codex",
    "opencode": "opencode",
    "qwen-code": "qwen",
    "crush": "crush",
    "aider": "aider",
    "goose": "goose",
}


@pytest.mark.parametrize("agent", PROGRAMS)
def test_an_agent_gets_its_configuration_and_its_exit_code_is_returned(
    home: Home, agent: str
) -> None:
    home.add_agent(PROGRAMS[agent])
    arguments = ("launch", agent, "--backend-url", home.backend_url, "--", "--flag", "a b")
    with temper(*arguments, **home.environment, EXIT_CODE="3") as process:
        output, errors = process.communicate()
    assert process.returncode == 3, errors
    assert output == "started\n"
    assert f"uses {MODEL}" in errors
    report = home.report
    assert as_list(report["arguments"])[-2:] == ["--flag", "a b"]
    urls = set(re.findall(r"http://127\.0\.0\.1:\d+", json.dump_text(report)))
    assert len(urls) == 1  # Temper's address; Temper has ended with the agent
    assert home.backend_url not in urls
    assert not processes_with(f"--backend-url {home.backend_url}")


def test_ctrl_c_does_not_end_temper_before_the_agent(home: Home) -> None:
    home.add_agent("claude")
    arguments = ("launch", "claude-code", "--backend-url", home.backend_url, "--", "wait")
    with temper(*arguments, **home.environment) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "started\n"
        process.send_signal(signal.SIGINT)  # a terminal sends Ctrl-C to the agent, too
        os.kill(int(str(home.report["pid"])), signal.SIGUSR1)  # exit with 5
        assert process.wait(TIMEOUT_SECONDS) == 5
    assert not processes_with(f"--backend-url {home.backend_url}")


def test_sigterm_to_launch_ends_the_agent_and_temper(home: Home) -> None:
    home.add_agent("claude")
    arguments = ("launch", "claude-code", "--backend-url", home.backend_url, "--", "wait")
    with temper(*arguments, **home.environment) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "started\n"
        process.terminate()
        process.wait(TIMEOUT_SECONDS)
    assert not processes_with(str(home.folder / "bin"))
    assert not processes_with(f"--backend-url {home.backend_url}")


def test_launching_a_program_that_is_not_installed_is_an_error_with_the_install_command(
    home: Home,
) -> None:
    arguments = ("launch", "crush", "--backend-url", home.backend_url)
    with temper(*arguments, **{**home.environment, "PATH": str(home.folder)}) as process:
        _, errors = process.communicate()
    assert process.returncode == 1
    assert "crush is not on the PATH. Install it: npm install -g @charmland/crush" in errors


def test_an_unknown_model_is_an_error_that_lists_the_known_models(home: Home) -> None:
    home.add_agent("codex")
    arguments = ("launch", "codex", "--backend-url", home.backend_url, "--name", "other")
    with temper(*arguments, **home.environment) as process:
        _, errors = process.communicate()
    assert process.returncode == 1
    assert f"the model 'other' does not exist. Available: {MODEL}" in errors


def test_launch_can_print_install_and_remove_the_settings_of_an_agent(home: Home) -> None:
    home.add_agent("claude")
    original = b'{"env": {"MINE": "1"}}'
    settings = home.folder / ".claude" / "settings.json"
    settings.parent.mkdir()
    settings.write_bytes(original)
    flags = ("--backend-url", home.backend_url)
    with running_temper(*flags, environment={}) as url:
        port = {"TEMPER_SERVER__PORT": url.rpartition(":")[2]}

        def launch(*arguments: str) -> str:
            with temper("launch", "claude-code", *arguments, **home.environment, **port) as process:
                output, errors = process.communicate()
            assert process.returncode == 0, errors
            return output

        assert launch() == "started\n"
        assert member(home.report, "environment", "ANTHROPIC_BASE_URL") == url
        assert f"export ANTHROPIC_BASE_URL={url}\n" in launch("--print")
        assert f"Written: {settings}" in launch("--install")
        installed = as_object(json.parse(settings.read_bytes()))
        assert member(installed, "env", "ANTHROPIC_MODEL") == MODEL
        assert member(installed, "env", "MINE") == "1"
    assert f"Restored: {settings}" in launch("--remove")
    assert settings.read_bytes() == original
    assert "Nothing to remove" in launch("--remove")


def test_launch_install_without_a_running_temper_is_an_error_and_writes_nothing(home: Home) -> None:
    environment = {**home.environment, "TEMPER_SERVER__PORT": "9"}
    with temper("launch", "codex", "--install", **environment) as process:
        _, errors = process.communicate()
    assert process.returncode == 1
    assert "no Temper is running at http://127.0.0.1:9. Start it with temper serve." in errors
    assert not (home.folder / ".codex").exists()
