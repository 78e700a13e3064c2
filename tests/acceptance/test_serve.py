"""`temper serve`: with a managed model, without a backend, and its exit."""

import signal
import socket
import subprocess
from contextlib import suppress
from pathlib import Path

import httpx
import openai
import pytest

from proxy.conversation import json
from tests.examples import mostly_deep
from tests.fakes.command import processes_with, temper
from tests.fakes.loopback import own_address
from tests.fakes.sdk_answers import OFFERED
from tests.timeouts import TIMEOUT_SECONDS, wait_until


def announced(process: subprocess.Popen[str]) -> tuple[str, httpx.URL]:
    """Return the addresses of Temper and of its backend from the JSON output."""
    assert process.stdout is not None
    event = json.parse(process.stdout.readline())
    assert isinstance(event, dict)
    return str(event["url"]), httpx.URL(str(event["backend"]))


def is_listening(url: httpx.URL) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((url.host, url.port or 0)) == 0


@pytest.fixture
def own_model(scripted_model: Path, tmp_path: Path) -> Path:
    """The scripted model under a unique name, by which its server process can be identified."""
    path = tmp_path / "own.gguf"
    path.symlink_to(scripted_model)
    return path


@pytest.mark.fault("F23")
def test_a_model_file_is_served_until_sigterm_even_while_a_stream_is_open(own_model: Path) -> None:
    arguments = ("serve", "--model", str(own_model), "--port", "0", "--json")
    with temper(*arguments, TEMPER_SERVER__GRACE_SECONDS="1") as process:
        url, backend = announced(process)
        with openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
            completion = client.chat.completions.create(
                model="own", messages=[{"role": "user", "content": "[[bare]]"}], tools=OFFERED
            )
            (call,) = completion.choices[0].message.tool_calls or []
            assert call.type == "function"
            assert json.parse(call.function.arguments) == {"city": "Graz"}
            assert backend == httpx.URL("llama-server/own")
            assert len(processes_with(str(own_model))) == 1  # the llama-server
            assert process.poll() is None

            stream = client.chat.completions.create(
                model="own", messages=[{"role": "user", "content": "[[forever]]"}], stream=True
            )
            first = next(iter(stream))
            assert first.choices[0].delta.role == "assistant"
            process.send_signal(signal.SIGTERM)
            with suppress(
                openai.APIError, httpx.TransportError
            ):  # the stream may break or end properly
                list(stream)
        process.communicate()
    assert process.returncode == 0
    assert processes_with(str(own_model)) == []


@pytest.mark.parametrize(
    ("budget", "workers", "window"),
    mostly_deep([("full", "1", 8192), ("fast", "1", 4096), ("fast", "2", 4096)]),
)
def test_the_budget_full_gives_a_model_its_whole_window_and_fast_gives_half(
    budget: str, workers: str, window: int, own_model: Path
) -> None:
    arguments = ("serve", "--model", str(own_model), "--port", "0", "--json")
    with temper(*arguments, "--budget", budget, "--workers", workers) as process:
        url, _ = announced(process)
        body = {"model": "own", "messages": [{"role": "user", "content": "[[four]]"}]}
        answer = httpx.post(
            f"{url}/v1/chat/completions", json=body, trust_env=False, timeout=TIMEOUT_SECONDS
        )
        process.send_signal(signal.SIGTERM)
        process.communicate()
    # at most the training context of the model; a second worker does not halve the window again
    assert answer.headers["x-temper-context"].startswith(f"n_ctx={window};")


@pytest.mark.fault("F23")
def test_a_signal_while_the_model_loads_stops_temper_and_its_server(own_model: Path) -> None:
    with temper("serve", "--model", str(own_model), "--port", "0") as process:
        assert process.stderr is not None
        lines = iter(process.stderr.readline, "")
        assert any("llama-server: starting" in line for line in lines)
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate()
    assert process.returncode in (0, 130)  # 0 if the server already accepts clients, otherwise 130
    assert "Traceback" not in errors
    assert processes_with(str(own_model)) == []


def test_serve_starts_with_an_unreachable_backend_and_reports_it() -> None:
    nowhere = f"http://{own_address()}:9"
    with temper("serve", "--backend-url", nowhere, "--port", "0", "--json") as process:
        url, _ = announced(process)
        body = {"messages": [{"role": "user", "content": "Hello"}]}
        with httpx.Client(base_url=url, trust_env=False, timeout=TIMEOUT_SECONDS) as client:
            assert client.get("/healthz").status_code == 200
            assert client.get("/readyz").status_code == 503
            answer = client.post("/v1/chat/completions", json=body)
        assert process.stderr is not None
        warning = next(line for line in process.stderr if "warning" in line)
        process.send_signal(signal.SIGTERM)
        process.communicate()
    assert answer.status_code == 502
    assert nowhere in answer.json()["error"]["message"]
    assert f"backend {nowhere} is not reachable yet" in warning
    assert process.returncode == 0


def test_killing_the_parent_process_ends_its_workers() -> None:
    flags = ("--workers", "2", "--port", "0", "--json", "--backend-url", "http://127.0.0.1:1")
    with temper("serve", *flags) as process:
        url = announced(process)[0]
        assert (
            httpx.get(f"{url}/healthz", timeout=TIMEOUT_SECONDS, trust_env=False).status_code == 200
        )
        process.kill()
        process.wait()
        wait_until(lambda: not is_listening(httpx.URL(url)))


def test_open_dashboards_do_not_delay_the_shutdown() -> None:
    with temper(
        *("serve", "--backend-url", "http://127.0.0.1:9", "--port", "0", "--json"),
        TEMPER_SERVER__GRACE_SECONDS="600",
    ) as process:
        url, _ = announced(process)
        with (
            httpx.Client(base_url=url, trust_env=False, timeout=TIMEOUT_SECONDS) as client,
            client.stream("GET", "/ui/api/events") as feed,
        ):
            lines = feed.iter_lines()
            assert next(lines) == "event: state"
            process.send_signal(signal.SIGTERM)
            with suppress(httpx.TransportError):
                list(lines)
        process.communicate()  # fails by the test's time limit if Temper waits 600 s
    assert process.returncode == 0
