"""Two Tempers on a real Ray Serve, with each of its two proxies."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import closing
from pathlib import Path

import httpx
import openai
import psutil
import pytest
from openai.types.chat import ChatCompletionFunctionToolParam

from tests.scaling.cluster import REPOSITORY
from tests.scaling.conftest import Served, body_of
from tests.timeouts import TIMEOUT_SECONDS

SLOW = "[[tokens=100;ms=50]]"
TOOLS: list[ChatCompletionFunctionToolParam] = [
    {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
]
MEGABYTE = 2**20


def test_the_openai_sdk_gets_text_streamed_or_not_through_ray_serve(served: Served) -> None:
    with openai.OpenAI(base_url=f"{served.client.base_url}/v1", api_key=served.cluster.key) as sdk:
        whole = sdk.chat.completions.create(
            model="m", messages=[{"role": "user", "content": "Hi"}], tools=TOOLS
        )
        assert whole.choices[0].message.content == "word word word "
        stream = sdk.chat.completions.create(
            model="m", messages=[{"role": "user", "content": "Hi"}], stream=True
        )
        text = "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)
        assert text == "word word word "


def test_a_request_id_is_sent_to_the_engine_and_returned_to_the_client(served: Served) -> None:
    answer = served.ask(**{"x-request-id": "one-id", "traceparent": f"00-{'a' * 32}-{'b' * 16}-01"})
    assert answer.headers.get_list("x-request-id") == ["one-id"]
    assert served.engine.received_headers[-1]["x-request-id"] == "one-id"
    assert served.replica_of("one-id").partition("#")[2] in served.cluster.replicas()
    request_ids = served.ask().headers.get_list("x-request-id")
    assert len(request_ids) == 1
    assert served.engine.received_headers[-1]["x-request-id"] == request_ids[0]


def test_errors_of_temper_are_returned_unchanged(served: Served) -> None:
    without = httpx.post(f"{served.cluster.url}/v1/chat/completions", json=body_of("Hi"))
    assert without.status_code == 401
    assert without.json()["error"]["code"] == "invalid_api_key"
    missing = served.client.get("/v1/nothing")
    assert (missing.status_code, missing.json()["error"]["type"]) == (404, "invalid_request_error")
    wrong = served.client.post("/v1/chat/completions", json={"model": "m"})
    assert wrong.status_code == 400


def test_request_of_eight_megabytes_is_accepted(served: Served) -> None:
    assert served.ask("x" * 8 * MEGABYTE).status_code == 200


def test_tokens_are_streamed_one_by_one(served: Served) -> None:
    stream = served.client.stream(
        "POST", "/v1/chat/completions", json=body_of("[[tokens=40;ms=25]]", stream=True)
    )
    with stream as answer:
        words = (line for line in answer.iter_lines() if "word" in line)
        moments = [time.monotonic() for _ in words]
    assert len(moments) == 40
    assert moments[-1] - moments[0] >= 0.9


def test_disconnect_ends_the_stream_of_the_engine(served: Served) -> None:
    stream = served.client.stream(
        "POST", "/v1/chat/completions", json=body_of("[[tokens=10000;ms=50]]", stream=True)
    )
    with stream as answer:
        next(answer.iter_bytes())
    assert served.engine.left.acquire(timeout=TIMEOUT_SECONDS)


@pytest.mark.parametrize("packets", [1, 2])
def test_a_disconnect_before_the_first_byte_cancels_the_generation(
    served: Served, packets: int
) -> None:
    """HAProxy notices at the latest when it cannot deliver the second keep-alive comment."""
    raw = json.dumps(body_of("[[silence]]", stream=True)).encode()
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\n"
        f"authorization: Bearer {served.cluster.key}\r\ncontent-type: application/json\r\n"
        f"content-length: {len(raw)}\r\n\r\n"
    ).encode()
    while served.engine.arrived.acquire(blocking=False):
        pass
    with closing(socket.create_connection(("127.0.0.1", served.cluster.ports.http))) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for piece in (head + raw,) if packets == 1 else (head, raw):
            client.sendall(piece)
        assert served.engine.arrived.acquire(timeout=TIMEOUT_SECONDS)
    assert served.engine.left.acquire(timeout=TIMEOUT_SECONDS)


def test_requests_to_a_full_queue_get_429_from_temper(served: Served) -> None:
    same = {"x-session-id": "line"}
    futures = [served.pool.submit(served.ask, "[[tokens=1;ms=1500]]", **same) for _ in range(50)]
    answers = [future.result() for future in futures]
    assert {answer.status_code for answer in answers} == {200, 429}
    refused = next(answer for answer in answers if answer.status_code == 429)
    assert refused.json()["error"]["code"] == "queue_full"
    assert "retry-after" in refused.headers


def test_each_session_stays_on_one_replica_and_sessions_are_spread_over_both(
    served: Served,
) -> None:
    names = [f"session-{number}" for number in range(12)]
    homes = {name: homes_of(served, name, turns=3) for name in names}
    assert {len(replicas) for replicas in homes.values()} == {1}
    assert len({next(iter(replicas)) for replicas in homes.values()}) == 2


def homes_of(served: Served, session: str, *, turns: int) -> set[str]:
    """Return the replicas that answered for a session."""
    ids = [f"{session}-{os.urandom(4).hex()}" for _ in range(turns)]
    for session_id in ids:
        served.ask(**{"x-session-id": session, "x-request-id": session_id})
    return {served.replica_of(session_id) for session_id in ids}


def test_the_metrics_of_each_replica_count_its_own_requests(served: Served) -> None:
    before = counted(served)
    assert len(before) == 2
    for number in range(20):
        served.ask(**{"x-session-id": f"metrics-{number}"})
    after = counted(served)
    assert all(after[target] > before[target] for target in before)
    assert sum(after.values()) - sum(before.values()) == 20


def counted(served: Served) -> dict[str, float]:
    """Return how many requests each replica has answered, read like Prometheus does."""
    counts: dict[str, float] = {}
    for file in Path(str(served.arguments["scraping"])).glob("*.json"):
        (group,) = json.loads(file.read_text())
        (target,) = group["targets"]
        text = httpx.get(
            f"http://{target}/metrics",
            headers={"authorization": f"Bearer {served.cluster.key}"},
            trust_env=False,
        ).text
        lines = [line for line in text.splitlines() if line.startswith("temper_requests_total{")]
        counts[target] = sum(float(line.rpartition(" ")[2]) for line in lines)
    return counts


def test_one_log_line_names_the_settings_that_serve_overrides(served: Served) -> None:
    lines = [line for line in served.cluster.logs().splitlines() if "no effect here" in line]
    assert {json.loads(line)["event"].partition(":")[0] for line in lines} == {"server.port"}
    assert len(lines) == len({json.loads(line)["replica"] for line in lines})


def test_secrets_are_neither_in_the_dashboard_nor_in_logs(served: Served) -> None:
    places = ("/api/serve/applications/", "/nodes?view=summary", "/api/jobs/", "/api/v0/actors")
    seen = [served.cluster.operator.get(path).text for path in places]
    assert "proxy.scaling.serve:app" in seen[0]
    logs = served.cluster.logs()
    assert '"event": "request"' in logs
    assert [text for text in (*seen, logs) if served.cluster.key in text] == []


def test_memory_does_not_grow_while_a_client_does_not_read(served: Served) -> None:
    """One run of three must succeed, because unrelated allocations grow a replica once."""
    assert any(grown_by_a_flood(served) < 10 * MEGABYTE for _ in range(3))


def grown_by_a_flood(served: Served) -> int:
    """Return how much a process grows while a client does not read its response.

    HAProxy applies backpressure to the engine, so the response is long. Ray's own proxy buffers the
    response, so it has only 12,000 tokens, as many as an engine generates in a minute at 200/s.
    """
    flood = "tokens=20000;ms=0;bytes=4096"
    mark = flood if served.cluster.ingress == "haproxy" else "tokens=12000;ms=0"
    with closing(socket.socket()) as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(("127.0.0.1", served.cluster.ports.http))
        raw = json.dumps(body_of(f"[[{mark}]]", stream=True)).encode()
        client.sendall(
            f"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\n"
            f"authorization: Bearer {served.cluster.key}\r\ncontent-type: application/json\r\n"
            f"content-length: {len(raw)}\r\n\r\n".encode()
            + raw
        )
        before = memory(served)
        until_nothing_is_sent(served)
        return max(after - before[name] for name, after in memory(served).items())


def memory(served: Served) -> dict[int, int]:
    """Return the memory of the Serve processes on the request path."""
    wanted = ("ServeReplica", "ProxyActor", "haproxy ")
    memory: dict[int, int] = {}
    for number, command in served.cluster.processes().items():
        if any(part in command for part in wanted):
            memory[number] = psutil.Process(number).memory_info().rss
    return memory


def until_nothing_is_sent(served: Served) -> None:
    """Wait until backpressure keeps the engine from sending."""
    still, before = 0, -1
    while still < 10:
        threading.Event().wait(0.2)
        still = still + 1 if served.engine.sent == before else 0
        before = served.engine.sent


# Each of the following tests changes the running application, so their order matters.


class Load:
    """Twelve long streams, and short requests one after the other, until it is ended."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self._is_over = threading.Event()
        self.streams: list[Future[bytes]] = []
        for number in range(12):
            headers = {"x-session-id": f"load-{number}"}
            self.streams.append(served.pool.submit(served.stream, SLOW, **headers))
        for _ in self.streams:
            assert served.engine.arrived.acquire(timeout=TIMEOUT_SECONDS)
        self._short = served.pool.submit(self._ask)

    def _ask(self) -> list[int]:
        tokens: list[int] = []
        while not self._is_over.is_set():
            try:
                tokens.append(self._served.ask(**{"x-session-id": str(len(tokens))}).status_code)
            except httpx.TransportError:
                tokens.append(0)
        return tokens

    def ended(self) -> tuple[int, list[int]]:
        """Return how many streams were complete, and the statuses of the short requests."""
        whole = sum(stream.result().count(b"[DONE]") for stream in self.streams)
        self.end()
        return whole, self._short.result()

    def end(self) -> None:
        """Stop sending requests."""
        self._is_over.set()


