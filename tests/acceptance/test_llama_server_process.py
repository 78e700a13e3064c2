"""A real llama-server process: its start, stop, crash and failures; no process may be leaked."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from proxy.errors import LaunchFailed, NeverBecameReady
from proxy.processes.launch import sampling_flags
from proxy.processes.llama_server import start_llama_server
from proxy.processes.process import RunningServer
from proxy.processes.start_progress import StartProgress
from proxy.profiles.profile import Sampling
from tests.fakes.llama import SLOTS, build_model, plan_for, serving
from tests.timeouts import TIMEOUT_SECONDS, wait_until

REPOSITORY = Path(__file__).parents[2]

# Starts a server, prints its address, and waits to be killed.
PARENT = """
import asyncio, sys
from pathlib import Path
from proxy.processes.llama_server import start_llama_server
from tests.fakes.llama import plan_for

async def main():
    async with start_llama_server(plan_for(Path(sys.argv[1]), context_tokens=16384)) as server:
        print(server.base_url, server.api_key, flush=True)
        await server.process.wait()

asyncio.run(main())
"""


def fetch(server: RunningServer, path: str) -> httpx.Response:
    headers = {"authorization": f"Bearer {server.api_key}"}
    return httpx.get(
        server.base_url + path, headers=headers, trust_env=False, timeout=TIMEOUT_SECONDS
    )


def is_listening(base_url: str) -> bool:
    url = httpx.URL(base_url)
    with socket.socket() as probe:
        return probe.connect_ex((url.host, url.port or 0)) == 0


def test_the_server_has_the_slots_and_the_context_that_were_planned(
    llama_server: RunningServer,
) -> None:
    slots = fetch(llama_server, "/slots").json()
    assert [slot["n_ctx"] for slot in slots] == [8192] * SLOTS
    assert fetch(llama_server, "/metrics").status_code == 200
    assert fetch(llama_server, "/v1/models").json()["data"][0]["id"] == "scripted"


def test_recommended_sampling_values_become_the_defaults_of_the_server(
    scripted_model: Path,
) -> None:
    published = Sampling(0.25, 0.5, 7, 0.125, 1.5, 0.75)
    plan = replace(plan_for(scripted_model), extra=sampling_flags(published))
    with serving(plan) as server:
        properties = fetch(server, "/props").json()
    defaults = properties["default_generation_settings"]["params"]
    names = ("temperature", "top_p", "top_k", "min_p", "repeat_penalty", "presence_penalty")
    assert [defaults[name] for name in names] == [0.25, 0.5, 7, 0.125, 1.5, 0.75]


@pytest.mark.fault("F22")
def test_the_server_rejects_requests_without_its_key_and_sends_no_cors_headers(
    llama_server: RunningServer,
) -> None:
    assert (
        httpx.get(
            llama_server.base_url + "/slots", trust_env=False, timeout=TIMEOUT_SECONDS
        ).status_code
        == 401
    )
    headers = {"authorization": f"Bearer {llama_server.api_key}", "origin": "https://example.com"}
    answer = httpx.get(
        llama_server.base_url + "/slots", headers=headers, trust_env=False, timeout=TIMEOUT_SECONDS
    )
    assert "access-control-allow-origin" not in answer.headers
    assert fetch(llama_server, "/").status_code == 404


def test_the_key_is_not_on_the_command_line(
    llama_server: RunningServer,
) -> None:
    assert llama_server.api_key not in repr(llama_server)
    assert llama_server.api_key not in " ".join(plan_for(Path("model.gguf")).command())


def test_a_start_reports_its_stages_and_a_stop_leaves_no_process(
    scripted_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    progress: list[StartProgress] = []

    async def start_and_stop() -> RunningServer:
        plan = plan_for(scripted_model)
        async with start_llama_server(plan, on_stage=progress.append) as server:
            assert fetch(server, "/health").status_code == 200
            # on a busy machine, the server may need more than the usual 3 s to end
            monkeypatch.setattr(server.process, "_grace_seconds", TIMEOUT_SECONDS)
        assert await server.process.wait() == 0
        return server

    server = asyncio.run(start_and_stop())
    assert [step.stage for step in progress] == ["starting", "loading", "ready"]
    assert not is_listening(server.base_url)
    with pytest.raises(ProcessLookupError):
        os.kill(server.process.pid, 0)


def test_a_killed_server_is_reported_with_its_exit_code_and_last_log_lines(
    scripted_model: Path,
) -> None:
    async def kill() -> tuple[int, tuple[str, ...]]:
        async with start_llama_server(plan_for(scripted_model)) as server:
            os.kill(server.process.pid, signal.SIGKILL)
            async with asyncio.timeout(TIMEOUT_SECONDS):
                return await server.process.wait(), server.process.tail

    exit_code, tail = asyncio.run(kill())
    assert exit_code == -signal.SIGKILL
    assert any("listening on" in line for line in tail)


def launch(model: Path, ready_seconds: float = TIMEOUT_SECONDS) -> None:
    async def start() -> None:
        async with start_llama_server(plan_for(model), ready_seconds=ready_seconds):
            raise AssertionError("it must not become ready")

    asyncio.run(start())


@pytest.mark.fault("F24")
def test_a_truncated_model_file_is_an_error_with_the_reason_and_the_log(
    scripted_model: Path, tmp_path: Path
) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(scripted_model.read_bytes()[:600_000])
    with pytest.raises(LaunchFailed, match="found an incomplete model file") as failure:
        launch(broken)
    assert any("not within the file bounds" in line for line in failure.value.log)


@pytest.mark.fault("F24")
def test_a_model_of_an_unknown_architecture_is_an_error_with_the_reason(
    scripted_model: Path, tmp_path: Path
) -> None:
    strange = tmp_path / "strange.gguf"
    strange.write_bytes(scripted_model.read_bytes().replace(b"qwen2", b"qwenX"))
    with pytest.raises(LaunchFailed, match="too old for this model's architecture"):
        launch(strange)


def test_a_server_that_is_not_ready_in_time_is_stopped(scripted_model: Path) -> None:
    with pytest.raises(NeverBecameReady, match=r"not ready after 0\.001 seconds"):
        launch(scripted_model, ready_seconds=0.001)


@pytest.mark.fault("F21")
def test_killing_the_parent_ends_the_llama_server(tmp_path: Path) -> None:
    model = build_model(tmp_path / "model.gguf", context_tokens=16384)
    command = [sys.executable, "-c", PARENT, str(model)]
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        base_url, api_key = parent.stdout.readline().split()
        body = {"messages": [{"role": "user", "content": "[[forever]]"}], "stream": True}
        with (
            httpx.Client(timeout=TIMEOUT_SECONDS, trust_env=False) as client,
            client.stream(
                "POST",
                f"{base_url}/v1/chat/completions",
                json=body,
                headers={"authorization": f"Bearer {api_key}"},
            ) as reply,
        ):
            parent.kill()
            # a surviving server would generate to the end of its context and close properly
            with pytest.raises(httpx.TransportError):
                reply.read()
    # a killed process closes its sockets one after another, within milliseconds
    wait_until(lambda: not is_listening(base_url))
