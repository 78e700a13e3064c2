"""A real llama-server in Temper's care: crashes, restarts, failures, strangers, and the end."""

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
from tests.fakes.front import PLAIN
from tests.patience import PATIENCE_SECONDS, wait_until

# A server that does not begin before the gate is open; then it becomes the embedded one.
GATED = """#!/bin/sh
while [ ! -e "{gate}" ]; do sleep 0.02; done
exec "{python}" -P -m proxy.processes.embedded "$@"
"""


@dataclass
class Served:
    """A running Temper with a server of its own."""

    process: subprocess.Popen[str]
    url: str
    model: Path

    def post(self, words: str, *, stream: bool = False) -> httpx.Response:
        body = {"messages": [{"role": "user", "content": words}], "stream": stream}
        path = f"{self.url}/v1/chat/completions"
        return httpx.post(path, json=body, timeout=PATIENCE_SECONDS, trust_env=False, verify=PLAIN)

    def get(self, path: str) -> httpx.Response:
        return httpx.get(self.url + path, timeout=PATIENCE_SECONDS, trust_env=False, verify=PLAIN)

    @contextmanager
    def open_stream(self) -> Iterator[Iterator[str]]:
        """Have a reply without an end; yields its lines once it has begun."""
        messages = [{"role": "user", "content": "[[forever]]"}]
        body = {"messages": messages, "stream": True, "max_tokens": 1_000_000}
        path = f"{self.url}/v1/chat/completions"
        with (
            httpx.Client(timeout=PATIENCE_SECONDS, trust_env=False, verify=PLAIN) as client,
            client.stream("POST", path, json=body) as response,
        ):
            lines = response.iter_lines()
            next(line for line in lines if re.search('"content":"[^"]', line))
            yield lines

    @property
    def servers(self) -> list[int]:
        """The processes of its llama-server."""
        found = []
        for file in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                command = file.read_bytes().split(b"\0")
            except OSError:  # it has just ended
                continue
            if str(self.model).encode() in command and b"-np" in command:
                found.append(int(file.parent.name))
        return found

    def kill_server(self) -> None:
        (server,) = self.servers
        os.kill(server, signal.SIGKILL)

    def until(self, path: str, status: int) -> None:
        """Ask until that is the answer."""
        wait_until(lambda: self.get(path).status_code == status)

    @property
    def is_listening(self) -> bool:
        """Whether new clients are welcome."""
        address = httpx.URL(self.url)
        with socket.socket() as probe:
            return probe.connect_ex((address.host, address.port or 0)) == 0

    def stop(self) -> str:
        """End it as an operator does; returns what it has said."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.communicate()[1]


@pytest.fixture
def model(scripted_model: Path, tmp_path: Path) -> Path:
    """The scripted model under a name by which its server can be told from others."""
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
    """What has to exist before the program in `gated` begins."""
    return tmp_path / "gate"


@pytest.fixture
def gated(tmp_path: Path, gate: Path) -> Path:
    program = tmp_path / "my-llama-server"
    program.write_text(GATED.format(gate=gate, python=sys.executable))
    program.chmod(0o755)
    return program


@pytest.mark.fault("F13")
@pytest.mark.fault("F25")
def test_temper_answers_while_the_model_loads_and_requests_wait_for_it(
    model: Path, gate: Path, gated: Path
) -> None:
    with served(model, TEMPER_MODEL__SERVER=str(gated)) as own, ThreadPoolExecutor() as threads:
        loading = own.get("/health")
        assert loading.status_code == 503
        assert loading.json()["error"]["message"] == "Loading model"
        assert own.get("/readyz").json()["status"] == "loading"
        assert own.get("/v1/models").json()["data"][0]["id"] == "own"
        waiting = threads.submit(own.post, "[[plain]] hello")
        gate.touch()
        assert waiting.result().status_code == 200
        assert own.get("/health").status_code == 200
        own.stop()


@pytest.mark.fault("F13")
def test_a_wait_for_the_model_has_an_end(model: Path, gated: Path) -> None:
    waits = {"TEMPER_MODEL__SERVER": str(gated), "TEMPER_BACKEND__LOAD_WAIT_SECONDS": "0.1"}
    with served(model, **waits) as own:
        answer = own.post("hello")
        own.stop()
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
    assert answer.json()["error"]["code"] == "model_loading"


@pytest.mark.deep
@pytest.mark.fault("F52")
def test_two_hundred_clients_that_wait_for_a_start_are_all_served_by_it(
    model: Path, gate: Path, gated: Path
) -> None:
    # nobody reads the log lines meanwhile, and so many fill a pipe
    quiet = {"TEMPER_LOGGING__FORMAT": "text", "TEMPER_LOGGING__LEVEL": "warning"}
    environment = {"TEMPER_MODEL__SERVER": str(gated), **quiet}
    with served(model, **environment) as own, ThreadPoolExecutor(200) as threads:
        waiting = [threads.submit(own.post, "[[plain]] hello") for _ in range(200)]
        gate.touch()
        assert {one.result().status_code for one in waiting} == {200}
        said = own.stop()
    assert said.count("llama-server: starting") == 1


@pytest.mark.fault("F01")
@pytest.mark.fault("F20")
def test_a_crash_amid_a_stream_is_told_within_a_second_and_the_server_comes_back(
    model: Path,
) -> None:
    with served(model) as own:
        took: list[float] = []
        for _ in range(3):  # of which the machine may disturb one or two
            with own.open_stream() as lines:
                own.kill_server()
                killed = time.monotonic()
                rest = [line for line in lines if line]
                took.append(time.monotonic() - killed)
            error = json.loads(rest[-1].removeprefix("data: "))["error"]
            assert error["code"] == "backend_unavailable"
            assert "data: [DONE]" not in rest
            answer = own.post("[[plain]] hello")
            assert answer.status_code == 200, answer.text  # it waits for the restart
        assert min(took) < 1
        said = own.stop()
    assert own.process.returncode == 0
    assert said.count("was killed (SIGKILL)") == 3
    assert processes_with(str(model)) == []


@pytest.mark.deep
@pytest.mark.fault("F20")
def test_a_crash_loop_is_left_alone_with_a_reason(model: Path) -> None:
    with served(model) as own:
        for _ in range(5):
            own.until("/health", 200)
            own.kill_server()
            own.until("/readyz", 503)
        wait_until(lambda: own.get("/readyz").json()["status"] == "unreachable")
        answer = own.post("hello")
        assert own.servers == []
        said = own.stop()
    assert (answer.status_code, answer.headers["x-should-retry"]) == (503, "false")
    assert "is down: llama-server/own was killed" in answer.json()["error"]["message"]
    assert "giving up after 4 restarts" in said
    assert own.process.returncode == 0


@pytest.mark.fault("F24")
@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_model_that_cannot_be_loaded_ends_it_with_the_reason(
    scripted_model: Path, tmp_path: Path, workers: str
) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(scripted_model.read_bytes()[:600_000])
    with temper("serve", "--model", str(broken), "--port", "0", "--workers", workers) as process:
        _, said = process.communicate()
    assert process.returncode == 1
    assert said.count("llama-server: starting") == 1
    assert "temper: llama-server found the model file cut off: download it again\n" in said
    assert "Traceback" not in said
    assert processes_with(str(broken)) == []


@pytest.mark.fault("F24")
def test_an_argument_that_the_server_does_not_know_is_named(model: Path) -> None:
    extra = {"TEMPER_MODEL__EXTRA_ARGUMENTS": '["--warp", "9"]'}
    with temper("serve", "--model", str(model), "--port", "0", **extra) as process:
        _, said = process.communicate()
    assert process.returncode == 1
    assert "--warp" in said.splitlines()[-1]
    assert "extra_arguments" in said.splitlines()[-1]


@pytest.mark.fault("F22")
def test_a_port_that_a_stranger_holds_is_refused_and_a_free_one_is_used(model: Path) -> None:
    port = str(free_port())  # or another test might be given it meanwhile
    with socket.create_server(("127.0.0.1", int(port))):
        arguments = ("serve", "--model", str(model), "--port", "0")
        with temper(*arguments, TEMPER_MODEL__PORT=port) as process:
            _, said = process.communicate()
    assert process.returncode == 1
    assert f"port {port} (model.port) cannot be used" in said
    with served(model, TEMPER_MODEL__PORT=port) as own:
        assert own.post("[[plain]] hello").status_code == 200
        health = httpx.get(
            f"http://127.0.0.1:{port}/health", trust_env=False, timeout=PATIENCE_SECONDS
        )
        assert health.status_code == 200
        own.stop()


@pytest.mark.deep
@pytest.mark.fault("F23")
def test_open_streams_get_an_error_when_their_time_is_over(model: Path) -> None:
    with served(model, TEMPER_SERVER__GRACE_SECONDS="0.1") as own:
        with own.open_stream() as lines:
            own.process.send_signal(signal.SIGTERM)
            rest = [line for line in lines if line]
        own.process.communicate()
    assert "shutting down" in json.loads(rest[-1].removeprefix("data: "))["error"]["message"]
    assert own.process.returncode == 0
    assert processes_with(str(model)) == []


@pytest.mark.fault("F23")
def test_a_second_signal_ends_it_at_once(model: Path) -> None:
    with served(model, TEMPER_SERVER__GRACE_SECONDS="600") as own:
        with own.open_stream() as lines:
            own.process.send_signal(signal.SIGTERM)
            wait_until(lambda: not own.is_listening)
            own.process.send_signal(signal.SIGTERM)
            with suppress(httpx.TransportError):
                list(lines)
        own.process.communicate()
    assert own.process.returncode == 0
    assert processes_with(str(model)) == []


@pytest.mark.fault("F21")
@pytest.mark.parametrize("workers", ["1", "2"])
def test_no_server_is_left_when_temper_is_killed(model: Path, workers: str) -> None:
    with served(model, "--workers", workers) as own:
        own.until("/health", 200)
        own.process.kill()
        own.process.wait()
        wait_until(lambda: not processes_with(str(model)))


@pytest.mark.deep
@pytest.mark.fault("F20")
def test_workers_share_a_server_and_hear_of_its_crashes(model: Path) -> None:
    with served(model, "--workers", "2") as own:
        assert own.post("[[plain]] hello").status_code == 200
        assert len(own.servers) == 1
        own.kill_server()
        own.until("/readyz", 503)
        own.until("/readyz", 200)
        answers = [own.post("[[plain]] hello") for _ in range(4)]
        said = own.stop()
    assert {answer.status_code for answer in answers} == {200}
    assert said.count("was killed (SIGKILL)") == 1
    assert own.process.returncode == 0
    assert processes_with(str(model)) == []
