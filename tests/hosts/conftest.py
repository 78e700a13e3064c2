"""Hosts as network namespaces, and programs on them: `pytest tests/hosts`, Linux and root.

Nothing here runs unless this folder is named (tests/conftest.py). A client, two Tempers, a
balancer, a store and two engines each have a network namespace; see `network.py`.
"""

import pytest

from tests.hosts.network import missing


def pytest_configure(config: pytest.Config) -> None:
    config.stash[MISSING] = missing()


MISSING = pytest.StashKey[str]()


@pytest.fixture(autouse=True)
def hosts_can_be_made(request: pytest.FixtureRequest) -> None:
    """Leave all of it out, with the reason, where that is not so."""
    if problem := request.config.stash[MISSING]:
        pytest.skip(f"no extra brings hosts of their own: {problem}")
