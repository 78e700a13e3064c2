"""Property tests try the same examples in every run.

HYPOTHESIS_PROFILE=searching tries others, and HYPOTHESIS_PROFILE=thorough 100,000 of them.
"""

import os
from collections.abc import Iterator

import pytest
from hypothesis import settings
from sse_starlette.sse import AppStatus

# no deadlines: how long an example takes depends on who else uses the machine
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.register_profile("searching", max_examples=20_000, deadline=None)
settings.register_profile("thorough", max_examples=100_000, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))


@pytest.fixture(autouse=True)
def nobody_else_is_told_to_stop() -> Iterator[None]:
    """sse-starlette remembers a signal for the whole process; other tests have servers too."""
    yield
    AppStatus.should_exit = False
