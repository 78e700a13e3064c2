"""F51 to F56: more requests than can be served, and duplicate requests."""

import asyncio
import sys
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import cast

import httpx
import pytest

from proxy.api.app import ServerOptions
from proxy.api.edge import Access
from proxy.backends.client import Description
from proxy.backends.llama_server import LlamaServer
from proxy.backends.transport import BackendClient
from proxy.conversation import json
from proxy.conversation.json import JsonObject
from proxy.inference.plan import Policy
from proxy.processes.managed import ManagedBackend
from proxy.processes.process import Process, RunningServer
from proxy.processes.supervisor import Supervisor
from proxy.serving.admission import Priority
from tests.fakes import sse
from tests.fakes.answers import Answer
from tests.fakes.running_proxy import CHAT, RunningProxy, in_front_of, temper
from tests.fakes.scripted_backend import ReceivedRequest, Script, ScriptedBackend
from tests.fakes.sockets import listening
from tests.fakes.sse import calls, says
from tests.faults.proxies import Subject, before
from tests.faults.requests import asks, chats, user
from tests.timeouts import until

START = pytest.mark.fault("F52")
MALFORMED = pytest.mark.fault("F51")
QUEUE = pytest.mark.fault("F53")
TURNS = pytest.mark.fault("F54")
TWICE = pytest.mark.fault("F56")

GOOD = calls("get_weather", '{"city": "Paris"}')
BROKEN = calls("launch_rocket", "{}")
CLIENTS, ROUNDS = 100, 3
MOST_GENERATIONS = 3
MOST_ON_AVERAGE = 1.2
IN_FLIGHT, WAITING, SLOTS = 1_000, 100, 4
CROWD = 200
LASTS = "import signal; signal.pause()"


def asks_for(what: str) -> JsonObject:
    return asks(messages=[user(what)])


def text_of(request: ReceivedRequest) -> str:
    """Return the first user message of a request."""
    messages = cast("list[JsonObject]", request.fields["messages"])
    return str(next(message["content"] for message in messages if message["role"] == "user"))


def with_slots(proxy: RunningProxy, slots: int) -> None:
    proxy.backend.properties = {"model_alias": "m", "total_slots": slots}


@pytest.mark.deep
@MALFORMED
async def test_retries_of_malformed_replies_add_at_most_a_fifth_to_the_upstream_requests(
    subject: str,
) -> None:
    begun = 0
    async with before(subject, *[BROKEN] * (CLIENTS * ROUNDS * 5)) as proxy:

        async def client(name: int) -> None:
            nonlocal begun
            for turn in range(ROUNDS):
                begun += 1
                answer = await proxy.ask(asks_for(f"{name} {turn}"), stream=name % 2 == 0)
                assert not answer.calls

        clients = [asyncio.create_task(client(name)) for name in range(CLIENTS)]
        await asyncio.wait(clients, return_when=asyncio.FIRST_COMPLETED)
        under_load = len(proxy.backend.upstream_requests)
        assert under_load <= MOST_ON_AVERAGE * begun
        await asyncio.gather(*clients)
        generations = Counter(map(text_of, proxy.backend.upstream_requests))
    assert max(generations.values()) <= MOST_GENERATIONS
    assert len(generations) == CLIENTS * ROUNDS


@MALFORMED
async def test_canceled_retries_do_not_reduce_the_retry_budget() -> None:
    never, most = asyncio.Event(), 3
    scripts = [Script((BROKEN,)), Script((never,))] * (most + 1)
    async with temper(*scripts, BROKEN, GOOD) as proxy:
        for _ in range(most + 1):
            asking = asyncio.create_task(proxy.ask(asks()))
            await proxy.backend.next_request()
            retried = await proxy.backend.next_request()
            asking.cancel()
            await retried.left.wait()
        answer = await proxy.ask(asks())
    assert answer.report["outcome"] == "retried"


@MALFORMED
async def test_at_most_three_retries_run_at_once() -> None:
    live, allowed = 8, 3
    first, second = asyncio.Event(), asyncio.Event()
    scripts = [Script((first, BROKEN))] * live + [Script((second, GOOD))] * allowed
    async with temper(*scripts, serving=ServerOptions(policy=Policy(attempts=2))) as proxy:
        asking = [asyncio.create_task(proxy.ask(asks())) for _ in range(live)]
        for _ in range(live):
            await proxy.backend.next_request()
        first.set()
        for _ in range(allowed):
            await proxy.backend.next_request()
        waiting = set(asking)
        while len(waiting) > allowed:
            _, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        second.set()
        answers = [await each for each in asking]
        assert len(proxy.backend.upstream_requests) == live + allowed
    outcomes = [answer.report["outcome"] for answer in answers]
    assert sorted(outcomes) == ["exhausted"] * (live - allowed) + ["retried"] * allowed
    withheld = [answer for answer in answers if "withheld=1" in answer.report["repairs"]]
    assert len(withheld) == live - allowed


