"""Tests of the store without a real server; tests/state uses real servers."""

import asyncio
import gc
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

import pytest

pytest.importorskip("valkey", reason="needs the extra `state`")

from valkey.asyncio import Valkey

from proxy.errors import StateUnavailable
from proxy.state.valkey import StateAddress, ValkeyStore, address_of, open_valkey
from tests.fakes.loopback import own_address
from tests.timeouts import TIMEOUT_SECONDS

pytestmark = pytest.mark.state

NOWHERE = "redis://:secret@127.0.0.1:1"


@dataclass
class RecordingListener:
    """Records the reported states and the failed operations."""

    states: list[tuple[str, bool]] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    now: float = 0.0

    def report_state(self, server: str, *, is_up: bool) -> None:
        self.states.append((server, is_up))

    def count_state_error(self, operation: str) -> None:
        self.failed.append(operation)

    def clock(self) -> float:
        return self.now


@asynccontextmanager
async def open_unreachable(server: RecordingListener) -> AsyncGenerator[ValkeyStore]:
    client = Valkey.from_url(NOWHERE)
    try:
        yield ValkeyStore(client, "there", 1.0, server, clock=server.clock)
    finally:
        await client.aclose()


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("redis://h:1/2?namespace=n", StateAddress("redis://h:1/2", "h:1")),
        (
            "rediss://u:p@h:1?ssl_ca_certs=/a/b&namespace=n",
            StateAddress("rediss://u:p@h:1?ssl_ca_certs=%2Fa%2Fb", "h:1"),
        ),
        ("unix:///a/b?db=1", StateAddress("unix:///a/b?db=1", "/a/b")),
    ],
)
def test_address_of_removes_the_namespace_from_the_url_and_the_password_from_the_name(
    url: str, address: StateAddress
) -> None:
    assert address_of(url) == address


async def test_after_two_failures_no_commands_are_sent_for_two_seconds(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = RecordingListener()
    async with open_unreachable(server) as store:
        for _ in range(5):
            with pytest.raises(StateUnavailable):
                await store.look_up("n")
        assert server.failed == ["look_up"] * 2
        assert not store.is_usable
        server.now = 2.0
        with pytest.raises(StateUnavailable):
            await store.claim("n", b"", 1.0)
        assert server.failed == ["look_up", "look_up", "claim"]
    assert server.states == [("there", False)]
    assert caplog.text.count("cannot be used") == 1
    assert "secret" not in caplog.text


@pytest.mark.fault("F85")
@pytest.mark.parametrize(
    "answer",
    [b":1\r\n", b"*1\r\n" * 200_000 + b":1\r\n", b"*1\r\n$1\r\nx\r\n", b"#t\r\n", b"\0\r\n"],
    ids=["number", "nested", "list", "boolean", "null byte"],
)
async def test_an_invalid_response_of_the_store_raises_state_unavailable(answer: bytes) -> None:
    async def reply(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while await reader.read(65536):
                writer.write(answer)
                await writer.drain()
        writer.close()

    fake_server = RecordingListener()
    async with await asyncio.start_server(reply, own_address(), 0) as server:
        host, port = server.sockets[0].getsockname()
        client = Valkey(host=host, port=port, lib_name=None, lib_version=None)
        store = ValkeyStore(client, "there", TIMEOUT_SECONDS, fake_server, clock=fake_server.clock)
        for read in (store.look_up("n"), store.use("n", 1.0)):
            with pytest.raises(StateUnavailable):
                await read
        await client.aclose()
    assert fake_server.failed == ["look_up", "use"]


async def test_open_valkey_does_not_wait_for_the_server() -> None:
    server = RecordingListener()
    async with open_valkey(NOWHERE, 0.05, server) as store:
        assert store.is_usable
    assert server.states in ([], [("127.0.0.1:1", True)])


@pytest.mark.fault("F85")
async def test_open_valkey_closes_although_its_watch_task_ignores_a_cancellation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The client uses `asyncio.wait_for`, which can lose a cancellation in Python 3.11."""

    async def watch(_: ValkeyStore) -> None:
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        await asyncio.Event().wait()

    monkeypatch.setattr(ValkeyStore, "watch", watch)
    async with open_valkey(NOWHERE, 0.01, RecordingListener()):
        await asyncio.sleep(0)


async def test_a_transaction_without_a_response_returns_its_connection_to_the_pool() -> None:
    """Seed 4415 of the simulation: the client's pipeline kept the connection."""
    problems: list[str] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda _loop, context: problems.append(f"{context}")
    )

    async def reply(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            if b"WATCH" in data and b"UNWATCH" not in data:
                writer.write(b"+OK\r\n")
            elif b"GET" in data:
                writer.write(b"$-1\r\n")
        writer.close()

    listener = RecordingListener()
    async with await asyncio.start_server(reply, own_address(), 0) as server:
        host, port = server.sockets[0].getsockname()
        client = Valkey(host=host, port=port, lib_name=None, lib_version=None, socket_timeout=0.05)
        store = ValkeyStore(client, "there", TIMEOUT_SECONDS, listener, clock=listener.clock)
        with pytest.raises(StateUnavailable):
            await store.finish("n", b"claim", b"answer", 1.0)
        gc.collect()
        await client.aclose()
    assert problems == []
