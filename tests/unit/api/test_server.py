import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import AsyncGenerator
from pathlib import Path

import httpx
import pytest
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from proxy.api import server as server_module
from proxy.api.app import ServerOptions, create_app
from proxy.api.edge import Edge
from proxy.api.server import (
    KEEP_ALIVE_SECONDS,
    OWN_FILES,
    disconnect_lost_clients,
    limit_to_files,
    listen,
    open_sockets,
    run,
    serving,
    url_of,
)
from proxy.errors import InvalidConfiguration, LaunchFailed
from proxy.settings import Settings, load_settings
from tests.fakes.backend import ScriptedBackend
from tests.fakes.loopback import has_ipv6
from tests.timeouts import TIMEOUT_SECONDS, until


def settings_of(**sections: dict[str, object]) -> Settings:
    return load_settings(None, sections)


def local_client() -> httpx.AsyncClient:
    """Return a client that ignores proxies and waits long enough for a busy machine."""
    return httpx.AsyncClient(trust_env=False, timeout=TIMEOUT_SECONDS)


def make_app() -> Edge:
    return create_app(ServerOptions().services_for(ScriptedBackend()), ServerOptions())


def test_port_0_is_replaced_by_a_free_port_in_the_url() -> None:
    with contextlib.closing(listen("127.0.0.1", 0)) as listening:
        assert url_of(listening) == f"http://127.0.0.1:{listening.getsockname()[1]}"


@pytest.mark.parametrize(
    ("files", "expected"),
    [(-1, 2048), (100_000, 2048), (1024, 1024 - OWN_FILES), (64, 64 - OWN_FILES)],
)
def test_the_connection_limit_leaves_file_descriptors_for_other_files(
    files: int, expected: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(server_module, "open_file_limit", lambda: files)
    assert limit_to_files(2048) == expected
    with open_sockets(settings_of(server={"port": 0}).server):
        pass
    warnings = [record.getMessage() for record in caplog.records]
    advice = "allow more: ulimit -n 2112, or LimitNOFILE of systemd"
    few = f"Only 64 files may be open, so at most 32 connections are accepted; {advice}"
    assert warnings == ([few] if files == 64 else [])


def test_a_limit_of_open_files_that_allows_no_connection_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server_module, "open_file_limit", lambda: OWN_FILES)
    sockets = open_sockets(settings_of(server={"port": 0}).server)
    with pytest.raises(InvalidConfiguration, match="only 32 files may be open"), sockets:
        pass


def test_an_ipv6_address_is_written_in_brackets() -> None:
    if not has_ipv6():
        with pytest.raises(InvalidConfiguration, match="--host"):
            listen("[::1]", 0)
        return
    with contextlib.closing(listen("[::1]", 0)) as listening:
        assert url_of(listening).startswith("http://[::1]:")


@pytest.mark.skipif(
    not hasattr(socket, "TCP_USER_TIMEOUT"), reason="only Linux has TCP_USER_TIMEOUT"
)
def test_accepted_connections_inherit_the_keepalive_options() -> None:
    with contextlib.closing(listen("127.0.0.1", 0)) as listening:
        disconnect_lost_clients(listening, 60)
        with socket.create_connection(listening.getsockname()) as client:
            accepted, _ = listening.accept()
            with accepted:
                assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
                seconds = accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
                assert seconds == 60_000
                assert client.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 0


