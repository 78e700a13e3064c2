"""Saves and restores the slots of a fake llama-server with scripted failures."""

import asyncio
import logging
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from proxy.processes.launch import LaunchPlan
from proxy.processes.process import Process, RunningServer
from proxy.processes.slot_cache import SlotCache
from proxy.processes.slot_files import SavedSlot
from tests.fakes.sockets import listening
from tests.timeouts import TIMEOUT_SECONDS, with_timeout

KEEPS_RUNNING = "import signal; print('up', flush=True); signal.pause()"
UNLIMITED = 10**9


@dataclass
class SlotServer:
    """A fake llama-server that stores the number of cached tokens of each slot, but no cache.

    `failure` is the scripted failure, e.g. "disk full". `requests` are the received requests, e.g.
    "save 1" for saving slot 1.
    """

    folder: Path
    failure: str = ""
    tokens: dict[int, int] = field(default_factory=lambda: {0: 0, 1: 0})
    tasks: dict[int, int] = field(default_factory=dict)
    busy: int | None = None
    requests: list[str] = field(default_factory=list)
    is_over: asyncio.Event = field(default_factory=asyncio.Event)

    def use(self, slot: int, tokens: int, *, task: int) -> None:
        self.tokens[slot], self.tasks[slot] = tokens, task

    async def properties(self, _request: Request) -> Response:
        is_sleeping = self.failure == "asleep"
        return JSONResponse({"build_info": "b1", "is_sleeping": is_sleeping})

    async def slots(self, _request: Request) -> Response:
        self.requests.append("list")
        listed: list[dict[str, object]] = []
        for slot in self.tokens:
            task = {"id_task": self.tasks[slot]} if slot in self.tasks else {}
            listed.append({"id": slot, "is_processing": slot == self.busy, **task})
        return JSONResponse(listed)

    async def act(self, request: Request) -> Response:
        slot, action = int(request.path_params["slot"]), request.query_params["action"]
        self.requests.append(f"{action} {slot}")
        if self.failure == f"refuses {action}":
            error = {"code": 501, "message": "not supported by this model"}
            return JSONResponse({"error": error}, 501)
        if action == "erase":
            self.tokens[slot] = 0
            return JSONResponse({"n_erased": 1})
        path = self.folder / (await request.json())["filename"]
        answer = self.save(slot, path) if action == "save" else self.restore(slot, path)
        if self.failure == f"slow to {action}":
            await self.is_over.wait()
        return answer

    def save(self, slot: int, path: Path) -> Response:
        count = self.tokens[slot]
        path.write_bytes(b"x" * (count // 2 if self.failure == "disk full" else count))
        if self.failure == "killed while saving":
            return Response(b"{", headers={"content-length": "100"})
        return JSONResponse({"n_saved": count, "n_written": count})

    def restore(self, slot: int, path: Path) -> Response:
        if self.failure == "damaged":
            error = {"code": 400, "message": "Unable to restore slot"}
            return JSONResponse({"error": error}, 400)
        count = len(path.read_bytes())
        self.tokens[slot] = count // 2 if self.failure == "restores half" else count
        return JSONResponse({"n_restored": self.tokens[slot], "n_read": count})

    async def complete(self, request: Request) -> Response:
        slot = (await request.json())["id_slot"]
        cached = 0 if self.failure == "no reuse" else self.tokens[slot]
        self.tokens[slot] = 24
        self.requests.append("complete")
        return JSONResponse({"timings": {"cache_n": cached}})


@dataclass
class ServerRuns:
    """Runs a server several times in a row, with one folder of saved caches."""

    server: SlotServer
    cache: SlotCache
    plan: LaunchPlan

    @asynccontextmanager
    async def run(self, failure: str = "") -> AsyncGenerator[Process]:
        server = self.server
        server.tokens, server.tasks, server.failure = {0: 0, 1: 0}, {}, failure
        server.requests.clear()
        server.is_over.clear()
        routes = [
            Route("/props", server.properties),
            Route("/slots", server.slots),
            Route("/slots/{slot}", server.act, methods=["POST"]),
            Route("/completion", server.complete, methods=["POST"]),
        ]
        process = await Process.start((sys.executable, "-c", KEEPS_RUNNING), name="child")
        try:
            async with listening(Starlette(routes=routes)) as address:
                async with self.cache.keep(self.plan, RunningServer(address.url, "key", process)):
                    yield process
                server.is_over.set()
        finally:
            await process.stop()

    async def run_once(self, failure: str = "") -> None:
        """Start the server, use both slots, and stop the server."""
        async with self.run(failure):
            self.server.use(0, 70, task=3)
            self.server.use(1, 50, task=9)

    @property
    def files(self) -> list[str]:
        """The slot and tokens of each complete file, e.g. "0-70", and the names of other files."""
        names = sorted(path.name for path in self.server.folder.iterdir())
        return [name.removesuffix(".slot").partition("-")[2].partition("-")[2] for name in names]


@pytest.fixture
def runs(tmp_path: Path) -> ServerRuns:
    model, folder = tmp_path / "model.gguf", tmp_path / "slots"
    model.write_bytes(b"GGUF")
    folder.mkdir(mode=0o700)
    plan = LaunchPlan((sys.executable,), model, 4096, slots=2, alias="coder")
    return ServerRuns(
        SlotServer(folder), SlotCache("server", folder, UNLIMITED, TIMEOUT_SECONDS), plan
    )


@with_timeout
async def test_used_slots_are_saved_at_the_stop_and_restored_at_the_next_start(
    runs: ServerRuns,
) -> None:
    await runs.run_once()
    assert runs.server.requests[:3] == [
        "list",
        "save 1",
        "save 0",
    ]  # the slot that was used last is saved first
    assert runs.files == ["0-70", "1-50"]
    async with runs.run():
        assert runs.server.tokens == {0: 70, 1: 50}
        runs.server.use(1, 60, task=0)
    assert runs.server.requests[-2:] == ["list", "save 1"]  # the file of slot 0 is still valid
    assert runs.files == ["0-70", "1-60"]


@with_timeout
async def test_the_first_saved_cache_is_restored_once_to_test_that_the_server_reuses_it(
    runs: ServerRuns, caplog: pytest.LogCaptureFixture
) -> None:
    await runs.run_once()
    assert runs.server.requests[3:] == ["complete", "save 1", "erase 1", "restore 1", "complete"]
    await runs.run_once()
    assert "complete" not in runs.server.requests
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


@with_timeout
async def test_no_caches_are_saved_if_the_server_does_not_reuse_restored_caches(
    runs: ServerRuns, caplog: pytest.LogCaptureFixture
) -> None:
    await runs.run_once("no reuse")
    assert runs.files == []
    assert "server: prompt caches are not saved: this server reads" in caplog.text
    await runs.run_once("no reuse")
    assert runs.server.requests == []


@with_timeout
async def test_busy_and_empty_slots_are_not_saved(runs: ServerRuns) -> None:
    async with runs.run():
        runs.server.use(0, 70, task=3)
        runs.server.use(1, 0, task=5)
        runs.server.busy = 0
    assert runs.server.requests == ["list", "save 1"]
    assert runs.files == []


@with_timeout
async def test_the_slots_of_a_sleeping_server_are_not_listed(runs: ServerRuns) -> None:
    async with runs.run():
        runs.server.use(0, 70, task=3)
        runs.server.failure = "asleep"
    assert runs.server.requests == []


@pytest.mark.parametrize("action", ["save", "restore"])
@with_timeout
async def test_no_further_requests_are_sent_after_a_refused_save_or_restore(
    runs: ServerRuns, caplog: pytest.LogCaptureFixture, action: str
) -> None:
    await runs.run_once("refuses save" if action == "save" else "")
    caplog.clear() if action == "restore" else None
    await runs.run_once(f"refuses {action}")
    await runs.run_once(f"refuses {action}")
    assert runs.server.requests == []
    assert caplog.text.count("this server cannot save prompt caches") == 1


@pytest.mark.parametrize(
    ("failure", "problem"),
    [
        ("disk full", "is the disk full?"),
        ("killed while saving", "prompt cache not saved"),
        ("slow to save", "prompt cache not saved: it took too long"),
    ],
)
@with_timeout
async def test_no_file_remains_after_a_failed_save(
    runs: ServerRuns, caplog: pytest.LogCaptureFixture, failure: str, problem: str
) -> None:
    runs.cache.seconds = 0.5
    await runs.run_once(failure)
    assert problem in caplog.text
    assert runs.files == []


@pytest.mark.parametrize(
    ("failure", "problem"),
    [
        ("damaged", "Unable to restore slot"),
        ("restores half", "restored 25 of 50 tokens"),
        ("slow to restore", "prompt cache not restored: it took too long"),
    ],
)
@with_timeout
async def test_a_file_that_cannot_be_restored_is_removed(
    runs: ServerRuns, caplog: pytest.LogCaptureFixture, failure: str, problem: str
) -> None:
    await runs.run_once()
    runs.cache.seconds = 0.5
    async with runs.run(failure):
        assert runs.server.tokens[1] in {
            0,
            50,
        }  # 50 if the server restored the file, but too slowly
    assert problem in caplog.text
    assert "1-50" not in runs.files


@with_timeout
async def test_after_a_crash_of_the_server_the_saved_files_are_removed(runs: ServerRuns) -> None:
    await runs.run_once()
    async with runs.run() as process:
        await process.stop()
        runs.server.requests.clear()
    assert runs.server.requests == []
    assert runs.files == []


@with_timeout
async def test_files_that_cannot_be_removed_after_a_crash_are_never_restored(
    runs: ServerRuns, caplog: pytest.LogCaptureFixture
) -> None:
    """Seed 2877 of the simulation: the supervisor ended with the error of the disk."""
    await runs.run_once()
    async with runs.run() as process:
        folder = runs.cache.folder
        hidden = folder.rename(folder.with_name("hidden"))
        await process.stop()
    hidden.rename(folder)
    assert "server: saved prompt caches cannot be removed, so none will be restored" in caplog.text
    await runs.run_once()
    assert runs.server.requests == []


@with_timeout
async def test_a_file_that_was_not_restored_and_cannot_be_removed_disables_the_cache(
    runs: ServerRuns, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seed 5429 of the simulation: the file crashed the server at each start."""
    await runs.run_once()
    monkeypatch.setattr(SavedSlot, "remove", lambda _: False)  # e.g. on a read-only disk
    await runs.run_once("damaged")
    await runs.run_once()
    assert runs.server.requests == []


@with_timeout
async def test_no_caches_are_saved_if_the_model_file_is_missing(
    runs: ServerRuns, caplog: pytest.LogCaptureFixture
) -> None:
    assert isinstance(runs.plan.model, Path)
    runs.plan.model.unlink()
    await runs.run_once()
    assert "server: prompt cache not restored: " in caplog.text
    assert runs.server.requests == []


@with_timeout
async def test_a_cache_larger_than_the_limit_is_not_saved(
    runs: ServerRuns, caplog: pytest.LogCaptureFixture
) -> None:
    runs.cache.most_bytes = 60
    await runs.run_once()
    assert "slot 0: prompt cache of 0 MB not saved: it exceeds prompt_cache.max_mb" in caplog.text
    assert runs.files == ["1-50"]
