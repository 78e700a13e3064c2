import asyncio
import contextlib
import errno
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
from starlette.types import ASGIApp, Message

from proxy.api.hosted import GENTLE_WORK, Hosted, OpenedApp, open_app, warm_up
from proxy.api.server import listen, url_of
from proxy.conversation import json
from proxy.errors import BackendUnavailable, ProcessFailed
from proxy.serving.services import Services
from proxy.settings import Settings, load_settings
from tests.fakes.asgi import HandMadeClient
from tests.fakes.llama import build_model
from tests.fakes.scripted_backend import ScriptedBackend
from tests.fakes.sockets import listening, listening_in_thread
from tests.fakes.upstream_requests import HELLO
from tests.timeouts import TIMEOUT_SECONDS

ROOT = Path(__file__).parents[3]
BODY = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
NOWHERE: dict[str, object] = {"url": "http://127.0.0.1:1", "kind": "openai"}


def settings_of(**sections: dict[str, object]) -> Settings:
    return load_settings(None, sections)


def reading(**sections: dict[str, object]) -> Callable[[], Settings]:
    return lambda: settings_of(**{"backend": NOWHERE, **sections})


@asynccontextmanager
async def open_hosted(hosted: Hosted) -> AsyncGenerator[None]:
    """Run the lifespan of an application; fail unless it reports startup and shutdown."""
    incoming: asyncio.Queue[Message] = asyncio.Queue()
    sent: asyncio.Queue[Message] = asyncio.Queue()
    life = asyncio.create_task(hosted({"type": "lifespan"}, incoming.get, sent.put))
    incoming.put_nowait({"type": "lifespan.startup"})
    assert (await sent.get()) == {"type": "lifespan.startup.complete"}
    try:
        yield
    finally:
        incoming.put_nowait({"type": "lifespan.shutdown"})
        assert (await sent.get()) == {"type": "lifespan.shutdown.complete"}
        await life


def client_of(app: ASGIApp, client: str = "127.0.0.1") -> httpx.AsyncClient:
    transport = httpx.ASGITransport(app, client=(client, 1))
    return httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1")


