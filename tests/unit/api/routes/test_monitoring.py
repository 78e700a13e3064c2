import asyncio
from dataclasses import dataclass

import pytest
from fastapi import FastAPI

from proxy.api.app import ServerOptions, create_app
from proxy.api.edge import Access
from proxy.api.routes import monitoring as route
from proxy.api.routes.monitoring import METRICS_PATH, health_router
from proxy.backends.client import Backend, Description, Health
from proxy.backends.llama_server import LlamaServer
from proxy.backends.pool import Pool
from proxy.conversation import json
from proxy.observability.metrics import Metrics
from proxy.observability.observers import Observers
from proxy.processes.managed import ManagedBackend
from proxy.processes.process import ServerAddress
from proxy.processes.restarts import RestartState
from proxy.processes.supervisor import RemoteStatus, ServerStatus
from proxy.serving.services import Services
from tests.fakes.asgi import HandMadeClient
from tests.fakes.backend import ScriptedBackend
from tests.fakes.exposition import Exposition


@pytest.mark.parametrize(
    ("path", "health", "status", "body"),
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
def test_healthz_always_gets_200_but_readyz_and_health_only_with_a_ready_backend(
    path: str, health: Health, status: int, body: bytes
) -> None:
    app = FastAPI()
    app.include_router(health_router(ServerOptions().services_for(ScriptedBackend(state=health))))
    client = HandMadeClient(path=path)
    asyncio.run(client.call(app))
    assert client.status == status
    assert body in client.answer


def test_readyz_reports_the_state_of_each_backend() -> None:
    backends = (ScriptedBackend(), ScriptedBackend(state=Health.UNREACHABLE))
    serving = ServerOptions()
    services = Services(
        [serving.service(backend, name=f"m{index}") for index, backend in enumerate(backends)]
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


def request_metrics(
    backend: Backend, serving: ServerOptions, observers: Observers
) -> HandMadeClient:
    client = HandMadeClient(path=METRICS_PATH)
    asyncio.run(client.call(create_app(serving.services_for(backend), serving, observers)))
    return client


@pytest.mark.parametrize("state", list(Health))
def test_a_request_for_metrics_probes_the_backend(state: Health) -> None:
    client = request_metrics(
        ScriptedBackend(state=state), ServerOptions(), Observers(meter=Metrics())
    )
    assert client.answer_headers["content-type"].startswith("text/plain; version=")
    metrics = Exposition.read(client.answer.decode())
    assert metrics.value("temper_backend_up", model="default") == (state is Health.READY)


@dataclass
class UnresponsiveBackend(ScriptedBackend):
    """A backend that never responds to a health check."""

    async def health(self) -> Health:
        await asyncio.Event().wait()
        return Health.READY


def test_metrics_do_not_wait_for_a_backend_that_does_not_answer_its_health_check(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(route, "_PATIENCE", 0.01)
    client = request_metrics(UnresponsiveBackend(), ServerOptions(), Observers(meter=Metrics()))
    assert client.status == 200
    assert Exposition.read(client.answer.decode()).value("temper_backend_up") == 0


def test_the_metrics_path_gets_404_if_metrics_are_disabled() -> None:
    assert request_metrics(ScriptedBackend(), ServerOptions(), Observers()).status == 404


@pytest.mark.parametrize(("is_open", "status"), [(False, 401), (True, 200)])
def test_requests_for_metrics_without_a_key_get_401_unless_the_operator_allows_them(
    is_open: bool, status: int
) -> None:
    serving = ServerOptions(access=Access({"us": "key"}), has_open_metrics=is_open)
    assert request_metrics(ScriptedBackend(), serving, Observers(meter=Metrics())).status == status


def _never(address: ServerAddress) -> LlamaServer:
    raise AssertionError(address)


def test_metrics_count_restarts_only_for_servers_that_temper_manages() -> None:
    server = RemoteStatus("llama-server/m")
    server.note(ServerStatus(RestartState.WAITING, restarts=2))
    managed = ManagedBackend(server, Description(("m",)), _never, load_wait=1.0)
    client = request_metrics(managed, ServerOptions(), Observers(meter=Metrics()))
    metrics = Exposition.read(client.answer.decode())
    assert metrics.value("temper_backend_restarts", model="default") == 2
    plain = request_metrics(ScriptedBackend(), ServerOptions(), Observers(meter=Metrics()))
    assert Exposition.read(plain.answer.decode()).value("temper_backend_restarts") == 0


def test_metrics_report_each_server_of_a_pool_and_one_ready_server_makes_the_model_up() -> None:
    states = {"one": Health.READY, "two": Health.UNREACHABLE, "three": Health.UNREACHABLE}
    pool = Pool([ScriptedBackend(state=state, name=name) for name, state in states.items()])
    client = request_metrics(pool, ServerOptions(), Observers(meter=Metrics()))
    metrics = Exposition.read(client.answer.decode())
    assert metrics.value("temper_backend_up", model="default") == 1
    for name, state in states.items():
        value = metrics.value("temper_backend_server_up", model="default", server=name)
        assert value == (state is Health.READY)
