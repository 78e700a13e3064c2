"""A real llama-server with the hand-written model, for tests that are not asynchronous."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
from anyio.from_thread import start_blocking_portal

from proxy.processes.launch import LaunchPlan, embedded_program
from proxy.processes.llama_server import start_llama_server
from proxy.processes.process import RunningServer
from temper_evals.demo.chat_template import chat_template
from temper_evals.demo.scripted_model import build_scripted_model
from tests.fakes.scripts import SCRIPTS
from tests.timeouts import TIMEOUT_SECONDS

CONTEXT_TOKENS = 8192
SLOTS = 2


def build_model(path: Path, *, context_tokens: int = CONTEXT_TOKENS) -> Path:
    """Write the model of `tests.fakes.scripts`, with a template that supports reasoning."""
    template = chat_template(thinking=True)
    build_scripted_model(path, SCRIPTS, context_tokens=context_tokens, template=template)
    return path


def plan_for(
    model: Path, *, context_tokens: int = CONTEXT_TOKENS, slots: int = SLOTS
) -> LaunchPlan:
    """Return the launch plan of the embedded server, even if PATH has another llama-server."""
    return LaunchPlan(embedded_program(), model, context_tokens, slots=slots, alias="scripted")


@contextmanager
def serving(plan: LaunchPlan) -> Iterator[RunningServer]:
    """Run a server during the block; a thread supervises its process."""
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(start_llama_server(plan)) as server,
    ):
        yield server


async def seconds_until(server: RunningServer, *, is_busy: bool) -> float:
    """Poll `/slots` until any slot (or no slot) is processing; return the elapsed seconds."""
    headers = {"authorization": f"Bearer {server.api_key}"}
    start = time.monotonic()
    async with (
        asyncio.timeout(TIMEOUT_SECONDS),
        httpx.AsyncClient(headers=headers, timeout=TIMEOUT_SECONDS, trust_env=False) as client,
    ):
        while True:
            slots = (await client.get(f"{server.base_url}/slots")).json()
            if any(slot["is_processing"] for slot in slots) is is_busy:
                return time.monotonic() - start
