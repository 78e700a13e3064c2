"""One real llama-server with a hand-written model for all acceptance tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from proxy.processes.process import RunningServer
from tests.fakes.command import running_temper
from tests.fakes.llama import build_model, plan_for, serving


@pytest.fixture(scope="session")
def scripted_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A hand-written model whose replies are in `tests.fakes.scripts`."""
    return build_model(tmp_path_factory.mktemp("model") / "scripted.gguf")


@pytest.fixture(scope="session")
def llama_server(scripted_model: Path) -> Iterator[RunningServer]:
    """A running llama-server; it has `base_url`, `api_key` and `process`."""
    with serving(plan_for(scripted_model)) as server:
        yield server


@pytest.fixture(scope="session")
def url(llama_server: RunningServer) -> Iterator[str]:
    """The address of a Temper in front of the real llama-server."""
    key = {"TEMPER_BACKEND__API_KEY": llama_server.api_key}
    with running_temper("--backend-url", llama_server.base_url, environment=key) as address:
        yield address
