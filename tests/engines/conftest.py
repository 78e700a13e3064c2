"""Real engines, each with a separate Temper: `pytest tests/engines`.

Nothing here runs unless this folder is named (tests/conftest.py). `engines.py` lists the engines,
and `-k` selects them by name; `--engine URL` tests a running engine instead. At the end, the table
of docs/guides/engines.md is printed.
"""

from collections.abc import Iterator

import httpx
import pytest

from tests.engines.asking import Server
from tests.engines.engines import ENGINES, RealEngine, Running, Workplace, users_server
from tests.engines.table import Row, table
from tests.fakes.command import running_temper
from tests.timeouts import TIMEOUT_SECONDS

ROWS = pytest.StashKey[dict[str, Row]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--engine", metavar="URL", help="ask this server instead of ours")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[ROWS] = {}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "engine" in metafunc.fixturenames:
        url = metafunc.config.getoption("--engine", None)
        engines = (users_server(str(url)),) if url else ENGINES
        metafunc.parametrize("engine", engines, ids=lambda engine: engine.id, scope="session")


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    if rows := config.stash[ROWS]:
        terminalreporter.section("the table of engines")
        terminalreporter.write_line(table(rows.values()))


@pytest.fixture(scope="session")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workplace]:
    workplace = Workplace(tmp_path_factory.mktemp("engines"))
    with workplace.stack:
        yield workplace


@pytest.fixture(scope="session")
def running(engine: RealEngine, workplace: Workplace) -> Running:
    """The engine; engines that others depend on keep running."""
    if engine.missing:
        pytest.skip(engine.missing)
    return workplace.running(engine)


@pytest.fixture(scope="session")
def server(running: Running) -> Iterator[Server]:
    """Temper in front of the engine."""
    environment = {"TEMPER_BACKEND__API_KEY": running.api_key, **running.settings}
    with (
        running_temper("--backend-url", running.url, environment=environment) as url,
        httpx.Client(base_url=url, timeout=TIMEOUT_SECONDS, trust_env=False) as client,
    ):
        yield Server(client, running.model or first_model(client))


@pytest.fixture(scope="session")
def direct(running: Running, server: Server) -> Iterator[Server]:
    """The engine without Temper."""
    headers = {"authorization": f"Bearer {running.api_key}"} if running.api_key else {}
    url = running.url.removesuffix("/v1")
    with httpx.Client(
        base_url=url, headers=headers, timeout=TIMEOUT_SECONDS, trust_env=False
    ) as client:
        yield Server(client, server.model)


@pytest.fixture
def row(request: pytest.FixtureRequest, engine: RealEngine, running: Running) -> Row:
    """The engine's row, in which tests record their results."""
    return request.config.stash[ROWS].setdefault(engine.name, Row(engine.name, running.version))


def first_model(client: httpx.Client) -> str:
    return str(client.get("/v1/models").json()["data"][0]["id"])


# Engines and clients serve all tests: they are closed after the last one.


@pytest.fixture(autouse=True)
def every_connection_ends_with_its_loop() -> None:
    """Replace the check of `tests/conftest.py`, which runs for other folders."""


@pytest.fixture(autouse=True, scope="module")
def every_socket_is_closed_by_the_end_of_its_module() -> None:
    """Replace the check of `tests/conftest.py`, which runs for other folders."""
