"""If a replica is killed during a generation, another replica answers the same request."""

import asyncio
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import httpx

from proxy.conversation import json
from tests.fakes import sse
from tests.fakes.quick_start import COMMAND, Program
from tests.fakes.scripted_backend import Ending, Script, ScriptedBackend
from tests.fakes.sockets import listening
from tests.state.replicas import CHAT, SAID, SECRET, replica
from tests.state.servers import StoreServer
from tests.timeouts import TIMEOUT_SECONDS


@contextmanager
def mortal(backend: str, store: str) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Run a Temper in a separate process that a test may kill."""
    command = [*COMMAND, "serve", "--port", "0", "--json"]
    state = {"TEMPER_STATE__URL": store, "TEMPER_STATE__SECRET": SECRET}
    surroundings = {**os.environ, "TEMPER_BACKEND__URL": backend, **state}
    with Program[bytes](command, stdout=subprocess.PIPE, env=surroundings) as process:
        assert process.stdout is not None
        try:
            announced = json.parse(process.stdout.readline())
            assert isinstance(announced, dict)
            yield str(announced["url"]), process
        finally:
            process.kill()


async def test_another_replica_answers_the_same_key_if_the_generating_replica_is_killed(
    store: StoreServer,
) -> None:
    backend = ScriptedBackend(Script((sse.START, Ending.NEVER)), sse.says(SAID))
    async with listening(backend) as upstream, replica(upstream.url, store.url) as other:
        with mortal(upstream.url, store.url) as (url, process):
            async with httpx.AsyncClient(trust_env=False, timeout=TIMEOUT_SECONDS) as client:
                body = {"model": "m", "messages": [{"role": "user", "content": "Warm?"}]}
                sent = {**body, "stream": False}
                key = {"idempotency-key": "k"}
                asking = asyncio.create_task(client.post(url + CHAT, json=sent, headers=key))
                await backend.next_request()
                process.kill()
                await asyncio.gather(asking, return_exceptions=True)
            taken_over = await other.ask("Warm?", key="k")
    assert taken_over.status_code == 200
    assert SAID in taken_over.text
    assert "idempotent-replayed" not in taken_over.headers
    assert len(backend.upstream_requests) == 2
