"""Fixtures of the tests of the benchmarks; their event loop is asyncio's."""

import subprocess
from collections.abc import Iterator

import pytest

from tests.fakes.quick_start import Program


@pytest.fixture(scope="module")
def programs_are_forks() -> Iterator[None]:
    """Let benchmarks fork their programs, because these tests do not measure the start."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subprocess, "Popen", Program)
        yield
