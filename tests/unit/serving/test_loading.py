import asyncio

import pytest

from proxy.errors import BackendUnavailable
from proxy.serving.loading import load_wait


class NeverLoaded:
    """The wait for a model that never comes."""

    is_granted = False
    news = "loading m"

    async def granted(self) -> None:
        await asyncio.Event().wait()

    def late(self) -> BackendUnavailable:
        return BackendUnavailable("m", "is still being loaded", loading=True)


def test_a_wait_ends_when_its_time_is_over() -> None:
    async def scene() -> None:
        claim = NeverLoaded()
        async with load_wait(claim, 0.001):
            await claim.granted()

    with pytest.raises(BackendUnavailable, match="still being loaded") as raised:
        asyncio.run(scene())
    assert raised.value.loading


def test_a_wait_that_was_short_enough_leaves_no_trace() -> None:
    async def scene() -> str:
        async with load_wait(NeverLoaded(), 60):
            return "loaded"

    assert asyncio.run(scene()) == "loaded"
