"""How the tests of the benchmarks run: those that need an event loop, on asyncio."""

import subprocess
from collections.abc import Iterator

import pytest

from tests.fakes.quick_start import Program


@pytest.fixture(scope="module")
def programs_are_forks() -> Iterator[None]:
    """What benchmarks start begins as a fork, for tests to which a start's cost means nothing."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subprocess, "Popen", Program)
        yield
