"""A real llama-server that Temper supervises: crashes, restarts, failures and shutdown."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from benchmarks.load.processes import free_port
from tests.fakes.command import processes_with, temper
from tests.fakes.running_proxy import PLAIN
from tests.timeouts import TIMEOUT_SECONDS, wait_until

# A program that waits for the gate file, then executes the embedded llama-server.
GATED = """#!/bin/sh
while [ ! -e "{gate}" ]; do sleep 0.02; done
exec "{python}" -P -m proxy.processes.embedded "$@"
"""


@dataclass
class Served:
    """A running Temper with a managed server."""

    process: subprocess.Popen[str]
    url: str
    model: Path

    def post(self, words: str, *, stream: bool = False) -> httpx.Response:
        body = {"messages": [{"role": "user", "content": words}], "stream": stream}
        path = f"{self.url}/v1/chat/completions"
        return httpx.post(path, json=body, timeout=TIMEOUT_SECONDS, trust_env=False, verify=PLAIN)

    def get(self, path: str) -> httpx.Response:
        return httpx.get(self.url + path, timeout=TIMEOUT_SECONDS, trust_env=False, verify=PLAIN)

    @contextmanager
    def open_stream(self) -> Iterator[Iterator[str]]:
        """Request an endless reply; yields its lines after the first one has arrived."""
        messages = [{"role": "user", "content": "[[forever]]"}]
        body = {"messages": messages, "stream": True, "max_tokens": 1_000_000}
        path = f"{self.url}/v1/chat/completions"
        with (
            httpx.Client(timeout=TIMEOUT_SECONDS, trust_env=False, verify=PLAIN) as client,
            client.stream("POST", path, json=body) as response,
        ):
            lines = response.iter_lines()
            next(line for line in lines if re.search('"content":"[^"]', line))
            yield lines

    @property
    def servers(self) -> list[int]:
        """The processes of its llama-server."""
        processes = []
        for file in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                command = file.read_bytes().split(b"\0")
            except OSError:  # the process has ended meanwhile
                continue
            if str(self.model).encode() in command and b"-np" in command:
                processes.append(int(file.parent.name))
        return processes

    def kill_server(self) -> None:
        (server,) = self.servers
        os.kill(server, signal.SIGKILL)

    def until(self, path: str, status: int) -> None:
        """Poll a path until it returns the status."""
        wait_until(lambda: self.get(path).status_code == status)

    @property
    def is_listening(self) -> bool:
        """Return whether Temper accepts connections."""
        address = httpx.URL(self.url)
        with socket.socket() as probe:
            return probe.connect_ex((address.host, address.port or 0)) == 0

    def stop(self) -> str:
        """Send SIGTERM to Temper, as an operator does; return its output."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.communicate()[1]


@pytest.fixture
def model(scripted_model: Path, tmp_path: Path) -> Path:
    """The scripted model under a unique name, by which its server process can be identified."""
    path = tmp_path / "own.gguf"
    path.symlink_to(scripted_model)
    return path


@contextmanager
def served(model: Path, *flags: str, **environment: str) -> Iterator[Served]:
    arguments = ("serve", "--model", str(model), "--port", "0", "--json", *flags)
    with temper(*arguments, **environment) as process:
        assert process.stdout is not None
        yield Served(process, json.loads(process.stdout.readline())["url"], model)


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    """The file that the program in `gated` waits for."""
    return tmp_path / "gate"


@pytest.fixture
def gated(tmp_path: Path, gate: Path) -> Path:
    program = tmp_path / "my-llama-server"
    program.write_text(GATED.format(gate=gate, python=sys.executable))
    program.chmod(0o755)
    return program


