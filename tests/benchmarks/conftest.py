"""How the tests of the benchmarks run: those that need an event loop, on asyncio."""

import subprocess
from collections.abc import Iterator

import pytest

from tests.fakes.quick_start import Program


@pytest.fixture(scope="module")
def programs_are_forks() -> Iterator[None]:
    """Benchmarks start their programs as forks, because these tests do not measure the start."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subprocess, "Popen", Program)
        yield
