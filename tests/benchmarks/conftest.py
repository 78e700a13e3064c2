"""How the tests of the benchmarks run: those that need an event loop, on asyncio."""

import pytest


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"
