import asyncio
import logging
from collections.abc import AsyncGenerator

import pytest

from proxy.api.app import ServerOptions
from proxy.api.request_reader import BodyLimits, RequestReader
from proxy.api.routes.passthrough import Relay
from proxy.api.streaming import StreamTimeouts
from proxy.backends.client import Description, PassthroughRequest
from proxy.conversation import json
from proxy.errors import BackendRefused, BackendUnavailable, LaunchFailed
from proxy.inference.plan import Policy
from proxy.processes.fleet import Fleet
from proxy.processes.swapping import LoadableModel, SwapPlanner
from proxy.serving.request_preparation import RequestPreparation
from proxy.serving.services import Services
from tests.fakes.asgi import HandMadeClient
from tests.fakes.backend import ScriptedBackend
from tests.fakes.servers import Server

COMPLETIONS, EMBEDDINGS = "/v1/completions", "/v1/embeddings"
WHOLE = json.dump({"model": "m", "prompt": "Hi"})
STREAMED = json.dump({"model": "m", "prompt": "Hi", "stream": True})
REFUSED = BackendRefused("b", 501, "start it with --embeddings", kind="not_supported_error")
GONE = BackendUnavailable("b", "broke off the connection")


def endpoint(
    services: Services, path: str = COMPLETIONS, timeouts: StreamTimeouts | None = None
) -> Relay:
    reader, preparation = RequestReader(BodyLimits(1000)), RequestPreparation(services, Policy())
    return Relay(path, reader, preparation, timeouts or StreamTimeouts())


def call(
    backend: ScriptedBackend,
    body: bytes = WHOLE,
    path: str = COMPLETIONS,
    headers: dict[str, str] | None = None,
) -> HandMadeClient:
    client = HandMadeClient(body, "POST", headers=headers or {})
    asyncio.run(client.ask(endpoint(ServerOptions().services_for(backend), path)))
    return client


class FailingBackend(ScriptedBackend):
    """Raises an unexpected exception after the first chunk."""

    async def relay(
        self, passage: PassthroughRequest, headers: dict[str, str]
    ) -> AsyncGenerator[bytes, None]:
        del passage, headers
        yield b"data: {}\n\n"
        raise RuntimeError("of our own")


def test_an_unexpected_exception_during_a_stream_is_sent_as_an_error_event_and_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    client = call(FailingBackend(), STREAMED)
    assert client.answer.startswith(b'data: {}\n\n\ndata: {"error":')
    assert not client.got[-1]["more_body"]
    (logged,) = (record for record in caplog.records if record.exc_info)
    assert "of our own" in str(logged.exc_info)


def test_each_forwarded_request_is_logged_with_its_status_and_model(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "proxy.requests")
    call(ScriptedBackend(pieces=[b"{}"]))
    call(ScriptedBackend(pieces=[REFUSED]), STREAMED)
    answered, refused = (record.__dict__["request"] for record in caplog.records)
    assert (answered.status, answered.model, answered.stream) == (200, "m", False)
    assert (refused.status, refused.stream, refused.error) == (501, True, "refused")


async def test_a_forwarded_request_waits_for_a_free_slot() -> None:
    backend = ScriptedBackend(pieces=[b"{}"], description=Description(("m",), slots=1))
    services = ServerOptions().services_for(backend)
    app, service = endpoint(services), services.find("m")
    service.resize(await service.look_up("m"), 1)
    async with service.admission.slot("other"):
        client = HandMadeClient(WHOLE, "POST")
        waiting = asyncio.create_task(client.ask(app))
        for _ in range(20):
            await asyncio.sleep(0)
        assert backend.passages == []
    await waiting
    assert (client.status, len(backend.passages)) == (200, 1)


@pytest.mark.parametrize("body", [WHOLE, STREAMED], ids=["whole", "streamed"])
async def test_a_forwarded_request_gets_503_unless_its_model_is_loaded_in_time(body: bytes) -> None:
    server = Server()
    fleet = Fleet({"m": server}, SwapPlanner([LoadableModel("m")]))
    backend = ScriptedBackend(pieces=[b"{}\n"])
    services = Services([ServerOptions().service(backend, name="m", fleet=fleet)])
    first, second, third = (HandMadeClient(body, "POST") for _ in range(3))
    await first.ask(endpoint(services, timeouts=StreamTimeouts(load_wait=0)))
    asking = asyncio.create_task(second.ask(endpoint(services)))
    await asyncio.sleep(0)
    server.finish()
    await asking
    await fleet.close()
    failing = Server()
    fleet = Fleet({"m": failing}, SwapPlanner([LoadableModel("m")]))
    services = Services([ServerOptions().service(backend, name="m", fleet=fleet)])
    asking = asyncio.create_task(third.ask(endpoint(services)))
    await failing.wanted.wait()
    failing.finish(LaunchFailed("llama-server", "is out of memory"))
    await asking
    await fleet.close()
    assert first.status == 503
    assert b"model_loading" in first.answer
    assert (second.status, second.answer) == (200, b"{}\n")
    assert third.status == 503
    assert b"out of memory" in third.answer
