"""Fuzz target: a Valkey server that answers with random bytes."""

import asyncio
from contextlib import suppress

from hypothesis import strategies as st

from proxy.errors import StateUnavailable
from proxy.state.valkey import ValkeyStore, open_valkey
from tests.fuzz.files import broken
from tests.fuzz.targets import Target, run

SEPARATOR = b"\x1e"
_PATIENCE = 0.1  # seconds


class _Listener:
    def report_state(self, server: str, *, is_up: bool) -> None:
        """Ignore it."""

    def count_state_error(self, operation: str) -> None:
        """Ignore it."""


def judge(data: bytes) -> None:
    """Use a store whose server answers each packet with the next part of the input."""
    run(_play(data.split(SEPARATOR)))


async def _play(parts: list[bytes]) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while parts and await reader.read(65536):
                writer.write(parts.pop(0))
                await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        async with open_valkey(f"valkey://127.0.0.1:{port}/0", _PATIENCE, _Listener()) as store:
            await _use(store)
    finally:
        server.close()


async def _use(store: ValkeyStore) -> None:
    for command in (
        lambda: store.claim("a", b"1", 1.0),
        lambda: store.look_up("a"),
        lambda: store.keep({"a": b"1", "b": b"2"}, 1.0),
        lambda: store.renew("a", b"1", 1.0),
        lambda: store.use("a", 1.0),
        lambda: store.prolong(["a", "b"], 1.0),
        lambda: store.forget(["a"]),
    ):
        with suppress(StateUnavailable):
            answer = await command()
            assert answer is None or isinstance(answer, bool | bytes), answer


_ANSWERS = st.sampled_from(
    [
        *(b"+OK\r\n", b"+PONG\r\n", b"$1\r\n1\r\n", b"$-1\r\n", b":1\r\n", b"*0\r\n", b"*-1\r\n"),
        *(
            b"+QUEUED\r\n+QUEUED\r\n*2\r\n+OK\r\n+OK\r\n",
            b"%1\r\n+a\r\n:1\r\n",
            b"_\r\n",
            b"#t\r\n",
        ),
        *(b"-OOM no room\r\n", b"-WRONGTYPE\r\n", b"$999999999\r\n", b":" + b"9" * 5000 + b"\r\n"),
        b"*1\r\n" * 2000,
    ]
)

TARGETS = (
    Target(
        "valkey servers",
        st.lists(broken(_ANSWERS), max_size=9).map(SEPARATOR.join),
        judge,
        is_guided=False,
    ),
)
