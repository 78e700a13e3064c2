"""Hosts as network namespaces, and programs on them: `pytest tests/hosts`, Linux and root.

These tests run only if pytest is given this folder (tests/conftest.py). A client, two Tempers, a
balancer, a store and two engines each have a network namespace; see `network.py`.
"""

import pytest

from tests.hosts.network import missing


def pytest_configure(config: pytest.Config) -> None:
    config.stash[MISSING] = missing()


MISSING = pytest.StashKey[str]()


@pytest.fixture(autouse=True)
def hosts_can_be_made(request: pytest.FixtureRequest) -> None:
    """Skip every test where network namespaces cannot be made."""
    if problem := request.config.stash[MISSING]:
        pytest.skip(f"this machine cannot simulate hosts, and no extra helps: {problem}")