@START
async def test_requests_that_wait_for_a_server_start_are_served_in_order() -> None:
    """The model has one slot: with several slots the order would be arbitrary."""
    backend, opens, starts = ScriptedBackend(*[GOOD] * CROWD), asyncio.Event(), 0
    backend.properties = {"model_alias": "m", "total_slots": 1}

    @asynccontextmanager
    async def start() -> AsyncGenerator[RunningServer]:
        nonlocal starts
        starts += 1
        await opens.wait()
        process = await Process.start((sys.executable, "-c", LASTS), name="child")
        try:
            yield RunningServer(upstream.url, "", process)
        finally:
            await process.stop()

    planned = Description(("m",), slots=1, window=8192)
    async with listening(backend) as upstream:
        supervisor = Supervisor("child", start)
        managed = ManagedBackend(
            supervisor, planned, lambda at: LlamaServer(BackendClient(at.base_url)), load_wait=30
        )
        async with in_front_of(managed, None, backend) as proxy:
            crowd = []
            for number in range(CROWD):
                crowd.append(asyncio.create_task(post_raw(proxy, number)))
                await until_inside(proxy, len(crowd))
            assert backend.upstream_requests == []
            opens.set()
            answers = await asyncio.gather(*crowd)
        await supervisor.close()
    assert starts == 1
    assert all(answer.startswith(b"HTTP/1.1 200") for answer in answers)
    turns = [
        int(text_of(upstream_request).removeprefix("client "))
        for upstream_request in backend.upstream_requests
    ]
    assert turns == [*range(CROWD)]


@QUEUE
async def test_concurrent_upstream_requests_are_limited_to_the_slots(*, stream: bool) -> None:
    gate = asyncio.Event()
    async with temper(*[Script((gate, GOOD))] * 5) as proxy:
        with_slots(proxy, 2)
        asking = [asyncio.create_task(proxy.ask(asks(), stream=stream)) for _ in range(5)]
        await proxy.backend.next_request()
        await proxy.backend.next_request()
        health = await proxy.client.get("/healthz")
        assert (health.status_code, len(proxy.backend.upstream_requests)) == (200, 2)
        gate.set()
        answers = await asyncio.gather(*asking)
    assert [answer.report["outcome"] for answer in answers] == ["clean"] * 5


@QUEUE
async def test_requests_beyond_the_limit_of_the_queue_get_429() -> None:
    gate = asyncio.Event()
    serving = ServerOptions(max_waiting=WAITING)
    scripts = [Script((gate, GOOD))] * IN_FLIGHT
    async with temper(says("Hi."), *scripts, serving=serving) as proxy:
        with_slots(proxy, SLOTS)
        await proxy.ask(chats(model="m"))  # Temper knows the number of slots after this request
        refused: list[bytes] = []
        waiting = {asyncio.create_task(post_raw(proxy, number)) for number in range(IN_FLIGHT)}
        while len(refused) < IN_FLIGHT - WAITING - SLOTS:
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            refused += [future.result() for future in done]
        for _ in range(1 + SLOTS):
            await proxy.backend.next_request()
        assert len(proxy.backend.upstream_requests) == 1 + SLOTS
        gate.set()
        served = await asyncio.gather(*waiting)
    assert all(answer.startswith(b"HTTP/1.1 429") for answer in refused)
    assert all(b"\r\nretry-after: " in answer for answer in refused)
    assert all(answer.startswith(b"HTTP/1.1 200") for answer in served)
    assert len(served) == WAITING + SLOTS


@pytest.mark.deep
@QUEUE
async def test_each_of_a_thousand_requests_is_served_or_gets_retry_after(subject: str) -> None:
    serving = ServerOptions(max_waiting=WAITING)
    async with before(subject, *[GOOD] * IN_FLIGHT, serving=serving) as proxy:
        answers = await asyncio.gather(*(post_raw(proxy, number) for number in range(IN_FLIGHT)))
    served = [answer for answer in answers if b"get_weather" in answer]
    assert len(served) >= WAITING
    for answer in answers:
        head = answer.lower()
        assert answer in served or head.startswith((b"http/1.1 429", b"http/1.1 503")), answer
        assert answer in served or b"\r\nretry-after: " in head


