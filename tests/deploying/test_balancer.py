"""The balancer of docker-compose.yml: a real HAProxy in front of two Tempers."""

import os
import socket
import subprocess
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass

import httpx
import pytest

from proxy.conversation import json
from proxy.conversation.json import JsonObject
from tests.fakes import sse
from tests.fakes.loopback import own_address
from tests.fakes.running_proxy import CHAT, RunningProxy, plain_transport, request, temper
from tests.fakes.scripted_backend import Ending, Script
from tests.test_repository import REPOSITORY
from tests.timeouts import TIMEOUT_SECONDS

pytestmark = pytest.mark.deploying

CONFIGURATION = REPOSITORY / "deploy" / "compose" / "haproxy.cfg"
SESSIONS, TURNS = 12, 3


@contextmanager
def balancing(program: str, first: str, second: str) -> Iterator[str]:
    """Run the balancer on an open socket, so that no request arrives before it listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        variables = {"LISTEN": f"fd@{listener.fileno()}", "HEALTH": "/healthz"}
        variables |= {"FIRST": first.removeprefix("http://")}
        variables |= {"SECOND": second.removeprefix("http://")}
        with subprocess.Popen(
            [program, "-db", "-f", str(CONFIGURATION)],
            env={**os.environ, **variables},
            pass_fds=[listener.fileno()],
            stdout=subprocess.DEVNULL,
        ) as process:
            try:
                yield f"http://127.0.0.1:{port}"
            finally:
                process.terminate()
                process.wait(TIMEOUT_SECONDS)


@dataclass(frozen=True)
class BalancedTempers:
    """Two Tempers with a balancer, and its client."""

    first: RunningProxy
    second: RunningProxy
    client: httpx.AsyncClient

    @property
    def counts(self) -> tuple[int, int]:
        """The number of requests of each Temper."""
        return len(self.first.backend.upstream_requests), len(self.second.backend.upstream_requests)


@asynccontextmanager
async def balanced(program: str, *scripts: Script | bytes) -> AsyncGenerator[BalancedTempers, None]:
    async with temper(*scripts) as first, temper(*scripts) as second:
        with balancing(program, first.server.url, second.server.url) as url:
            async with httpx.AsyncClient(
                base_url=url, timeout=TIMEOUT_SECONDS, transport=plain_transport()
            ) as client:
                yield BalancedTempers(first, second, client)


def in_session(name: str) -> dict[str, str]:
    return {"x-session-id": name, "content-type": "application/json"}


def streamed() -> bytes:
    body: JsonObject = {**request(), "stream": True}
    return json.dump(body)


async def test_each_session_stays_on_one_temper_but_sessions_are_spread_over_both(
    haproxy: str,
) -> None:
    scripts = [sse.says("Yes.")] * (SESSIONS * TURNS)
    places: list[set[tuple[bool, bool]]] = []
    async with balanced(haproxy, *scripts) as tempers:
        for session in range(SESSIONS):
            seen: set[tuple[bool, bool]] = set()
            for _ in range(TURNS):
                before = tempers.counts
                answer = await tempers.client.post(
                    CHAT, content=json.dump(request()), headers=in_session(f"session-{session}")
                )
                assert answer.status_code == 200
                after = tempers.counts
                seen.add((after[0] > before[0], after[1] > before[1]))
            places.append(seen)
        assert all(len(seen) == 1 for seen in places)
        assert min(tempers.counts) > 0


async def test_requests_without_a_session_are_spread_over_both_tempers(haproxy: str) -> None:
    async with balanced(haproxy, *[sse.says("Yes.")] * SESSIONS) as tempers:
        for _ in range(SESSIONS):
            answer = await tempers.client.post(
                CHAT, content=json.dump(request()), headers={"content-type": "application/json"}
            )
            assert answer.status_code == 200
        assert min(tempers.counts) > 0


async def test_the_balancer_does_not_buffer_a_stream(haproxy: str) -> None:
    script = Script((sse.START + sse.text("First"), Ending.NEVER))
    async with (
        balanced(haproxy, script) as tempers,
        tempers.client.stream("POST", CHAT, content=streamed(), headers=in_session("a")) as answer,
    ):
        async for line in answer.aiter_lines():
            if "First" in line:
                return
    raise AssertionError("the stream ended before its first piece")


async def test_disconnect_from_a_stream_cancels_the_generation(haproxy: str) -> None:
    script = Script((sse.START + sse.text("First"), Ending.NEVER))
    async with balanced(haproxy, script) as tempers:
        async with tempers.client.stream(
            "POST", CHAT, content=streamed(), headers=in_session("a")
        ) as answer:
            async for line in answer.aiter_lines():
                if "First" in line:
                    break
        backends = (tempers.first.backend, tempers.second.backend)
        (upstream_request,) = [sent for backend in backends for sent in backend.upstream_requests]
        await upstream_request.left.wait()


async def test_with_one_temper_down_all_requests_are_answered(haproxy: str) -> None:
    nowhere = f"{own_address()}:9"
    async with temper(*[sse.says("Yes.")] * SESSIONS) as alive:
        with balancing(haproxy, alive.server.url, nowhere) as url:
            async with httpx.AsyncClient(
                base_url=url, timeout=TIMEOUT_SECONDS, transport=plain_transport()
            ) as client:
                for session in range(SESSIONS):
                    answer = await client.post(
                        CHAT, content=json.dump(request()), headers=in_session(str(session))
                    )
                    assert answer.status_code == 200


def test_haproxy_accepts_the_shipped_configuration(haproxy: str) -> None:
    variables = {"LISTEN": "127.0.0.1:8367", "HEALTH": "/readyz"}
    variables |= {"FIRST": "127.0.0.1:1", "SECOND": "127.0.0.1:2"}
    checked = subprocess.run(
        [haproxy, "-c", "-V", "-f", str(CONFIGURATION)],
        env={**os.environ, **variables},
        check=False,
        capture_output=True,
        text=True,
    )
    assert checked.returncode == 0
    assert "WARNING" not in checked.stdout + checked.stderr
