"""Engines that are known by name, with name servers that fail, and networks without IPv4."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import pytest

from tests.hosts.network import IPV6, Host, network
from tests.hosts.programs import (
    DIALECTS,
    Client,
    Engine,
    PendingResponse,
    client_on,
    engine_on,
    temper_on,
    until,
)
from tests.hosts.test_engines import lan

ENGINE = "http://engine.lan:8080"
UNKNOWN = "http://unknown.lan:8080"  # only the name server could know it
NO_HOST = "10.77.0.99"


@dataclass(frozen=True)
class Named:
    """A Temper that knows its engine by name, and two engines that may have the name."""

    client: Client
    temper: Host
    first: Engine
    second: Engine


@contextmanager
def named(*urls: str, name_server: str = "") -> Iterator[Named]:
    with network("client", "temper", "one", "other") as hosts, ExitStack() as stack:
        client_host, temper_host, *engine_hosts = hosts
        first, second = (stack.enter_context(engine_on(host)) for host in engine_hosts)
        temper_host.define_names({"engine.lan": first.host.address}, name_server)
        url = stack.enter_context(temper_on(temper_host, *urls or (ENGINE,)))
        client = stack.enter_context(client_on(client_host, url))
        yield Named(client, temper_host, first, second)


@pytest.mark.fault("F109")
def test_requests_follow_the_name_of_an_engine_to_its_new_address(*, stream: bool) -> None:
    with named() as lan_of_names:
        assert lan_of_names.client.ask(stream=stream).ended().is_whole
        lan_of_names.temper.define_names({"engine.lan": lan_of_names.second.host.address})
        lan_of_names.first.host.cut()
        # a request on the kept connection to the old address still fails
        until(lambda: lan_of_names.client.ask(stream=stream).ended().is_whole)
        assert len(lan_of_names.second.app.received_headers) == 1


@pytest.mark.fault("F109")
def test_requests_fail_while_the_name_of_an_engine_cannot_be_resolved(*, stream: bool) -> None:
    with named() as lan_of_names:
        assert lan_of_names.client.ask(stream=stream).ended().is_whole
        lan_of_names.temper.define_names({})
        lan_of_names.first.reboot()
        answer = lan_of_names.client.ask(stream=stream).ended()
        assert answer.error["code"] == "backend_unavailable"
        lan_of_names.temper.define_names({"engine.lan": lan_of_names.first.host.address})
        until(lambda: lan_of_names.client.ask(stream=stream).ended().is_whole)


@pytest.mark.fault("F109")
def test_silent_name_server_delays_only_the_engine_that_needs_it(*, stream: bool) -> None:
    """A lookup occupies a thread until the system gives it up, after 10 s on most systems."""
    with named(UNKNOWN, ENGINE, name_server=NO_HOST) as lan_of_names:
        answers = [lan_of_names.client.ask(str(number), stream=stream) for number in range(16)]
        assert all(answer.ended().is_whole for answer in answers)
        assert lan_of_names.client.get("/readyz").is_success


@pytest.mark.fault("F109")
def test_request_that_waits_for_a_silent_name_server_has_a_deadline(*, stream: bool) -> None:
    with named(UNKNOWN, name_server=NO_HOST) as lan_of_names:
        answer = lan_of_names.client.ask(stream=stream).ended()
        assert answer.error["code"] == "backend_unavailable"


@pytest.mark.fault("F110")
@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_dialect_is_served_on_a_network_without_ipv4(dialect: str, *, stream: bool) -> None:
    with lan(family=IPV6) as pair:
        answer = pair.client.ask(stream=stream, dialect=dialect).ended()
        assert answer.status == 200
        assert answer.words >= 3  # `responses` repeats the text in its last events
        assert not answer.error


@pytest.mark.fault("F110")
def test_a_request_to_a_vanished_host_is_answered_by_another_engine_without_ipv4(
    *, stream: bool
) -> None:
    with lan(2, family=IPV6) as pair:
        assert pair.client.ask(stream=stream).ended().is_whole
        pair.busy_engine().host.cut()
        assert pair.client.ask(stream=stream).ended().is_whole


@pytest.mark.fault("F110")
def test_an_engine_whose_name_has_only_an_ipv6_address_is_reached() -> None:
    with network("client", "temper", "engine", family=IPV6) as hosts, ExitStack() as stack:
        client_host, temper_host, engine_host = hosts
        temper_host.define_names({"engine.lan": engine_host.address})
        stack.enter_context(engine_on(engine_host))
        url = stack.enter_context(temper_on(temper_host, ENGINE))
        client = stack.enter_context(client_on(client_host, url))
        answer: PendingResponse = client.ask().ended()
        assert answer.is_whole
