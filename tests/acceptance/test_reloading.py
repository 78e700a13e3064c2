"""Reloading by SIGHUP, with and without workers, and a real llama-server."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import httpx
import pytest

from benchmarks.load.client import Target
from benchmarks.load.generator import Batch, Effort, send
from benchmarks.load.replies import Behavior
from benchmarks.load.subjects import mock_backend
from benchmarks.load.workloads import Workload
from proxy.conversation import json
from proxy.processes.process import RunningServer
from tests.examples import mostly_deep
from tests.fakes.quick_start import COMMAND, Program
from tests.fakes.tool_servers import PROGRAM
from tests.timeouts import TIMEOUT_SECONDS, wait_until

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there is no such signal")


@contextmanager
def serving(config: Path, log: Path, *flags: str) -> Iterator[tuple[int, str]]:
    """Run `temper serve` with a configuration; yields its process and its address."""
    command = [*COMMAND, "serve", "--json", "--config", str(config), *flags]
    with (
        log.open("wb") as output,
        Program(command, stdout=subprocess.PIPE, stderr=output) as process,
    ):
        assert process.stdout is not None
        try:
            announced = json.parse(process.stdout.readline())
            assert isinstance(announced, dict)
            yield process.pid, str(announced["url"])
        finally:
            process.terminate()
            assert process.wait(TIMEOUT_SECONDS) == 0


def status(url: str, key: str) -> int:
    """Return the status of `/v1/models` with a key; 0 while the server is unreachable."""
    try:
        headers = {"authorization": f"Bearer {key}"}
        return httpx.get(
            f"{url}/v1/models", headers=headers, trust_env=False, timeout=TIMEOUT_SECONDS
        ).status_code
    except httpx.TransportError:
        return 0


@pytest.mark.parametrize("trigger", mostly_deep(["--watch", "SIGHUP"]))
@pytest.mark.parametrize("workers", mostly_deep([1, 2]))
def test_a_reload_loads_new_keys_and_ignores_an_invalid_file(
    llama_server: RunningServer, tmp_path: Path, workers: int, trigger: str
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
    flags = [trigger] if trigger == "--watch" else []
    with serving(config, log, *flags) as (pid, url):

        def reload() -> None:
            if trigger == "SIGHUP":
                os.kill(pid, signal.SIGHUP)

        wait_until(lambda: status(url, "first") == 200)
        configure("second", "unheard_of = 1")
        reload()
        wait_until(lambda: "server.unheard_of" in log.read_text(encoding="utf-8"))
        assert status(url, "first") == 200
        configure("third")
        reload()
        wait_until(lambda: status(url, "third") == 200)
        wait_until(lambda: status(url, "first") == 401)


def test_only_changed_tool_servers_restart_on_reload(
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
        wait_until(lambda: all(noted(name, "started") for name in ("stays", "changes")))
        wait_until(lambda: noted("goes", "started") == 1)
        configure(stays="a", changes="b", comes="a")
        os.kill(pid, signal.SIGHUP)
        wait_until(lambda: noted("comes", "started") == 1)
        wait_until(lambda: noted("changes", "started") == 2)
        wait_until(lambda: noted("goes", "input ended") == 1)
        assert (noted("stays", "started"), noted("stays", "input ended")) == (1, 0)


@pytest.mark.deep
def test_twenty_reloads_break_none_of_256_open_streams(tmp_path: Path) -> None:
    config, log = tmp_path / "temper.toml", tmp_path / "log"
    workload = Workload(Behavior("prose", 60, 20))
    with mock_backend(tmp_path) as backend, ThreadPoolExecutor(1) as thread:
        config.write_text(f"[server]\nport = 0\n[backend]\nurl = '{backend}'\n", encoding="utf-8")
        with serving(config, log) as (pid, url):
            streaming = thread.submit(
                lambda: asyncio.run(send(Target(url), workload, Effort(256, at_once=256)))
            )
            for count in range(1, 21):
                os.kill(pid, signal.SIGHUP)
                wait_until(partial(_has_reloaded, log, count))
            batch = streaming.result(TIMEOUT_SECONDS)
    assert not batch.problems
    assert len(batch.answers) == 256


@pytest.mark.deep
@pytest.mark.fault("F111")
def test_reloads_of_workers_lose_no_request_and_break_no_stream(tmp_path: Path) -> None:
    config, log = tmp_path / "temper.toml", tmp_path / "log"
    quick, slow = Workload(Behavior("prose", 3, 1)), Workload(Behavior("prose", 100, 20))
    with mock_backend(tmp_path) as backend, ThreadPoolExecutor(2) as threads:

        def submit(workload: Workload, effort: Effort) -> Future[Batch]:
            return threads.submit(lambda: asyncio.run(send(Target(url), workload, effort)))

        config.write_text(
            f"[server]\nport = 0\nworkers = 2\ngrace_seconds = 300\n[backend]\nurl = '{backend}'\n",
            encoding="utf-8",
        )
        with serving(config, log) as (pid, url):
            wait_until(lambda: status(url, "none") == 200)
            streams = submit(slow, Effort(16, at_once=16))
            requests = submit(quick, Effort(600, at_once=8, ramp=2))
            # an open dashboard does not delay the end of a worker
            with httpx.stream("GET", f"{url}/ui/api/events", trust_env=False) as dashboard:
                assert dashboard.status_code == 200
                for count in range(1, 4):
                    os.kill(pid, signal.SIGHUP)
                    wait_until(partial(_has_replaced, log, count))
            os.kill(pid, signal.SIGHUP)  # Temper may end before all workers are replaced
            wait_until(partial(_has_reloaded, log, 4))
            batches = streams.result(TIMEOUT_SECONDS), requests.result(TIMEOUT_SECONDS)
    assert [batch.problems for batch in batches] == [[], []]
    assert [len(batch.answers) for batch in batches] == [16, 600]


def _has_replaced(log: Path, times: int) -> bool:
    return log.read_text(encoding="utf-8").count("all workers use the new") >= times


def _has_reloaded(log: Path, times: int) -> bool:
    return log.read_text(encoding="utf-8").count("configuration reloaded") >= times


def test_serve_watch_without_a_settings_file_exits_with_2(tmp_path: Path) -> None:
    command = [*COMMAND, "serve", "--watch", "--backend-url", "http://127.0.0.1:9"]
    with Program(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        assert process.wait(TIMEOUT_SECONDS) == 2
        assert process.stderr is not None
        assert "--watch requires a settings file" in process.stderr.read()