@contextlib.contextmanager
def hosted_by_uvicorn(*flags: str, **environment: str) -> Iterator[tuple[str, list[str]]]:
    """Run `uvicorn proxy.api.hosted:app`; yield its URL and a list for its log.

    The list is empty until the server has ended.
    """
    log: list[str] = []
    with contextlib.closing(listen("127.0.0.1", 0)) as socket:
        command = [sys.executable, "-m", "uvicorn", "proxy.api.hosted:app", *flags]
        with subprocess.Popen(
            [*command, "--fd", str(socket.fileno())],
            env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
            pass_fds=[socket.fileno()],
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            watchdog = threading.Timer(TIMEOUT_SECONDS, process.kill)
            watchdog.start()
            try:
                yield url_of(socket), log
            finally:
                process.send_signal(signal.SIGTERM)
                log += process.communicate()[1].splitlines()
                watchdog.cancel()


def test_uvicorn_serves_the_application_and_closes_it() -> None:
    with (
        listening_in_thread(ScriptedBackend(HELLO)) as backend,
        hosted_by_uvicorn(
            TEMPER_BACKEND__URL=backend, TEMPER_BACKEND__KIND="openai", POD_NAME="temper-0"
        ) as (url, log),
        httpx.Client(base_url=url, timeout=TIMEOUT_SECONDS, trust_env=False) as client,
    ):
        answer = client.post("/v1/chat/completions", json=BODY, headers={"x-request-id": "r1"})
        assert answer.status_code == 200
        assert answer.headers.get_list("x-request-id") == ["r1"]
        assert "Hello" in answer.text
    line = next(json.parse(entry) for entry in log if '"event": "request"' in entry)
    assert isinstance(line, dict)
    assert (line["id"], line["replica"]) == ("r1", "temper-0")
    assert any("Application shutdown complete" in entry for entry in log)


@pytest.mark.deep
def test_uvicorn_refuses_to_start_with_an_invalid_setting_and_names_it() -> None:
    command = [sys.executable, "-m", "uvicorn", "proxy.api.hosted:app", "--port", "0"]
    surroundings = {"PYTHONPATH": str(ROOT), "TEMPER_BACKEND__URL": "ftp://nowhere"}
    ended = subprocess.run(
        command,
        env={**os.environ, **surroundings},
        stderr=subprocess.PIPE,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    assert ended.returncode == 3
    assert "Temper cannot start: backend.url" in ended.stderr
    assert "Traceback" not in ended.stderr


async def test_requests_get_503_if_there_are_no_lifespan_events() -> None:
    hosted = Hosted(reading())
    async with client_of(hosted) as client:
        answer = await client.get("/healthz")
    assert answer.status_code == 503
    assert "lifespan" in answer.json()["error"]["message"]


async def test_a_companion_context_is_open_while_the_application_runs() -> None:
    lived: list[str] = []

    @asynccontextmanager
    async def companion(app: ASGIApp) -> AsyncGenerator[None]:
        async with client_of(app) as client:
            lived.append(str((await client.get("/healthz")).status_code))
        yield
        lived.append("over")

    hosted = Hosted(reading(), companion=companion)
    async with open_hosted(hosted), client_of(hosted) as client:
        assert (await client.get("/healthz")).status_code == 200
        await hosted.until_loaded()
        assert hosted.problem == ""
        assert lived == ["200"]
    assert lived == ["200", "over"]


async def test_closing_before_opening_and_opening_twice_have_no_effect() -> None:
    hosted = Hosted(reading())
    await hosted.close()
    await hosted.open()
    async with open_hosted(hosted):
        pass


async def test_requests_of_other_machines_are_refused_if_no_key_is_configured() -> None:
    hosted = Hosted(reading())
    async with open_hosted(hosted):
        for client_address, status in (("192.0.2.7", 403), ("::1", 200), ("testclient", 200)):
            async with client_of(hosted, client_address) as client:
                assert (await client.get("/healthz")).status_code == status


async def test_any_host_name_is_allowed_if_a_key_is_configured() -> None:
    hosted = Hosted(reading(server={"api_key": "secret"}))
    async with open_hosted(hosted), client_of(hosted, "192.0.2.7") as client:
        headers = {"host": "temper.example", "authorization": "Bearer secret"}
        assert (await client.get("/metrics", headers=headers)).status_code == 200
        assert (await client.get("/metrics")).status_code == 401


async def test_unlisted_host_names_are_refused_if_a_key_and_host_names_are_configured() -> None:
    server: dict[str, object] = {"api_key": "secret", "allowed_hosts": ["temper.example"]}
    hosted = Hosted(reading(server=server))
    async with open_hosted(hosted), client_of(hosted) as client:
        for host, status in (("temper.example", 200), ("other.example", 403)):
            headers = {"host": host, "authorization": "Bearer secret"}
            assert (await client.get("/metrics", headers=headers)).status_code == status


async def test_settings_that_have_no_effect_under_another_server_are_logged_in_one_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    server = {"host": "0.0.0.0", "port": 80, "workers": 4, "stall_seconds": 5, "api_key": "secret"}
    hosted = Hosted(reading(server=server))
    async with open_hosted(hosted):
        pass
    lines = [line for line in capsys.readouterr().err.splitlines() if "no effect here" in line]
    assert len(lines) == 1
    assert "server.host, server.port, server.workers, server.stall_seconds: no effect" in lines[0]


async def test_unset_settings_are_not_logged_as_settings_without_effect(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with open_hosted(Hosted(reading())):
        pass
    assert "no effect here" not in capsys.readouterr().err


async def test_an_invalid_setting_fails_startup_with_its_message() -> None:
    incoming: asyncio.Queue[Message] = asyncio.Queue()
    sent: list[Message] = []

    async def record_message(message: Message) -> None:
        sent.append(message)

    incoming.put_nowait({"type": "lifespan.startup"})
    await Hosted(settings_of)({"type": "lifespan"}, incoming.get, record_message)
    assert sent[0]["type"] == "lifespan.startup.failed"
    assert "nothing to serve" in sent[0]["message"]


async def open_and_load(hosted: Hosted) -> None:
    await hosted.open()
    await hosted.until_loaded()


async def test_a_model_that_cannot_be_loaded_is_reported_to_waiting_and_later_clients(
    tmp_path: Path,
) -> None:
    broken = build_model(tmp_path / "broken.gguf")
    broken.write_bytes(broken.read_bytes()[:-4096])
    hosted = Hosted(lambda: settings_of(model={"path": str(broken)}))
    with pytest.raises((BackendUnavailable, ProcessFailed)):
        await open_and_load(hosted)
    await hosted.close()
    async with client_of(hosted) as client:
        answer = await client.get("/healthz")
        assert answer.status_code == 503
        assert "incomplete model file: download it again" in answer.json()["error"]["message"]


async def test_the_new_body_limit_applies_after_a_reload() -> None:
    settings = settings_of(backend=NOWHERE)
    strict = settings_of(
        backend=NOWHERE, metrics={"enabled": False}, server={"max_body_bytes": 1024}
    )
    async with open_app(settings, reload=lambda: strict) as app, client_of(app) as client:
        body = {"model": "m", "messages": [{"role": "user", "content": "x" * 2000}]}
        app.renew()
        assert (await client.post("/v1/chat/completions", json=body)).status_code == 413


async def test_a_server_in_this_process_can_serve_the_application() -> None:
    hosted = Hosted(reading())
    async with (
        open_hosted(hosted),
        listening(hosted) as server,
        httpx.AsyncClient(trust_env=False, timeout=TIMEOUT_SECONDS) as client,
    ):
        assert (await client.get(f"{server.url}/healthz")).json() == {"status": "ok"}


async def _answer(status: int, client: HandMadeClient) -> None:
    await client.send({"type": "http.response.start", "status": status, "headers": []})


async def test_the_application_can_be_replaced_while_serving() -> None:
    async def first(*_: object) -> None:
        await _answer(200, client)

    async def second(*_: object) -> None:
        await _answer(201, client)

    client = HandMadeClient()
    current = OpenedApp(first, Services([]), lambda: None)
    await client.call(current)
    current.app = second
    await client.call(current)
    assert [message["status"] for message in client.got] == [200, 201]


def usual_switch_interval() -> float:
    """Wait until warm-ups of other tests have ended, then return the switch interval."""
    with GENTLE_WORK:
        return sys.getswitchinterval()


def test_warm_up_runs_in_a_thread_with_a_short_switch_interval() -> None:
    before = usual_switch_interval()
    observed: list[tuple[threading.Thread, bool]] = []

    def work() -> None:
        observed.append((threading.current_thread(), sys.getswitchinterval() < before))

    with warm_up(work, delay=0) as thread:
        thread.join()
    assert observed == [(thread, True)]
    assert thread.daemon
    assert usual_switch_interval() == before


def test_concurrent_warm_ups_restore_the_switch_interval() -> None:
    before = usual_switch_interval()
    began, may_end = threading.Event(), threading.Event()

    def work() -> None:
        began.set()
        may_end.wait()

    with warm_up(work, delay=0) as first:
        began.wait()
        with warm_up(lambda: None, delay=0) as second:
            may_end.set()
            first.join()
            second.join()
    assert usual_switch_interval() == before


def test_a_warm_up_that_cannot_read_files_logs_one_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def work() -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), "announcements")

    with warm_up(work, delay=0) as thread:
        thread.join()
    (record,) = caplog.records
    assert "Too many open files" in record.getMessage()
    assert "ulimit -n" in record.getMessage()
    assert record.exc_info is None


def test_a_warm_up_that_has_not_started_at_shutdown_is_skipped() -> None:
    observed: list[str] = []
    with warm_up(lambda: observed.append("done"), delay=3600) as thread:
        pass
    thread.join()
    assert observed == []
