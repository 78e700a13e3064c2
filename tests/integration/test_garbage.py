"""What a request leaves behind is freed at once: the garbage collector finds nothing of it."""

import contextlib
import gc
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import httpx
import pytest

import proxy
from proxy.api.app import ServerOptions, create_app
from proxy.api.server import listen, serving, url_of
from proxy.backends.llama_server import LlamaServer
from proxy.backends.transport import BackendClient
from proxy.observability.board import Board
from proxy.observability.observers import Observers
from tests.examples import mostly_deep
from tests.fakes.front import CHAT, request
from tests.fakes.scripted_backend import ScriptedBackend
from tests.fakes.sockets import listening
from tests.fakes.spoken import calls

GOOD = calls("get_weather", '{"city": "Paris"}')
SOURCES = os.fspath(Path(proxy.__file__).parent)


@contextmanager
def uncollected() -> Generator[list[object], None, None]:
    """Collect nothing while the block runs; then give what only the collector would have freed."""
    found: list[object] = []
    gc.collect()
    gc.disable()
    try:
        yield found
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        found += gc.garbage
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


def of_temper(one: object) -> bool:
    """Whether something belongs to a request: an object of ours, or a call that goes on."""
    if isinstance(one, FrameType):
        return one.f_code.co_filename.startswith(SOURCES)
    return type(one).__module__.startswith("proxy.")


@pytest.mark.parametrize("observers", mostly_deep([Observers(board=Board()), Observers()]))
async def test_a_request_that_is_over_needs_no_garbage_collector(
    observers: Observers, *, stream: bool
) -> None:
    async with listening(ScriptedBackend(GOOD, GOOD, GOOD)) as behind:
        engine = LlamaServer(BackendClient(behind.url))
        app = create_app(ServerOptions().alone(engine), ServerOptions(), observers)
        with contextlib.closing(listen("127.0.0.1", 0)) as socket:
            async with (
                serving(app, socket, 1),
                httpx.AsyncClient(trust_env=False, base_url=url_of(socket)) as client,
            ):
                body = request(stream=stream)
                await client.post(CHAT, json=body)  # whoever is first makes what stays
                with uncollected() as found:
                    for _ in range(2):
                        assert (await client.post(CHAT, json=body)).is_success
        await engine.close()
    assert [one for one in found if of_temper(one)] == []