@pytest.mark.fault("F13")
@pytest.mark.fault("F25")
def test_requests_wait_while_the_model_loads(model: Path, gate: Path, gated: Path) -> None:
    with served(model, TEMPER_MODEL__SERVER=str(gated)) as temper, ThreadPoolExecutor() as threads:
        loading = temper.get("/health")
        assert loading.status_code == 503
        assert loading.json()["error"]["message"] == "Loading model"
        assert temper.get("/readyz").json()["status"] == "loading"
        assert temper.get("/v1/models").json()["data"][0]["id"] == "own"
        waiting = threads.submit(temper.post, "[[plain]] hello")
        gate.touch()
        assert waiting.result().status_code == 200
        assert temper.get("/health").status_code == 200
        temper.stop()


@pytest.mark.fault("F13")
def test_a_request_that_waits_too_long_for_loading_gets_503_with_retry_after(
    model: Path, gated: Path
) -> None:
    waits = {"TEMPER_MODEL__SERVER": str(gated), "TEMPER_BACKEND__LOAD_WAIT_SECONDS": "0.1"}
    with served(model, **waits) as temper:
        answer = temper.post("hello")
        temper.stop()
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
    assert answer.json()["error"]["code"] == "model_loading"


@pytest.mark.deep
@pytest.mark.fault("F52")
def test_two_hundred_waiting_clients_are_served_after_one_start(
    model: Path, gate: Path, gated: Path
) -> None:
    # the log lines of 200 requests would fill the pipe, which the test reads only at the end
    quiet = {"TEMPER_LOGGING__FORMAT": "text", "TEMPER_LOGGING__LEVEL": "warning"}
    environment = {"TEMPER_MODEL__SERVER": str(gated), **quiet}
    with served(model, **environment) as temper, ThreadPoolExecutor(200) as threads:
        waiting = [threads.submit(temper.post, "[[plain]] hello") for _ in range(200)]
        gate.touch()
        assert {future.result().status_code for future in waiting} == {200}
        output = temper.stop()
    assert output.count("llama-server: starting") == 1


@pytest.mark.fault("F01")
@pytest.mark.fault("F20")
def test_a_server_crash_ends_the_stream_with_an_error_and_the_server_restarts(
    model: Path,
) -> None:
    with served(model) as temper:
        took: list[float] = []
        for _ in range(3):  # on a busy machine one or two of three measurements may be too slow
            with temper.open_stream() as lines:
                temper.kill_server()
                killed = time.monotonic()
                rest = [line for line in lines if line]
                took.append(time.monotonic() - killed)
            error = json.loads(rest[-1].removeprefix("data: "))["error"]
            assert error["code"] == "backend_unavailable"
            assert "data: [DONE]" not in rest
            answer = temper.post("[[plain]] hello")
            assert answer.status_code == 200, answer.text  # the request waits for the restart
        assert min(took) < 1
        output = temper.stop()
    assert temper.process.returncode == 0
    assert output.count("was killed (SIGKILL)") == 3
    assert processes_with(str(model)) == []


@pytest.mark.deep
@pytest.mark.fault("F20")
def test_after_repeated_crashes_the_server_stays_down_and_requests_get_the_reason(
    model: Path,
) -> None:
    with served(model) as temper:
        for _ in range(5):
            temper.until("/health", 200)
            temper.kill_server()
            temper.until("/readyz", 503)
        wait_until(lambda: temper.get("/readyz").json()["status"] == "unreachable")
        answer = temper.post("hello")
        assert temper.servers == []
        output = temper.stop()
    assert (answer.status_code, answer.headers["x-should-retry"]) == (503, "false")
    assert "is down: llama-server/own was killed" in answer.json()["error"]["message"]
    assert "giving up after 4 restarts" in output
    assert temper.process.returncode == 0


@pytest.mark.fault("F24")
@pytest.mark.parametrize("workers", ["1", "2"])
def test_serve_exits_with_the_reason_if_the_model_file_is_truncated(
    scripted_model: Path, tmp_path: Path, workers: str
) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(scripted_model.read_bytes()[:600_000])
    with temper("serve", "--model", str(broken), "--port", "0", "--workers", workers) as process:
        _, errors = process.communicate()
    assert process.returncode == 1
    assert errors.count("llama-server: starting") == 1
    assert "temper: llama-server found an incomplete model file: download it again\n" in errors
    assert "Traceback" not in errors
    assert processes_with(str(broken)) == []


