"""The wait of a request for a model that has to be loaded first."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Protocol

from proxy.errors import BackendUnavailable


class Claim(Protocol):
    """A request's wait for a model, whoever loads it."""

    @property
    def is_granted(self) -> bool:
        """Whether the model can be used."""

    @property
    def news(self) -> str:
        """What it waits for, for people."""

    async def granted(self) -> None:
        """Wait until the model can be used; raises what prevents it."""

    def late(self) -> BackendUnavailable:
        """Say that it has waited for long enough."""


@asynccontextmanager
async def load_wait(claim: Claim, seconds: float) -> AsyncGenerator[None, None]:
    """Bound the wait for a model in seconds; raises `BackendUnavailable` beyond them."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError as error:
        raise claim.late() from error
