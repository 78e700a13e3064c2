"""A real llama-server that sleeps while idle, started with --sleep-idle-seconds."""

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from proxy.conversation import json
from proxy.processes.process import RunningServer
from tests.acceptance.test_doctor import LOAD_DEPENDENT
from tests.fakes.command import client_of_temper, temper
from tests.fakes.llama import CONTEXT_TOKENS, plan_for, serving
from tests.timeouts import TIMEOUT_SECONDS

FOUR = {"messages": [{"role": "user", "content": "[[four]]"}]}
STATUS_PATHS = ("/health", "/readyz", "/v1/models", "/props", "/metrics")


@pytest.fixture(scope="module")
def sleeper(scripted_model: Path) -> Iterator[RunningServer]:
    plan = replace(plan_for(scripted_model), extra=("--sleep-idle-seconds", "1"))
    with serving(plan) as server:
        yield server


@pytest.fixture(scope="module")
def proxy(sleeper: RunningServer) -> Iterator[httpx.Client]:
    with client_of_temper(sleeper) as client:
        yield client


def is_asleep(server: RunningServer) -> bool:
    headers = {"authorization": f"Bearer {server.api_key}"}
    properties = httpx.get(
        f"{server.base_url}/props", headers=headers, trust_env=False, timeout=TIMEOUT_SECONDS
    )
    return properties.json()["is_sleeping"] is True


def until_asleep(server: RunningServer, client: httpx.Client, *paths: str) -> None:
    """Request these paths of Temper repeatedly until the server is asleep."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while not is_asleep(server):
        assert time.monotonic() < deadline
        for path in paths:
            client.get(path)
        time.sleep(0.02)


@pytest.mark.fault("F25")
def test_status_requests_to_temper_do_not_keep_a_server_awake(
    sleeper: RunningServer, proxy: httpx.Client
) -> None:
    assert proxy.post("/v1/chat/completions", json=FOUR).status_code == 200
    until_asleep(sleeper, proxy, *STATUS_PATHS)


@pytest.mark.fault("F25")
def test_sleeping_server_is_reported_healthy_without_waking_it(
    sleeper: RunningServer, proxy: httpx.Client
) -> None:
    until_asleep(sleeper, proxy)
    health, ready, models, properties, metrics = (proxy.get(path) for path in STATUS_PATHS)
    assert (health.status_code, ready.json()["status"]) == (200, "ready")
    assert models.json()["data"][0]["context_window"] == CONTEXT_TOKENS
    assert properties.json()["default_generation_settings"]["n_ctx"] == CONTEXT_TOKENS
    assert 'temper_backend_up{model="default"} 1.0' in metrics.text
    assert is_asleep(sleeper)


@pytest.mark.fault("F25")
def test_request_wakes_the_server(
    *, sleeper: RunningServer, proxy: httpx.Client, stream: bool
) -> None:
    until_asleep(sleeper, proxy)
    answer = proxy.post("/v1/chat/completions", json={**FOUR, "stream": stream})
    assert answer.status_code == 200
    assert ("[DONE]" in answer.text) is stream


@pytest.mark.fault("F25")
def test_passthrough_request_wakes_the_server(sleeper: RunningServer, proxy: httpx.Client) -> None:
    until_asleep(sleeper, proxy)
    answer = proxy.post("/v1/completions", json={"prompt": "Hi", "max_tokens": 2})
    assert answer.json()["usage"]["completion_tokens"] == 2


@pytest.mark.deep
def test_doctor_reports_a_sleeping_server_as_healthy(
    sleeper: RunningServer, proxy: httpx.Client
) -> None:
    until_asleep(sleeper, proxy)
    flags = ("--backend-url", sleeper.base_url, "--json")
    with temper("doctor", *flags, TEMPER_BACKEND__API_KEY=sleeper.api_key) as doctor:
        output, violations = doctor.communicate()
    assert doctor.returncode == 0, violations
    report = json.parse(output)
    assert isinstance(report, dict)
    checks = report["checks"]
    assert isinstance(checks, list)
    by_name = {check["check"]: check for check in checks if isinstance(check, dict)}
    assert "loads its model on demand" in str(by_name["readiness"]), violations
    doubtful = {name for name, check in by_name.items() if check["status"] != "ok"}
    assert doubtful <= LOAD_DEPENDENT, output
