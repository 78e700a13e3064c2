import asyncio

import pytest
from fastapi import FastAPI

from proxy.api.app import ServerOptions
from proxy.api.routes.health import health_router
from proxy.backends.client import Health
from proxy.conversation import json
from proxy.serving.services import Services
from tests.fakes.asgi import HandMadeClient
from tests.fakes.backend import ScriptedBackend


@pytest.mark.parametrize(
    ("path", "health", "status", "words"),
    [
        ("/healthz", Health.UNREACHABLE, 200, b"ok"),
        ("/readyz", Health.READY, 200, b"ready"),
        ("/readyz", Health.LOADING, 503, b"loading"),
        ("/readyz", Health.UNREACHABLE, 503, b"unreachable"),
        ("/health", Health.READY, 200, b"ok"),
        ("/health", Health.LOADING, 503, b"Loading model"),
        ("/health", Health.UNREACHABLE, 503, b"scripted is unreachable"),
    ],
)
def test_each_probe_tells_its_own_truth(
    path: str, health: Health, status: int, words: bytes
) -> None:
    app = FastAPI()
    app.include_router(health_router(ServerOptions().alone(ScriptedBackend(state=health))))
    client = HandMadeClient(path=path)
    asyncio.run(client.call(app))
    assert client.status == status
    assert words in client.answer


def test_each_of_several_servers_is_told_of() -> None:
    backends = (ScriptedBackend(), ScriptedBackend(state=Health.UNREACHABLE))
    serving = ServerOptions()
    services = Services(
        [serving.service(backend, name=f"m{place}") for place, backend in enumerate(backends)]
    )
    app = FastAPI()
    app.include_router(health_router(services))
    client = HandMadeClient(path="/readyz")
    asyncio.run(client.call(app))
    assert json.parse(client.answer) == {
        "status": "ready",
        "backend": "m0, m1",
        "servers": {"m0": "ready", "m1": "unreachable"},
    }