def failures_in_a_switch(served: Served, answered: list[int]) -> list[int]:
    """Return the failures, without one request that may fail because an HAProxy stops.

    An HAProxy that stops knows only replicas that stop as well. If they stop first, as on a busy
    machine, it returns 500. It may also close a kept-alive connection on which a request arrives
    (status 0); an SDK would retry this request.
    """
    failed = [status for status in answered if status != 200]
    may_fail = served.cluster.ingress == "haproxy" and failed[:1] in ([0], [500])
    return failed[1:] if may_fail else failed


@pytest.fixture
def load(served: Served) -> Iterator[Load]:
    while served.engine.arrived.acquire(blocking=False):
        pass
    load = Load(served)
    yield load
    load.end()


def test_a_killed_replica_loses_its_own_requests_and_is_replaced(
    served: Served, load: Load
) -> None:
    killed, number = next(iter(served.cluster.replicas().items()))
    os.kill(number, signal.SIGKILL)
    served.cluster.until(
        lambda: len(served.cluster.replicas()) == 2 and killed not in served.cluster.replicas()
    )
    whole, answered = load.ended()
    assert 0 < whole < 12
    # only the request that the killed replica was answering may fail
    assert sum(status != 200 for status in answered) <= 1
    assert len(answered) > 20


def test_deploying_a_new_configuration_replaces_all_replicas_and_fails_no_request(
    served: Served, load: Load
) -> None:
    before = served.cluster.replicas()
    file = Path(str(served.arguments["config"]))
    file.write_text(file.read_text().replace("[server]", "[server]\nmax_body_bytes = 100000"))
    served.cluster.deploy({**served.arguments, "revision": "2"})
    assert served.cluster.replicas().keys().isdisjoint(before)
    whole, answered = load.ended()
    assert whole == 12
    assert failures_in_a_switch(served, answered) == []
    assert served.ask("x" * 200_000).status_code == 413


def test_reducing_the_number_of_replicas_fails_no_request(served: Served, load: Load) -> None:
    served.cluster.deploy({**served.arguments, "revision": "2", "replicas": 1})
    assert len(served.cluster.replicas()) == 1
    whole, answered = load.ended()
    assert whole == 12
    assert failures_in_a_switch(served, answered) == []


def test_an_invalid_argument_of_the_ray_application_is_a_one_line_error_before_the_start() -> None:
    code = "from proxy.scaling.serve import app; app({'replica': 2})"
    ended = subprocess.run(
        [sys.executable, "-c", code],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    last = ended.stderr.splitlines()[-1]
    assert last == "ValueError: replica: is not an argument; did you mean replicas?"