def test_a_used_port_is_an_error_with_a_remedy() -> None:
    with contextlib.closing(listen("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        with pytest.raises(InvalidConfiguration, match="--port") as raised:
            listen("127.0.0.1", port)
        assert raised.value.setting == "server.port"


@pytest.mark.parametrize("host", ["192.0.2.1", "203.0.113.7"])
def test_an_address_of_another_machine_is_an_error_with_a_remedy(host: str) -> None:
    with pytest.raises(InvalidConfiguration, match="--host") as raised:
        listen(host, 0)
    assert raised.value.setting == "server.host"


def test_accepted_connections_have_tcp_nodelay() -> None:
    with (
        contextlib.closing(listen("127.0.0.1", 0)) as listening,
        contextlib.closing(socket.create_connection(listening.getsockname())),
    ):
        connection, _ = listening.accept()
        with contextlib.closing(connection):
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0


def test_without_backend_and_model_the_error_names_the_flag_backend_url() -> None:
    with pytest.raises(InvalidConfiguration, match="--backend-url"):
        asyncio.run(run(settings_of(server={"port": 0})))


def test_an_invalid_model_is_reported_before_anything_starts(tmp_path: Path) -> None:
    configured = settings_of(server={"port": 0}, model={"path": str(tmp_path / "none.gguf")})
    with pytest.raises((LaunchFailed, InvalidConfiguration)):
        asyncio.run(run(configured))


async def test_the_server_runs_until_a_signal() -> None:
    codes: list[int] = []
    with contextlib.closing(listen("127.0.0.1", 0)) as listening:
        app = make_app()
        async with serving(app, listening, 1) as server, local_client() as client:
            codes.append((await client.get(f"{url_of(listening)}/healthz")).status_code)
            os.kill(os.getpid(), signal.SIGTERM)
            await server
    assert codes == [200]


async def is_closed_when_idle(listening: socket.socket) -> bool:
    """Send one request; return whether the server then closes the idle connection."""
    host, port = listening.getsockname()[:2]
    reader, writer = await asyncio.open_connection(host, port)
    with contextlib.closing(writer):
        writer.write(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        await reader.readexactly(length)
        try:
            return await asyncio.wait_for(reader.read(1), 0.2) == b""
        except TimeoutError:
            return False


def test_an_idle_connection_stays_open_for_keep_alive_seconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert KEEP_ALIVE_SECONDS > 15

    async def serve() -> bool:
        with contextlib.closing(listen("127.0.0.1", 0)) as listening:
            async with serving(make_app(), listening, 1):
                return await is_closed_when_idle(listening)

    assert not asyncio.run(serve())
    monkeypatch.setattr("proxy.api.server.KEEP_ALIVE_SECONDS", 0)
    assert asyncio.run(serve())


@pytest.mark.parametrize("signals", [1, 2], ids=["the grace is over", "a second signal"])
async def test_requests_that_exceed_the_shutdown_grace_get_an_error_and_log_no_traceback(
    signals: int, caplog: pytest.LogCaptureFixture
) -> None:
    app, begun = make_app(), asyncio.Event()

    async def endless() -> None:
        begun.set()
        await asyncio.Event().wait()

    app.app.add_api_route("/endless", endless)
    with contextlib.closing(listen("127.0.0.1", 0)) as listening:
        async with serving(app, listening, 1) as server, local_client() as client:
            answering = asyncio.create_task(client.get(f"{url_of(listening)}/endless"))
            await begun.wait()
            for _ in range(signals):
                os.kill(os.getpid(), signal.SIGTERM)
                await asyncio.sleep(0)
            await server
            answer = await answering
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "server_stopping")
    assert all(record.exc_info is None for record in caplog.records)
    assert "Traceback" not in caplog.text


async def test_leaving_the_serving_block_stops_the_server() -> None:
    with contextlib.closing(listen("127.0.0.1", 0)) as listening:
        async with serving(make_app(), listening, 1) as server:
            pass
        is_done = server.done()
    assert is_done


def test_a_signal_during_startup_raises_keyboard_interrupt() -> None:
    app = make_app()

    async def interrupted(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            signal.raise_signal(signal.SIGINT)
        await app(scope, receive, send)

    async def serve() -> None:
        with contextlib.closing(listen("127.0.0.1", 0)) as listening:
            async with serving(interrupted, listening, 1):
                pytest.fail("the server accepts clients although it was interrupted")

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(serve())


async def test_the_hook_on_ready_is_called_with_the_address() -> None:
    announced: list[str] = []
    configured = settings_of(server={"port": 0}, backend={"url": "http://127.0.0.1:1"})

    def note(address: object) -> None:
        announced.append(str(address))
        os.kill(os.getpid(), signal.SIGINT)

    await run(configured, on_ready=note)
    assert "http://127.0.0.1:1" in announced[0]


_REQUEST = b"GET /halves HTTP/1.1\r\nhost: localhost\r\n\r\n"
_END = b"\r\n0\r\n\r\n"


def app_of_halves(may_end: asyncio.Event) -> Edge:
    """Return an application whose response at /halves sends its second half after `may_end`."""

    async def halves() -> AsyncGenerator[bytes]:
        yield b"first"
        await may_end.wait()
        yield b"second"

    app = make_app()
    app.app.add_api_route("/halves", lambda: StreamingResponse(halves()))
    return app


@pytest.mark.fault("F111")
@pytest.mark.parametrize("earlier", ["no request", "a response", "half of a response"])
async def test_a_retiring_server_answers_one_more_request_and_closes_the_connection(
    earlier: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "_LAST_REQUEST_SECONDS", TIMEOUT_SECONDS)
    may_end, retirement = asyncio.Event(), asyncio.Event()
    if earlier != "half of a response":
        may_end.set()
    with contextlib.closing(listen("127.0.0.1", 0)) as listening:
        host, port = listening.getsockname()[:2]
        app, grace = app_of_halves(may_end), 2 * TIMEOUT_SECONDS
        async with serving(app, listening, grace, retirement=retirement) as server:
            reader, writer = await asyncio.open_connection(host, port)
            if earlier != "no request":
                writer.write(_REQUEST)
                await reader.readuntil(b"first" if earlier.startswith("half") else _END)
            retirement.set()
            await until(
                lambda: listening.fileno() < 0
            )  # the server has closed it, because it retires
            may_end.set()
            if earlier.startswith("half"):
                await reader.readuntil(_END)
            writer.write(_REQUEST)
            answer = await reader.read()
            await server
            writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 ")
    assert b"\r\nconnection: close" in head
    assert body.endswith(b"second" + _END)


@pytest.mark.fault("F111")
async def test_a_retiring_server_completes_a_response_that_takes_longer_than_the_grace_period(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # After its retirement, a server runs for `retirement_seconds`, which is longer than the grace
    # period: a response may take the whole grace period, and one more request may follow it on
    # the same connection. The simulation (seed 818) found that this request was cut off.
    monkeypatch.setattr(server_module, "_LAST_REQUEST_SECONDS", TIMEOUT_SECONDS)
    may_end, retirement, grace = asyncio.Event(), asyncio.Event(), 1
    with contextlib.closing(listen("127.0.0.1", 0)) as listening:
        host, port = listening.getsockname()[:2]
        async with serving(
            app_of_halves(may_end), listening, grace, retirement=retirement
        ) as server:
            reader, writer = await asyncio.open_connection(host, port)
            writer.write(_REQUEST)
            await reader.readuntil(b"first")
            retirement.set()
            await until(lambda: listening.fileno() < 0)
            await asyncio.sleep(1.5 * grace)
            may_end.set()
            assert (await reader.readuntil(_END)).endswith(b"second" + _END)
            writer.close()
            await server


@pytest.mark.fault("F111")
async def test_a_retiring_server_closes_idle_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "_LAST_REQUEST_SECONDS", 0.01)
    retirement = asyncio.Event()
    with contextlib.closing(listen("127.0.0.1", 0)) as listening:
        host, port = listening.getsockname()[:2]
        async with serving(make_app(), listening, TIMEOUT_SECONDS, retirement=retirement) as server:
            reader, writer = await asyncio.open_connection(host, port)
            retirement.set()
            assert await reader.read() == b""
            await server
            writer.close()
