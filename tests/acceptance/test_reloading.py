"""SIGHUP at a `temper serve`, alone and with workers, in front of a real llama-server."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from proxy.conversation import json
from proxy.processes.process import RunningServer
from tests.examples import mostly_deep
from tests.fakes.quick_start import COMMAND, Program
from tests.fakes.tool_servers import PROGRAM
from tests.patience import PATIENCE_SECONDS, wait_until

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there is no such signal")


@contextmanager
def serving(config: Path, log: Path) -> Iterator[tuple[int, str]]:
    """Run `temper serve` with a configuration; yields its process and its address."""
    command = [*COMMAND, "serve", "--json", "--config", str(config)]
    with (
        log.open("wb") as written,
        Program(command, stdout=subprocess.PIPE, stderr=written) as process,
    ):
        assert process.stdout is not None
        try:
            announced = json.parse(process.stdout.readline())
            assert isinstance(announced, dict)
            yield process.pid, str(announced["url"])
        finally:
            process.terminate()
            assert process.wait(PATIENCE_SECONDS) == 0


def status(url: str, key: str) -> int:
    """Ask for the models with a key; 0 while nobody answers."""
    try:
        headers = {"authorization": f"Bearer {key}"}
        return httpx.get(
            f"{url}/v1/models", headers=headers, trust_env=False, timeout=PATIENCE_SECONDS
        ).status_code
    except httpx.TransportError:
        return 0


@pytest.mark.parametrize("workers", mostly_deep([1, 2]))
def test_a_new_key_opens_after_sighup_and_a_wrong_file_changes_nothing(
    llama_server: RunningServer, tmp_path: Path, workers: int
) -> None:
    config = tmp_path / "temper.toml"

    def configure(key: str, more: str = "") -> None:
        config.write_text(
            f"[server]\nport = 0\nworkers = {workers}\napi_key = '{key}'\n{more}\n"
            f"[backend]\nurl = '{llama_server.base_url}'\napi_key = '{llama_server.api_key}'\n",
            encoding="utf-8",
        )

    log = tmp_path / "log"
    configure("first")
    with serving(config, log) as (pid, url):
        wait_until(lambda: status(url, "first") == 200)
        configure("second", "unheard_of = 1")
        os.kill(pid, signal.SIGHUP)
        wait_until(lambda: "server.unheard_of" in log.read_text(encoding="utf-8"))
        assert status(url, "first") == 200
        configure("third")
        os.kill(pid, signal.SIGHUP)
        wait_until(lambda: status(url, "third") == 200)
        wait_until(lambda: status(url, "first") == 401)


def test_of_tool_servers_only_those_start_anew_that_are_described_anew(
    llama_server: RunningServer, tmp_path: Path
) -> None:
    config = tmp_path / "temper.toml"

    def configure(**commands: str) -> None:
        config.write_text(
            f"[server]\nport = 0\n[backend]\nurl = '{llama_server.base_url}'\n"
            f"api_key = '{llama_server.api_key}'\n"
            + "".join(
                f"[mcp.{name}]\ntools = ['echo']\nprefix = '{name}_'\n"
                f"command = ['{sys.executable}', '-P', '{PROGRAM}', '{option}']\n"
                f"env = {{LOG = '{tmp_path / name}'}}\n"
                for name, option in commands.items()
            ),
            encoding="utf-8",
        )

    def noted(name: str, word: str) -> int:
        log = tmp_path / name
        return log.read_text(encoding="utf-8").count(word) if log.exists() else 0

    configure(stays="a", changes="a", goes="a")
    with serving(config, tmp_path / "log") as (pid, _):
        wait_until(lambda: all(noted(one, "started") for one in ("stays", "changes")))
        wait_until(lambda: noted("goes", "started") == 1)
        configure(stays="a", changes="b", comes="a")
        os.kill(pid, signal.SIGHUP)
        wait_until(lambda: noted("comes", "started") == 1)
        wait_until(lambda: noted("changes", "started") == 2)
        wait_until(lambda: noted("goes", "input ended") == 1)
        assert (noted("stays", "started"), noted("stays", "input ended")) == (1, 0)
