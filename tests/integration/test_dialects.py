"""A toy dialect, served next to the real ones."""

import inspect
from pathlib import Path

import httpx

from proxy.api.app import ServerOptions, create_app
from proxy.api.dialects import DialectRoute, Dialects, all_dialects
from proxy.backends.llama_server import LlamaServer
from proxy.backends.transport import BackendClient
from tests.fakes.scripted_backend import ScriptedBackend
from tests.fakes.sockets import listening
from tests.fakes.sse import says
from tests.fakes.toy_dialect import Shouting
from tests.timeouts import TIMEOUT_SECONDS


async def post_to_toy_dialect(path: str, body: bytes, key: str = "") -> tuple[int, str]:
    """Post to a Temper that speaks the toy dialect; returns the status and the answer."""
    backend = ScriptedBackend(says("It is ", "sunny."))
    dialects = Dialects(*all_dialects(), DialectRoute(Shouting, ("/shout",), "/shout/count"))
    async with listening(backend) as upstream:
        connection = BackendClient(upstream.url)
        services = ServerOptions().services_for(LlamaServer(connection))
        async with (
            listening(create_app(services, ServerOptions(), dialects=dialects)) as temper,
            httpx.AsyncClient(
                base_url=temper.url, trust_env=False, timeout=TIMEOUT_SECONDS
            ) as client,
        ):
            headers = {"content-type": "application/json", "idempotency-key": key or "1"}
            answer = await client.post(path, content=body, headers=headers)
            again = await client.post(path, content=body, headers=headers)
            if path == "/shout" and answer.status_code == 200:
                assert again.headers["idempotent-replayed"] == "true"
        await connection.close()
    return answer.status_code, answer.text


async def test_the_toy_dialect_answers_streamed_and_not_streamed() -> None:
    assert await post_to_toy_dialect("/shout", b'{"SAY":"Hi"}') == (200, '{"SAID": "IT IS SUNNY."}')
    status, stream = await post_to_toy_dialect("/shout", b'{"SAY":"Hi","STREAM":true}')
    assert (status, stream[:13], stream[-5:]) == (200, "IT IS SUNNY.(", " OVER")


async def test_errors_and_token_counts_of_the_toy_dialect_have_its_format() -> None:
    assert await post_to_toy_dialect("/shout", b"{}") == (400, "SAY: SAY SOMETHING.")
    status, counted = await post_to_toy_dialect("/shout/count", b'{"SAY":"Hi"}')
    assert (status, counted.endswith(" TOKENS")) == (200, True)
    status, text = await post_to_toy_dialect("/shout/nowhere", b"{}")
    assert (status, text[:31]) == (404, "THERE IS NO /SHOUT/NOWHERE. AVA")


def test_toy_dialect_is_at_most_sixty_lines() -> None:
    source = Path(inspect.getfile(Shouting)).read_text(encoding="utf-8")
    assert sum(bool(line.strip()) for line in source.splitlines()) <= 60
