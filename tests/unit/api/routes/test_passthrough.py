import asyncio
import logging
from collections.abc import AsyncGenerator

import pytest
from starlette.types import Message

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
    asyncio.run(client.ask(endpoint(ServerOptions().alone(backend), path)))
    return client


def test_a_whole_answer_is_passed_on_as_it_is() -> None:
    backend = ScriptedBackend(pieces=[b'{ "data": ', b"[] }"])
    client = call(backend, b'{"input": ["a"], "model": "m", "x": 1.50}', EMBEDDINGS)
    assert (client.status, client.answer) == (200, b'{ "data": [] }')
    assert client.answer_headers["content-type"] == "application/json"
    assert client.answer_headers["x-temper-backend"] == "scripted"
    (passage,) = backend.passages
    assert (passage.path, passage.text_field) == (EMBEDDINGS, "input")
    assert passage.fields == {"input": b'["a"]', "model": b'"m"', "x": b"1.50"}
    assert backend.closed == 1


def test_a_stream_is_passed_on_as_it_comes() -> None:
    backend = ScriptedBackend(pieces=[b"data: {}\n\n", b"data: [DONE]\n\n"])
    client = call(backend, STREAMED)
    assert client.answer_headers["content-type"].startswith("text/event-stream")
    bodies = [one["body"] for one in client.got[1:]]
    assert bodies == [b"data: {}\n\n", b"data: [DONE]\n\n", b""]


@pytest.mark.parametrize("body", [WHOLE, STREAMED], ids=["whole", "streamed"])
def test_a_refusal_keeps_its_status(body: bytes) -> None:
    client = call(ScriptedBackend(pieces=[REFUSED]), body)
    assert client.status == 501
    assert b'"not_supported_error"' in client.answer


def test_a_whole_answer_that_breaks_off_is_none() -> None:
    assert call(ScriptedBackend(pieces=[b'{"data', GONE])).status == 502


def test_a_stream_that_breaks_off_ends_with_an_error() -> None:
    client = call(ScriptedBackend(pieces=[b"data: {}\n\n", GONE]), STREAMED)
    assert client.status == 200
    assert client.answer.startswith(b'data: {}\n\n\ndata: {"error":')
    assert b"[DONE]" not in client.answer


class Buggy(ScriptedBackend):
    """Fails after the first piece, in a way that nobody foresaw."""

    async def relay(
        self, passage: PassthroughRequest, headers: dict[str, str]
    ) -> AsyncGenerator[bytes, None]:
        del passage, headers
        yield b"data: {}\n\n"
        raise RuntimeError("of our own")


def test_a_bug_in_the_middle_is_an_error_event_and_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    client = call(Buggy(), STREAMED)
    assert client.answer.startswith(b'data: {}\n\n\ndata: {"error":')
    assert not client.got[-1]["more_body"]
    (logged,) = (record for record in caplog.records if record.exc_info)
    assert "of our own" in str(logged.exc_info)


@pytest.mark.parametrize(
    ("body", "param"),
    [(b"", b"body"), (b"[]", b"body"), (b"{", b"body"), (b'{"model": 7}', b"model")],
)
def test_what_cannot_be_passed_on_is_refused(body: bytes, param: bytes) -> None:
    backend = ScriptedBackend()
    client = call(backend, body)
    assert client.status == 400
    assert b'"param":"' + param + b'"' in client.answer
    assert backend.passages == []


def test_only_known_headers_travel() -> None:
    backend = ScriptedBackend(pieces=[b"{}"])
    call(backend, headers={"x-conversation-id": "1", "authorization": "Bearer k"})
    assert backend.headers == [{"x-request-id": "req_test"}]


def test_a_request_has_its_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "proxy.requests")
    call(ScriptedBackend(pieces=[b"{}"]))
    call(ScriptedBackend(pieces=[REFUSED]), STREAMED)
    answered, refused = (record.__dict__["request"] for record in caplog.records)
    assert (answered.status, answered.model, answered.stream) == (200, "m", False)
    assert (refused.status, refused.stream, refused.error) == (501, True, "refused")


def test_a_client_that_leaves_ends_the_work() -> None:
    async def scene() -> HandMadeClient:
        client = HandMadeClient(STREAMED, "POST")

        async def leave(message: Message) -> None:
            client.got.append(message)
            client.leaves.set()
            await asyncio.Event().wait()

        app = endpoint(ServerOptions().alone(backend))
        await app(client.connection.behind(send=leave))
        return client

    backend = ScriptedBackend(pieces=[b"data: {}\n\n"] * 2)
    assert len(asyncio.run(scene()).got) == 1
    assert backend.closed == 1


async def test_as_many_are_asked_at_once_as_there_are_slots() -> None:
    backend = ScriptedBackend(pieces=[b"{}"], description=Description(("m",), slots=1))
    services = ServerOptions().alone(backend)
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
async def test_a_model_that_is_not_loaded_is_loaded_first(body: bytes) -> None:
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
    (first, second, third) = first, second, third
    assert first.status == 503
    assert b"model_loading" in first.answer
    assert (second.status, second.answer) == (200, b"{}\n")
    assert third.status == 503
    assert b"out of memory" in third.answer


async def test_silence_is_filled_with_comments_also_before_the_first_piece() -> None:
    may_go_on = asyncio.Event()
    client = HandMadeClient(STREAMED, "POST")

    class Slow(ScriptedBackend):
        async def relay(
            self, passage: PassthroughRequest, headers: dict[str, str]
        ) -> AsyncGenerator[bytes, None]:
            await may_go_on.wait()
            yield b"data: {}\n\n"

    async def note(message: Message) -> None:
        client.got.append(message)
        if message.get("body") == b": the backend works\n":
            may_go_on.set()

    app = endpoint(ServerOptions().alone(Slow()), timeouts=StreamTimeouts(keep_alive=0.01))
    await app(client.connection.behind(send=note))
    client = client
    assert client.status == 200
    assert client.answer.startswith(b": the backend works\n")
    assert client.answer.endswith(b"data: {}\n\n")
