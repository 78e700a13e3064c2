"""Agent frameworks with Temper's default settings.

The tests need the extra `clients`. Those of litellm need the extra `clients-litellm`, and coding
agents come from npm. Tests whose library or program is missing are skipped.
"""

import os
from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.fakes.tool_loops import Served, temper_with

# no telemetry, and no downloads
os.environ |= {
    "LANGSMITH_TRACING": "false",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "OPENAI_AGENTS_DISABLE_TRACING": "1",
    "OPENAI_API_KEY": "none",
}


@pytest.fixture(scope="session", params=["mock", "llama-server"])
def running(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    """Temper in front of each backend."""
    with temper_with(request.param, tmp_path_factory.mktemp("loops")) as served:
        yield served


@pytest.fixture
def served(running: Served) -> Served:
    """Temper, with counts that begin at 0 for each test."""
    earlier = running.generations()
    return replace(running, generations=lambda: running.generations() - earlier)


# Frameworks keep clients open until the process ends, and tests cannot close them. The following
# fixtures therefore check nothing.


@pytest.fixture(autouse=True)
def every_connection_ends_with_its_loop() -> None:
    """Replace the check of `tests/conftest.py`, which runs for other folders."""


@pytest.fixture(autouse=True, scope="module")
def every_socket_is_closed_by_the_end_of_its_module() -> None:
    """Replace the check of `tests/conftest.py`, which runs for other folders."""