@pytest.mark.fault("F24")
def test_an_unknown_llama_server_argument_is_named_in_the_error(model: Path) -> None:
    extra = {"TEMPER_MODEL__EXTRA_ARGUMENTS": '["--warp", "9"]'}
    with temper("serve", "--model", str(model), "--port", "0", **extra) as process:
        _, errors = process.communicate()
    assert process.returncode == 1
    assert "--warp" in errors.splitlines()[-1]
    assert "extra_arguments" in errors.splitlines()[-1]


@pytest.mark.fault("F22")
def test_model_port_is_an_error_if_the_port_is_occupied_and_used_if_it_is_free(model: Path) -> None:
    port = str(free_port())  # a fixed port might be in use by another test
    with socket.create_server(("127.0.0.1", int(port))):
        arguments = ("serve", "--model", str(model), "--port", "0")
        with temper(*arguments, TEMPER_MODEL__PORT=port) as process:
            _, errors = process.communicate()
    assert process.returncode == 1
    assert f"port {port} (model.port) cannot be used" in errors
    with served(model, TEMPER_MODEL__PORT=port) as replacement:
        assert replacement.post("[[plain]] hello").status_code == 200
        health = httpx.get(
            f"http://127.0.0.1:{port}/health", trust_env=False, timeout=TIMEOUT_SECONDS
        )
        assert health.status_code == 200
        replacement.stop()


@pytest.mark.deep
@pytest.mark.fault("F23")
def test_at_shutdown_open_streams_get_an_error_after_the_grace_period(model: Path) -> None:
    with served(model, TEMPER_SERVER__GRACE_SECONDS="0.1") as temper:
        with temper.open_stream() as lines:
            temper.process.send_signal(signal.SIGTERM)
            rest = [line for line in lines if line]
        temper.process.communicate()
    assert "shutting down" in json.loads(rest[-1].removeprefix("data: "))["error"]["message"]
    assert temper.process.returncode == 0
    assert processes_with(str(model)) == []


@pytest.mark.fault("F23")
def test_a_second_sigterm_ends_temper_without_waiting_for_open_streams(model: Path) -> None:
    with served(model, TEMPER_SERVER__GRACE_SECONDS="600") as temper:
        with temper.open_stream() as lines:
            temper.process.send_signal(signal.SIGTERM)
            wait_until(lambda: not temper.is_listening)
            temper.process.send_signal(signal.SIGTERM)
            with suppress(httpx.TransportError):
                list(lines)
        temper.process.communicate()
    assert temper.process.returncode == 0
    assert processes_with(str(model)) == []


@pytest.mark.fault("F21")
@pytest.mark.parametrize("workers", ["1", "2"])
def test_killing_temper_ends_its_llama_server(model: Path, workers: str) -> None:
    with served(model, "--workers", workers) as temper:
        temper.until("/health", 200)
        temper.process.kill()
        temper.process.wait()
        wait_until(lambda: not processes_with(str(model)))


@pytest.mark.deep
@pytest.mark.fault("F20")
def test_two_workers_share_one_server_and_its_crash_is_logged_once(model: Path) -> None:
    with served(model, "--workers", "2") as temper:
        assert temper.post("[[plain]] hello").status_code == 200
        assert len(temper.servers) == 1
        temper.kill_server()
        temper.until("/readyz", 503)
        temper.until("/readyz", 200)
        answers = [temper.post("[[plain]] hello") for _ in range(4)]
        output = temper.stop()
    assert {answer.status_code for answer in answers} == {200}
    assert output.count("was killed (SIGKILL)") == 1
    assert temper.process.returncode == 0
    assert processes_with(str(model)) == []
