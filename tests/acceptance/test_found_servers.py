"""`temper serve` finds a real llama-server among other servers; two found servers are a pool."""

import asyncio
import http.server
import threading
from collections.abc import Iterator

import httpx
import pytest

from proxy.backends.detection import FoundServer, find_running
from proxy.backends.transport import BackendClient
from proxy.processes.process import RunningServer
from tests.fakes.command import running_temper
from tests.timeouts import TIMEOUT_SECONDS

CLOSED_PORT = "http://127.0.0.1:1"
HELLO = {"model": "any", "messages": [{"role": "user", "content": "[[hello]]"}], "max_tokens": 4}


@pytest.fixture
def stranger() -> Iterator[str]:
    """A web server without models."""
    with http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_llama_server_is_recognized_without_its_key(
    llama_server: RunningServer, stranger: str
) -> None:
    urls = (CLOSED_PORT, stranger, llama_server.base_url)
    running = asyncio.run(find_running(urls, BackendClient, TIMEOUT_SECONDS))
    assert running == FoundServer(llama_server.base_url, "llama-server")


def test_serve_without_backend_url_uses_the_llama_server_that_it_discovers(
    llama_server: RunningServer, stranger: str
) -> None:
    places = [part for url in (stranger, llama_server.base_url) for part in ("--look-at", url)]
    environment = {"TEMPER_BACKEND__API_KEY": llama_server.api_key}
    with running_temper(*places, environment=environment) as url:
        answer = httpx.post(f"{url}/v1/chat/completions", json=HELLO, timeout=TIMEOUT_SECONDS)
    assert answer.status_code == 200
    assert answer.headers["x-temper-backend"] == llama_server.base_url


def test_while_one_server_is_down_the_other_server_answers_every_request(
    llama_server: RunningServer,
) -> None:
    pool = ("--backend-url", CLOSED_PORT, "--backend-url", llama_server.base_url)
    environment = {"TEMPER_BACKEND__API_KEY": llama_server.api_key}
    with (
        running_temper(*pool, environment=environment) as url,
        httpx.Client(timeout=TIMEOUT_SECONDS) as client,
    ):
        for number in range(4):
            headers = {"x-session-id": str(number)}
            answer = client.post(f"{url}/v1/chat/completions", json=HELLO, headers=headers)
            assert answer.status_code == 200
            assert answer.headers["x-temper-backend"] == llama_server.base_url
