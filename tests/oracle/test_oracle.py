"""A short, reproducible run of the oracle, and defects that it has to find."""

import asyncio

import pytest

from proxy.api import server
from proxy.api.connections import ConnectionLimits, GuardedConnection
from tests.examples import mostly_deep
from tests.oracle import __main__ as command
from tests.oracle.chain import running_chain
from tests.oracle.judgment import Oracle

pytestmark = pytest.mark.deploying
FEW = 400
MANY = 2_000  # each defect is found much earlier
_CODING = b"transfer-encoding: chunked"


async def test_haproxy_and_temper_read_random_bytes_as_the_same_requests(haproxy: str) -> None:
    async with running_chain(haproxy) as chain:
        oracle = Oracle(chain, 1)
        await oracle.run(FEW)
    assert oracle.findings == []
    assert min(oracle.forwarded, oracle.direct) > FEW / 10


async def test_the_command_prints_the_number_of_compared_inputs(
    haproxy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    del haproxy
    assert await asyncio.to_thread(command.main, ["--count", "9", "--seed", "1"]) == 0
    assert "seed 1: 9 inputs in" in capsys.readouterr().out


class IgnoresLengths(GuardedConnection):
    """Parses a body that has a Content-Length as the next request."""

    def data_received(self, data: bytes) -> None:
        super().data_received(data.replace(b"content-length: ", b"content-lenght: "))


class IgnoresCodings(GuardedConnection):
    """Parses the chunks of a body as the next request."""

    def data_received(self, data: bytes) -> None:
        super().data_received(data.replace(_CODING, b"x" + _CODING[1:]))


class PrefersLengths(GuardedConnection):
    """Ignores the transfer coding of a request that also has a Content-Length."""

    def data_received(self, data: bytes) -> None:
        head, end, body = data.partition(b"\r\n\r\n")
        if b"content-length: " in head:
            head = head.replace(_CODING, b"x" + _CODING[1:])
        super().data_received(head + end + body)


class ReadsNoBodiesOfUpgrades(GuardedConnection):
    """Parses the body of an upgrade request as the next request, as uvicorn may."""

    def _head_without_upgrade(self) -> bytes:
        head = super()._head_without_upgrade()
        return head.replace(b"content-length: ", b"content-lenght: ").replace(_CODING, b"x: y")


DEFECTS = (IgnoresLengths, IgnoresCodings, PrefersLengths, ReadsNoBodiesOfUpgrades)


@pytest.mark.parametrize("defect", mostly_deep(DEFECTS))
async def test_the_oracle_finds_a_defect_planted_in_temper(
    defect: type[GuardedConnection], haproxy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def planted(limits: ConnectionLimits) -> type[GuardedConnection]:
        return type("Planted", (defect,), {"limits": limits})

    monkeypatch.setattr(server, "limit_connections", planted)
    async with running_chain(haproxy) as chain:
        oracle = Oracle(chain, 1)
        await oracle.run(MANY)
    assert oracle.findings != []
