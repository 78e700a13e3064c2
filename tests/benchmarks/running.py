"""The mock backend of benchmarks, and a client of it."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import httpx

from benchmarks.load import backend
from tests.patience import PATIENCE_SECONDS


@asynccontextmanager
async def mock_backend() -> AsyncGenerator[httpx.AsyncClient, None]:
    server = await backend.start(0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        url = f"http://127.0.0.1:{port}"
        async with httpx.AsyncClient(base_url=url, timeout=PATIENCE_SECONDS) as client:
            yield client
