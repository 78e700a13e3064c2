"""The objects of a finished request are freed at once, without the garbage collector."""

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
from tests.fakes.running_proxy import CHAT, request
from tests.fakes.scripted_backend import ScriptedBackend
from tests.fakes.sockets import listening
from tests.fakes.sse import calls

GOOD = calls("get_weather", '{"city": "Paris"}')
SOURCES = os.fspath(Path(proxy.__file__).parent)


@contextmanager
def find_garbage() -> Generator[list[object], None, None]:
    """Disable collection in the block, then return the objects that only the collector frees."""
    objects: list[object] = []
    gc.collect()
    gc.disable()
    try:
        yield objects
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        objects += gc.garbage
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


def is_from_temper(item: object) -> bool:
    """Return whether an object has a class of Temper, or is a stack frame of its code."""
    if isinstance(item, FrameType):
        return item.f_code.co_filename.startswith(SOURCES)
    return type(item).__module__.startswith("proxy.")


@pytest.mark.parametrize("observers", mostly_deep([Observers(board=Board()), Observers()]))
async def test_a_finished_request_leaves_no_objects_for_the_garbage_collector(
    observers: Observers, *, stream: bool
) -> None:
    async with listening(ScriptedBackend(GOOD, GOOD, GOOD)) as upstream:
        engine = LlamaServer(BackendClient(upstream.url))
        app = create_app(ServerOptions().services_for(engine), ServerOptions(), observers)
        with contextlib.closing(listen("127.0.0.1", 0)) as socket:
            async with (
                serving(app, socket, 1),
                httpx.AsyncClient(trust_env=False, base_url=url_of(socket)) as client,
            ):
                body = request(stream=stream)
                await client.post(CHAT, json=body)  # the first request fills the caches
                with find_garbage() as objects:
                    for _ in range(2):
                        assert (await client.post(CHAT, json=body)).is_success
        await engine.close()
    assert [item for item in objects if is_from_temper(item)] == []
