"""Fixtures of the tests of the benchmarks."""

import subprocess
from collections.abc import Iterator

import pytest

from tests.fakes.quick_start import Program


@pytest.fixture(scope="module")
def programs_are_forks() -> Iterator[None]:
    """Start programs as forks of this process, which is faster than a new interpreter.

    The benchmarks use `subprocess.Popen`, and these tests do not check the measured start times.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subprocess, "Popen", Program)
        yield
