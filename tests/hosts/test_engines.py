"""Engines whose hosts go, come back, or are heard in one direction only."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import pytest

from tests.hosts.network import Host, network
from tests.hosts.programs import NEVER, Client, Engine, client_on, engine_on, temper_on, until

# enough for a fault in between, few enough for a test
LONG = "[[tokens=4000;ms=20]]"
GONE = ("cut", "unplug")  # in both directions: in silence, and with a link that is down
ONE_WAY = ("deafen", "mute")


@dataclass(frozen=True)
class Lan:
    """A client, a Temper, and one engine or two."""

    client: Client
    engines: Sequence[Engine]
    temper: Host

    def asked_one(self) -> Engine:
        """Return the engine that was asked; its next question is for it as well."""
        (one,) = (engine for engine in self.engines if engine.app.asked)
        return one


@contextmanager
def lan(engines: int = 1, /, **settings: str) -> Iterator[Lan]:
    names = [f"engine{number}" for number in range(engines)]
    with network("client", "temper", *names) as (one, other, *behind), ExitStack() as stack:
        running = [stack.enter_context(engine_on(host)) for host in behind]
        url = stack.enter_context(temper_on(other, *running, **settings))
        yield Lan(stack.enter_context(client_on(one, url)), running, other)


def fail(host: Host, fault: str) -> None:
    getattr(host, fault)()


@pytest.mark.fault("F88")
@pytest.mark.parametrize("fault", GONE)
def test_a_host_that_is_gone_before_a_question_is_an_error(fault: str, *, stream: bool) -> None:
    with lan() as one:
        fail(one.engines[0].host, fault)
        answer = one.client.ask(stream=stream).ended()
        assert answer.status == 502 or stream  # which gets signs of life
        assert answer.error["code"] == "backend_unavailable"
        assert not one.engines[0].app.asked


@pytest.mark.fault("F88")
@pytest.mark.parametrize("fault", GONE)
def test_another_engine_answers_for_a_host_that_is_gone(fault: str, *, stream: bool) -> None:
    with lan(2) as pair:
        assert pair.client.ask(stream=stream).ended().is_whole
        own = pair.asked_one()
        own.reboot()  # so that no connection is kept
        fail(own.host, fault)
        answer = pair.client.ask(stream=stream).ended()
        assert answer.is_whole
        assert answer.words == 3
        assert [len(engine.app.asked) for engine in pair.engines] == [1, 1]


@pytest.mark.fault("F89")
@pytest.mark.parametrize("fault", [*GONE, *ONE_WAY])
def test_a_question_on_a_kept_connection_is_not_waited_for_in_vain(
    fault: str, *, stream: bool
) -> None:
    with lan() as one:
        assert one.client.ask(stream=stream).ended().is_whole
        fail(one.engines[0].host, fault)
        answer = one.client.ask(stream=stream).ended()
        assert answer.error["code"] == "backend_unavailable"
        assert answer.words == 0


@pytest.mark.fault("F89")
@pytest.mark.parametrize("fault", ["cut", "deafen"])
def test_another_engine_takes_a_question_that_nobody_acknowledges(
    fault: str, *, stream: bool
) -> None:
    with lan(2) as pair:
        assert pair.client.ask(stream=stream).ended().is_whole
        own = pair.asked_one()
        fail(own.host, fault)
        answer = pair.client.ask(stream=stream).ended()
        assert answer.is_whole
        assert answer.words == 3
        assert [len(engine.app.asked) for engine in pair.engines] == [1, 1]


@pytest.mark.fault("F90")
@pytest.mark.parametrize("fault", [*GONE, *ONE_WAY])
def test_a_host_that_goes_while_it_thinks_is_noticed(fault: str, *, stream: bool) -> None:
    with lan() as one:
        answer = one.client.ask("[[silence]]", stream=stream)
        assert one.engines[0].app.arrived.acquire(timeout=NEVER)
        fail(one.engines[0].host, fault)
        assert answer.ended().error["code"] == "backend_unavailable"


@pytest.mark.fault("F90")
def test_another_engine_answers_when_a_host_goes_while_it_thinks(*, stream: bool) -> None:
    with lan(2) as pair:
        assert pair.client.ask(stream=stream).ended().is_whole
        own = pair.asked_one()
        own.app.is_silent = True
        answer = pair.client.ask(stream=stream)
        until(lambda: len(own.app.asked) == 2)
        own.host.cut()
        assert answer.ended().is_whole
        assert answer.words == 3


@pytest.mark.fault("F91")
@pytest.mark.parametrize("fault", [*GONE, *ONE_WAY])
def test_a_stream_whose_host_goes_ends_with_an_error(fault: str) -> None:
    with lan(2) as pair:
        answer = pair.client.ask(LONG, stream=True).begun()
        own = pair.asked_one()
        fail(own.host, fault)
        assert answer.ended().error["code"] == "backend_unavailable"
        assert not answer.broke
        assert b"[DONE]" not in answer.body
        assert sum(len(engine.app.asked) for engine in pair.engines) == 1


@pytest.mark.fault("F92")
def test_a_host_that_is_back_answers_though_connections_were_kept(*, stream: bool) -> None:
    with lan() as one:
        assert one.client.ask(stream=stream).ended().is_whole
        one.engines[0].reboot()
        answer = one.client.ask(stream=stream).ended()
        assert answer.is_whole
        assert answer.words == 3
        assert len(one.engines[0].app.asked) == 2


@pytest.mark.fault("F92")
def test_a_stream_of_before_ends_when_its_host_is_back_and_the_next_is_served() -> None:
    with lan() as one:
        answer = one.client.ask("[[silence]]", stream=True)
        assert one.engines[0].app.arrived.acquire(timeout=NEVER)
        one.engines[0].reboot()
        assert answer.ended().error["code"] == "backend_unavailable"
        assert one.client.ask(stream=True).ended().is_whole


@pytest.mark.fault("F93")
@pytest.mark.parametrize("fault", GONE)
@pytest.mark.parametrize("where", ["engine", "client"])
def test_a_short_network_fault_loses_no_byte(fault: str, where: str) -> None:
    """TCP sends again what was lost, in order and once."""
    patient = {"TEMPER_BACKEND__LOST_SECONDS": "60", "TEMPER_SERVER__STALL_SECONDS": "60"}
    with lan(**patient) as one:
        answer = one.client.ask("[[tokens=100;ms=20]]", stream=True).begun()
        host = one.engines[0].host if where == "engine" else one.client.host
        fail(host, fault)
        sent = one.engines[0].app.sent
        until(lambda: one.engines[0].app.sent > sent + 1000)
        host.restore()
        assert answer.ended().is_whole
        assert answer.words == 100
        assert len(one.engines[0].app.asked) == 1


@pytest.mark.fault("F94")
def test_a_path_that_swallows_large_packets_is_an_error_for_large_questions(
    *, stream: bool
) -> None:
    with lan() as one:
        one.engines[0].host.swallow_large(1200)
        assert one.client.ask(stream=stream).ended().is_whole
        answer = one.client.ask("long " * 2000, stream=stream).ended()
        assert answer.error["code"] == "backend_unavailable"
        assert one.client.ask(stream=stream).ended().is_whole


@pytest.mark.fault("F94")
def test_answers_that_are_swallowed_are_not_waited_for_beyond_the_settings(*, stream: bool) -> None:
    """The engine's host is there, and acknowledges: only silence shows that something is wrong."""
    quick = {"TEMPER_BACKEND__FIRST_BYTE_SECONDS": "3", "TEMPER_BACKEND__IDLE_SECONDS": "3"}
    with lan(**quick) as one:
        one.temper.swallow_large(1200)
        answer = one.client.ask("[[tokens=9;ms=1;bytes=4000]]", stream=stream).ended()
        assert answer.error["code"] in {"backend_timeout", "backend_unavailable"}