async def post_raw(proxy: RunningProxy | Subject, number: int) -> bytes:
    """Send a request on a separate connection and return all bytes received."""
    body = json.dump(asks_for(f"client {number}"))
    host, port = proxy.client.base_url.host, proxy.client.base_url.port
    head = f"POST {CHAT} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {len(body)}"
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(f"{head}\r\ncontent-type: application/json\r\n\r\n".encode() + body)
        return await reader.read()
    finally:
        writer.close()


@QUEUE
async def test_a_request_to_a_full_queue_gets_429_with_retry_after(*, stream: bool) -> None:
    gate = asyncio.Event()
    serving = ServerOptions(max_waiting=1, parallel=1)
    async with temper(Script((gate, GOOD)), GOOD, serving=serving) as proxy:
        first = asyncio.create_task(proxy.ask(asks()))
        await proxy.backend.next_request()
        second = asyncio.create_task(proxy.ask(asks()))
        await wait_until_queued(proxy, 2)
        answer = await proxy.ask(asks(), stream=stream)
        gate.set()
        await asyncio.gather(first, second)
    assert answer.status == 429
    assert answer.headers["retry-after"] == "1"
    assert answer.error is not None
    assert (answer.error["type"], answer.error["code"]) == ("rate_limit_error", "queue_full")


async def until_inside(proxy: RunningProxy, count: int) -> None:
    """Wait until exactly `count` requests are accepted and not yet finished."""
    while len(proxy.server.state.tasks) != count:  # noqa: ASYNC110 - there is no event to wait for
        await asyncio.sleep(0)


async def wait_until_queued(proxy: RunningProxy, inside: int) -> None:
    """Wait until exactly `inside` requests are accepted, unfinished and at the queue."""
    await until_inside(proxy, inside)
    for _ in range(50):
        await asyncio.sleep(0)


@TURNS
async def test_waiting_requests_of_different_keys_are_served_in_turn(*, stream: bool) -> None:
    gate = asyncio.Event()
    overrides = ["a1", "a2", "a3", "b1", "c1"]
    async with temper(Script((gate, GOOD)), *[GOOD] * 4) as proxy:
        with_slots(proxy, 1)
        asking = []
        for override in overrides:
            key = {"authorization": f"Bearer {override[0]}"}
            asking.append(
                asyncio.create_task(proxy.ask(asks_for(override), stream=stream, headers=key))
            )
            await wait_until_queued(proxy, len(asking))
        gate.set()
        await asyncio.gather(*asking)
        order = [text_of(upstream_request) for upstream_request in proxy.backend.upstream_requests]
    assert order == ["a1", "a2", "b1", "c1", "a3"]


@TURNS
async def test_a_client_has_one_turn_no_matter_which_header_contains_its_key(
    *, stream: bool
) -> None:
    gate = asyncio.Event()
    locked = ServerOptions(access=Access({"alice": "ka", "bob": "kb"}))
    headers: dict[str, dict[str, str]] = {
        "a1": {"authorization": "Bearer ka"},
        "a2": {"authorization": "bEARER ka"},
        "a3": {"authorization": "Basic 1", "x-api-key": "ka"},
        "a4": {"authorization": "Basic 2", "x-api-key": "ka"},
        "b1": {"x-api-key": "kb"},
    }
    async with temper(Script((gate, GOOD)), *[GOOD] * 4, serving=locked) as proxy:
        with_slots(proxy, 1)
        asking = []
        for name, key in headers.items():
            asking.append(
                asyncio.create_task(proxy.ask(asks_for(name), stream=stream, headers=key))
            )
            await wait_until_queued(proxy, len(asking))
        gate.set()
        await asyncio.gather(*asking)
        order = [text_of(upstream_request) for upstream_request in proxy.backend.upstream_requests]
    assert order == ["a1", "a2", "b1", "a3", "a4"]


