"""The `temper` command in a separate process, supervised so that no test hangs."""

import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from proxy.conversation import json
from proxy.processes.process import RunningServer
from tests.fakes.quick_start import COMMAND, Program
from tests.timeouts import TIMEOUT_SECONDS


@contextmanager
def temper(*arguments: str, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """Run `temper`; kill it at the end of the block, or after a time limit."""
    with Program(
        [*COMMAND, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        env={**os.environ, "PYTHONIOENCODING": "utf-8", **environment},
    ) as process:
        watchdog = threading.Timer(TIMEOUT_SECONDS, process.kill)
        watchdog.start()
        try:
            yield process
        finally:
            watchdog.cancel()
            process.kill()


def ended(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `temper` to its end, without a terminal."""
    with temper(*arguments) as process:
        output, complained = process.communicate()
    return subprocess.CompletedProcess(arguments, process.returncode, output, complained)


@contextmanager
def running_temper(*flags: str, environment: dict[str, str]) -> Iterator[str]:
    """Run `temper serve` on a free port and yield its URL; end it as `docker stop` does."""
    command = [*COMMAND, "serve", "--port", "0", "--json", *flags]
    surroundings = {**os.environ, **environment}
    with Program(command, stdout=subprocess.PIPE, env=surroundings) as process:
        assert process.stdout is not None
        try:
            announced = json.parse(process.stdout.readline())
            assert isinstance(announced, dict)
            yield str(announced["url"])
        finally:
            process.terminate()
            assert process.wait(TIMEOUT_SECONDS) == 0


@contextmanager
def client_of_temper(server: RunningServer) -> Iterator[httpx.Client]:
    """Run Temper in front of a server, and yield a client of it."""
    environment = {"TEMPER_BACKEND__API_KEY": server.api_key}
    with (
        running_temper("--backend-url", server.base_url, environment=environment) as url,
        httpx.Client(base_url=url, timeout=TIMEOUT_SECONDS, trust_env=False) as client,
    ):
        yield client


def processes_with(argument: str) -> list[str]:
    """Return the command lines that contain `argument`; empty except on Linux."""
    matches: list[str] = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = file.read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
        except OSError:  # it has just ended
            continue
        if argument in command:
            matches.append(command)
    return matches
