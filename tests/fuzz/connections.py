"""Bytes after an answered request on a connection: each response is complete."""

import asyncio
from contextlib import closing

import h11
from hypothesis import strategies as st

from proxy.api.app import ServerOptions, create_app
from proxy.api.connections import ConnectionLimits
from proxy.api.request_reader import BodyLimits
from proxy.api.server import listen, serving
from tests.fakes.backend import ScriptedBackend
from tests.fakes.sockets import connected, read_until_closed
from tests.fuzz.targets import Target, run

GOOD = b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n"
LIMITS = ConnectionLimits(head_seconds=0.05, stall_seconds=0.2, drain_seconds=0.1)
_PATIENCE = 5.0


async def _answer(sent: bytes) -> bytes:
    options = ServerOptions(body=BodyLimits(seconds=0.2))
    app = create_app(options.services_for(ScriptedBackend()), options)
    with closing(listen("127.0.0.1", 0)) as listening:
        async with serving(app, listening, 1, LIMITS):
            address = "127.0.0.1", int(listening.getsockname()[1])
            async with connected(address) as (reader, writer), asyncio.timeout(_PATIENCE):
                writer.write(sent)
                return await read_until_closed(reader)


def judge(data: bytes) -> None:
    """Send a request, then these bytes: the request is answered, and each response is complete."""
    answer = run(
        _answer(GOOD + data + b"G")
    )  # "G" begins another request, since an idle connection stays open
    client = h11.Connection(h11.CLIENT)
    client.receive_data(answer)
    client.send(h11.Request(method="GET", target="/healthz", headers=[("host", "x")]))
    client.send(h11.EndOfMessage())
    event = client.next_event()
    assert isinstance(event, h11.Response), answer[:200]
    assert event.status_code == 200
    while not isinstance(event, h11.EndOfMessage):
        event = client.next_event()
        assert isinstance(event, h11.Data | h11.EndOfMessage), answer[:200]
    rest, _ = client.trailing_data
    assert not rest or rest.startswith(b"HTTP/1.1 "), rest[:200]


_PARTS = st.sampled_from(
    [
        *(b"\r\n", b"\n", b"\0", b"G", GOOD, GOOD[:-2], b"POST /v1/chat/completions HTTP/1.1\r\n"),
        *(b"host: x\r\n", b"content-length: 9\r\n", b"transfer-encoding: chunked\r\n", b"\r\n{}"),
        *(b"5;" + b"x" * 900 + b"\r\n", b"0\r\n", b"a: " + b"b" * 900 + b"\r\n", b"expect: 100-c"),
        *(b"connection: close\r\n", b"HTTP/1.1 200 OK\r\n\r\n", b"\xff\xfe", b"{" * 70_000),
    ]
)
TARGETS = (
    Target(
        "after a response",
        st.lists(_PARTS | st.binary(max_size=9), max_size=9).map(b"".join),
        judge,
        is_guided=False,
    ),
)