@TURNS
async def test_a_flood_of_requests_with_one_key_leaves_room_in_the_queue_for_other_keys(
    *, stream: bool
) -> None:
    gate = asyncio.Event()
    limits = {"boss": Priority.HIGH}
    keys = {"flood": "kf", "boss": "kb", "alice": "ka"}
    serving = ServerOptions(access=Access(keys), max_waiting=8, priorities=limits)
    async with temper(Script((gate, GOOD)), *[GOOD] * 40, serving=serving) as proxy:
        with_slots(proxy, 1)
        asking = list[asyncio.Task[Answer]]()

        async def ask(owner: str, number: int) -> None:
            headers = {"authorization": f"Bearer {keys[owner]}", "x-temper-priority": "high"}
            body = asks_for(f"{owner} {number}")
            asking.append(asyncio.create_task(proxy.ask(body, stream=stream, headers=headers)))
            # The queue for normal requests is full, but `boss` is still admitted, because no other
            # request waits at a high priority.
            inside = min(len(asking), 1 + serving.max_waiting + (owner == "boss"))
            await until(lambda: sum(each.done() for each in asking) == len(asking) - inside)
            await wait_until_queued(proxy, inside)

        for number in range(30):
            await ask("flood", number)
        for number in range(3):
            await ask("alice", number)
        await ask("boss", 0)
        gate.set()
        answers = [await each for each in asking]
        order = [text_of(upstream_request) for upstream_request in proxy.backend.upstream_requests]
    statuses = [answer.status for answer in answers]
    assert statuses[30:] == [200] * 4
    assert statuses.count(429) == 21 + 3
    assert order[:2] == ["flood 0", "boss 0"]  # `flood` may not use the priority that it requests
    assert order[2:6] == ["flood 1", "alice 0", "flood 2", "alice 1"]


@TURNS
async def test_a_key_gives_no_priority_on_a_server_without_api_keys(*, stream: bool) -> None:
    gate = asyncio.Event()
    serving = ServerOptions(priorities={"boss": Priority.HIGH})
    async with temper(Script((gate, GOOD)), *[GOOD] * 2, serving=serving) as proxy:
        with_slots(proxy, 1)
        asking = []
        for name in ("first", "second", "boss"):
            headers = {"x-api-key": name, "x-temper-priority": "high"}
            task = proxy.ask(asks_for(name), stream=stream, headers=headers)
            asking.append(asyncio.create_task(task))
            await wait_until_queued(proxy, len(asking))
        gate.set()
        await asyncio.gather(*asking)
        order = [text_of(upstream_request) for upstream_request in proxy.backend.upstream_requests]
    assert order == ["first", "second", "boss"]


KEY = {"idempotency-key": "one-and-only"}


async def post_with_key(
    proxy: RunningProxy, *, stream: bool, wanted: JsonObject | None = None
) -> httpx.Response:
    body = {**(wanted or chats()), "stream": stream}
    return await proxy.client.post(CHAT, json=body, headers=KEY)


@TWICE
async def test_repeated_idempotency_key_returns_the_stored_response(*, stream: bool) -> None:
    async with temper(says("One."), says("Two.")) as proxy:
        first, second = [await post_with_key(proxy, stream=stream) for _ in range(2)]
    assert b"One." in first.content
    assert first.content == second.content
    assert len(proxy.backend.upstream_requests) == 1


@TWICE
async def test_concurrent_requests_with_one_idempotency_key_share_a_generation(
    *, stream: bool
) -> None:
    gate = asyncio.Event()
    slow = Script((sse.START, gate, sse.text("One.") + sse.end()))
    async with temper(slow, says("Two.")) as proxy:
        first = asyncio.create_task(post_with_key(proxy, stream=stream))
        await proxy.backend.next_request()
        second = asyncio.create_task(post_with_key(proxy, stream=stream))
        assert (await proxy.client.get("/health")).status_code < 500
        gate.set()
        answers = [await first, await second]
    assert b"One." in answers[0].content
    assert answers[0].content == answers[1].content
    assert len(proxy.backend.upstream_requests) == 1


@TWICE
async def test_the_second_client_with_the_same_key_gets_the_response_even_if_the_first_disconnects(
    *, stream: bool
) -> None:
    gate = asyncio.Event()
    slow = Script((sse.START, gate, sse.text("One.") + sse.end()))
    async with temper(slow) as proxy:
        first = asyncio.create_task(post_with_key(proxy, stream=stream))
        await proxy.backend.next_request()
        second = asyncio.create_task(post_with_key(proxy, stream=stream))
        await wait_until_queued(proxy, 2)
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        await wait_until_queued(proxy, 1)
        gate.set()
        assert b"One." in (await second).content
    assert len(proxy.backend.upstream_requests) == 1


@TWICE
async def test_idempotency_key_with_another_body_is_rejected(*, stream: bool) -> None:
    async with temper(says("One."), says("Two.")) as proxy:
        await post_with_key(proxy, stream=stream)
        other = await post_with_key(proxy, stream=stream, wanted=chats(messages=[user("Else?")]))
    assert other.status_code in (400, 409, 422)
    assert len(proxy.backend.upstream_requests) == 1
