import asyncio
import threading
from pathlib import Path

import httpx
import pytest

from proxy.agents.background import LocalServer, local_server
from proxy.errors import InvalidConfiguration
from tests.fakes.scripted_backend import ScriptedBackend
from tests.fakes.sockets import listening_in_thread
from tests.fakes.sse import says

ASKED = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}


def non_daemon_threads() -> set[threading.Thread]:
    """Return the threads that a program would wait for at its end."""
    return {thread for thread in threading.enumerate() if not thread.daemon}


def ask(server: LocalServer, key: str) -> httpx.Response:
    url = f"{server.url}/v1/chat/completions"
    headers = {"authorization": f"Bearer {key}"}
    return httpx.post(url, json=ASKED, headers=headers, trust_env=False)


def test_a_local_server_answers_only_requests_with_its_key() -> None:
    with listening_in_thread(ScriptedBackend(says("Hello."))) as url, local_server(url) as server:
        refused = ask(server, "another")
        answer = ask(server, server.api_key)

    assert server.api_key
    assert refused.status_code == 401
    assert answer.json()["choices"][0]["message"]["content"] == "Hello."


def test_a_local_server_uses_a_free_port_and_closes_with_its_block() -> None:
    with listening_in_thread(ScriptedBackend()) as url:
        before = non_daemon_threads()
        with local_server(url) as first, local_server(url) as other:
            urls = {first.url, other.url}
            assert {httpx.get(f"{at}/healthz", trust_env=False).status_code for at in urls} == {200}
            assert first.api_key != other.api_key
        assert non_daemon_threads() <= before  # fewer if a thread of another test ended
        for at in urls:
            with pytest.raises(httpx.ConnectError):
                httpx.get(at, trust_env=False)
        with pytest.raises(RuntimeError, match="is not running"):
            _ = first.url

    assert len(urls) == 2
    assert all(at.startswith("http://127.0.0.1:") for at in urls)


def test_a_program_with_an_event_loop_can_start_a_local_server() -> None:
    async def run(url: str) -> str:
        async with local_server(url) as server, httpx.AsyncClient(trust_env=False) as client:
            headers = {"authorization": f"Bearer {server.api_key}"}
            answer = await client.post(
                f"{server.url}/v1/chat/completions", json=ASKED, headers=headers
            )
            return answer.text

    with listening_in_thread(ScriptedBackend(says("Hello."))) as url:
        assert '"Hello."' in asyncio.run(run(url))


def test_a_local_server_uses_the_settings_file_except_for_its_address(tmp_path: Path) -> None:
    config = tmp_path / "temper.toml"
    config.write_text('[server]\nhost = "0.0.0.0"\nport = 9\napi_key = "mine"\n')
    with listening_in_thread(ScriptedBackend(says("Hello."))) as url:
        settings = {"logging": {"level": "warning"}, "backend": {"url": url}}
        with local_server(config=config, settings=settings) as server:
            assert server.api_key == "mine"
            assert server.url.startswith("http://127.0.0.1:")
            assert ask(server, "mine").status_code == 200


def test_invalid_arguments_of_a_local_server_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfiguration, match="nothing to serve"), local_server():
        pass
    with pytest.raises(InvalidConfiguration, match=r"backend\.url"):
        local_server("http://127.0.0.1:9", path=tmp_path / "model.gguf")
    with pytest.raises(InvalidConfiguration, match=r"should be an address .* \(argument\)"):
        local_server("127.0.0.1:9")
    with pytest.raises(InvalidConfiguration, match=r"model\.path"):
        local_server(ollama="a", path=tmp_path / "model.gguf")
