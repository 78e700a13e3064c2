"""Engines on hosts that vanish, return, or are reachable in one direction only."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import pytest

from tests.hosts.network import IPV4, Host, network
from tests.hosts.programs import NEVER, Client, Engine, client_on, engine_on, temper_on, until

# long enough for a fault to occur meanwhile, short enough for a test
LONG = "[[tokens=4000;ms=20]]"
# faults in both directions: packets are dropped silently, or the link is down
GONE = ("cut", "unplug")
ONE_WAY = ("deafen", "mute")


@dataclass(frozen=True)
class Lan:
    """A client, a Temper, and one or two engines."""

    client: Client
    engines: Sequence[Engine]
    temper: Host

    def busy_engine(self) -> Engine:
        """Return the engine that received the request; the next request goes to it as well."""
        (busy_engine,) = (engine for engine in self.engines if engine.app.received_headers)
        return busy_engine


@contextmanager
def lan(engines: int = 1, /, family: str = IPV4, **settings: str) -> Iterator[Lan]:
    names = [f"engine{number}" for number in range(engines)]
    with (
        network("client", "temper", *names, family=family) as (client, other, *hosts),
        ExitStack() as stack,
    ):
        running = [stack.enter_context(engine_on(host)) for host in hosts]
        url = stack.enter_context(temper_on(other, *running, **settings))
        yield Lan(stack.enter_context(client_on(client, url)), running, other)


def fail(host: Host, fault: str) -> None:
    getattr(host, fault)()


@pytest.mark.fault("F88")
@pytest.mark.parametrize("fault", GONE)
def test_a_request_to_an_engine_host_that_vanished_is_an_error(fault: str, *, stream: bool) -> None:
    with lan() as pair:
        fail(pair.engines[0].host, fault)
        answer = pair.client.ask(stream=stream).ended()
        assert answer.status == 502 or stream  # the keep-alives of a stream begin with status 200
        assert answer.error["code"] == "backend_unavailable"
        assert not pair.engines[0].app.received_headers


@pytest.mark.fault("F88")
@pytest.mark.parametrize("fault", GONE)
def test_a_request_to_a_vanished_engine_host_is_answered_by_another_engine(
    fault: str, *, stream: bool
) -> None:
    with lan(2) as pair:
        assert pair.client.ask(stream=stream).ended().is_whole
        busy_engine = pair.busy_engine()
        busy_engine.reboot()  # so that Temper has no idle connection to it
        fail(busy_engine.host, fault)
        answer = pair.client.ask(stream=stream).ended()
        assert answer.is_whole
        assert answer.words == 3
        assert [len(engine.app.received_headers) for engine in pair.engines] == [1, 1]


@pytest.mark.fault("F89")
@pytest.mark.parametrize("fault", [*GONE, *ONE_WAY])
def test_request_on_an_idle_connection_to_a_lost_host_fails_quickly(
    fault: str, *, stream: bool
) -> None:
    with lan() as pair:
        assert pair.client.ask(stream=stream).ended().is_whole
        fail(pair.engines[0].host, fault)
        answer = pair.client.ask(stream=stream).ended()
        assert answer.error["code"] == "backend_unavailable"
        assert answer.words == 0


@pytest.mark.fault("F89")
@pytest.mark.parametrize("fault", ["cut", "deafen"])
def test_a_request_that_its_engine_host_does_not_acknowledge_is_answered_by_another(
    fault: str, *, stream: bool
) -> None:
    with lan(2) as pair:
        assert pair.client.ask(stream=stream).ended().is_whole
        busy_engine = pair.busy_engine()
        fail(busy_engine.host, fault)
        answer = pair.client.ask(stream=stream).ended()
        assert answer.is_whole
        assert answer.words == 3
        assert [len(engine.app.received_headers) for engine in pair.engines] == [1, 1]


@pytest.mark.fault("F90")
@pytest.mark.parametrize("fault", [*GONE, *ONE_WAY])
def test_a_request_ends_with_an_error_if_its_engine_host_vanishes_during_prefill(
    fault: str, *, stream: bool
) -> None:
    with lan() as pair:
        answer = pair.client.ask("[[silence]]", stream=stream)
        assert pair.engines[0].app.arrived.acquire(timeout=NEVER)
        fail(pair.engines[0].host, fault)
        assert answer.ended().error["code"] == "backend_unavailable"


@pytest.mark.fault("F90")
def test_if_an_engine_host_vanishes_during_prefill_another_engine_answers_the_request(
    *, stream: bool
) -> None:
    with lan(2) as pair:
        assert pair.client.ask(stream=stream).ended().is_whole
        engine = pair.busy_engine()
        engine.app.is_silent = True
        answer = pair.client.ask(stream=stream)
        until(lambda: len(engine.app.received_headers) == 2)
        engine.host.cut()
        assert answer.ended().is_whole
        assert answer.words == 3


@pytest.mark.fault("F91")
@pytest.mark.parametrize("dialect", ["messages", "responses", "ollama"])
def test_in_every_dialect_the_stream_of_a_vanished_host_ends_with_an_error(dialect: str) -> None:
    with lan() as pair:
        answer = pair.client.ask(LONG, stream=True, dialect=dialect).begun()
        pair.engines[0].host.cut()
        assert answer.ended().error["message"]
        assert not answer.is_done
        assert not answer.broke


@pytest.mark.fault("F91")
@pytest.mark.parametrize("fault", [*GONE, *ONE_WAY])
def test_if_an_engine_host_vanishes_its_stream_ends_with_an_error_and_is_not_retried(
    fault: str,
) -> None:
    with lan(2) as pair:
        answer = pair.client.ask(LONG, stream=True).begun()
        busy_engine = pair.busy_engine()
        fail(busy_engine.host, fault)
        assert answer.ended().error["code"] == "backend_unavailable"
        assert not answer.broke
        assert b"[DONE]" not in answer.body
        assert sum(len(engine.app.received_headers) for engine in pair.engines) == 1


@pytest.mark.fault("F92")
def test_restarted_host_answers_despite_stale_connections(*, stream: bool) -> None:
    with lan() as pair:
        assert pair.client.ask(stream=stream).ended().is_whole
        pair.engines[0].reboot()
        answer = pair.client.ask(stream=stream).ended()
        assert answer.is_whole
        assert answer.words == 3
        assert len(pair.engines[0].app.received_headers) == 2


@pytest.mark.fault("F92")
def test_a_stream_ends_with_an_error_if_its_engine_host_restarts() -> None:
    with lan() as pair:
        answer = pair.client.ask("[[silence]]", stream=True)
        assert pair.engines[0].app.arrived.acquire(timeout=NEVER)
        pair.engines[0].reboot()
        assert answer.ended().error["code"] == "backend_unavailable"
        assert pair.client.ask(stream=True).ended().is_whole


@pytest.mark.fault("F93")
@pytest.mark.parametrize("fault", GONE)
@pytest.mark.parametrize("where", ["engine", "client"])
def test_a_short_network_fault_loses_no_byte(fault: str, where: str) -> None:
    """TCP retransmits lost segments, and delivers each byte once and in order."""
    environment = {"TEMPER_BACKEND__LOST_SECONDS": "60", "TEMPER_SERVER__STALL_SECONDS": "60"}
    with lan(**environment) as pair:
        answer = pair.client.ask("[[tokens=100;ms=20]]", stream=True).begun()
        host = pair.engines[0].host if where == "engine" else pair.client.host
        fail(host, fault)
        sent = pair.engines[0].app.sent
        until(lambda: pair.engines[0].app.sent > sent + 1000)
        host.restore()
        assert answer.ended().is_whole
        assert answer.words == 100
        assert len(pair.engines[0].app.received_headers) == 1


@pytest.mark.fault("F94")
def test_only_large_requests_fail_if_large_packets_are_lost(*, stream: bool) -> None:
    with lan() as pair:
        pair.engines[0].host.swallow_large(1200)
        assert pair.client.ask(stream=stream).ended().is_whole
        answer = pair.client.ask("long " * 2000, stream=stream).ended()
        assert answer.error["code"] == "backend_unavailable"
        assert pair.client.ask(stream=stream).ended().is_whole


@pytest.mark.fault("F94")
def test_a_request_ends_at_the_configured_timeout_if_large_response_packets_are_lost(
    *, stream: bool
) -> None:
    """The engine's host acknowledges the request, so only the missing response shows the fault."""
    quick = {"TEMPER_BACKEND__FIRST_BYTE_SECONDS": "3", "TEMPER_BACKEND__IDLE_SECONDS": "3"}
    with lan(**quick) as pair:
        pair.temper.swallow_large(1200)
        answer = pair.client.ask("[[tokens=9;ms=1;bytes=4000]]", stream=stream).ended()
        assert answer.error["code"] in {"backend_timeout", "backend_unavailable"}
