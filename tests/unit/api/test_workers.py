import asyncio
import logging
import multiprocessing
import os
import signal
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from proxy.api import reloading
from proxy.api import workers as workers_module
from proxy.api.server import PublicAddress
from proxy.api.workers import (
    FIRST_DELAY,
    LONGEST_DELAY,
    MOST_FAILED_STARTS,
    STEADY_SECONDS,
    WorkerRestarts,
    run_workers,
)
from proxy.errors import ExitedUnexpectedly, InvalidConfiguration
from proxy.settings import Settings, load_settings
from tests.fakes.exposition import Exposition
from tests.timeouts import TIMEOUT_SECONDS

FAULT = pytest.mark.fault("F77")
RELOADED = pytest.mark.fault("F111")
FINISHED = "all workers use the new configuration"

NOWHERE = {"url": "http://127.0.0.1:1"}


def settings_of(**sections: dict[str, object]) -> Settings:
    server: dict[str, object] = {"port": 0, "workers": 2, "grace_seconds": 1}
    return load_settings(None, {"server": server, "backend": NOWHERE, **sections})


def workers() -> set[int]:
    return {worker.pid or 0 for worker in multiprocessing.active_children()}


def run(scene: Callable[[], object]) -> None:
    async def within() -> None:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            result = scene()
            assert asyncio.iscoroutine(result)
            await result

    asyncio.run(within())


async def start_workers(
    reload: reloading.ReadSettings = settings_of,
) -> tuple[PublicAddress, asyncio.Task[None]]:
    """Start two workers; return their address, and a task that ends when they have ended."""
    announced: asyncio.Future[PublicAddress] = asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(
        run_workers(settings_of(), on_ready=announced.set_result, reload=reload)
    )
    return await announced, serving


async def wait_until_ready(url: str) -> None:
    """Wait until both workers answer."""
    numbers = set[int]()
    while len(numbers) < 2:
        numbers.add((await page_of_any(url))[0])


async def reload_until(is_over: Callable[[], bool], *, again: bool = False) -> set[int]:
    """Reload until `is_over`; return how many workers were seen running at a time.

    If `again`, reload a second time while the first reload is running.
    """
    counts = set[int]()
    os.kill(os.getpid(), signal.SIGHUP)
    while not is_over():  # no event reports a start
        counts.add(len(workers()))
        if again and len(workers()) > 2:
            os.kill(os.getpid(), signal.SIGHUP)
            again = False
        await asyncio.sleep(0.001)
    return counts


async def replace_worker(victim: int) -> None:
    """Kill a worker and wait for its replacement."""
    os.kill(victim, signal.SIGKILL)
    while len(workers() - {victim}) < 2:  # noqa: ASYNC110 - no event reports a start
        await asyncio.sleep(0.01)


async def kill_worker(victim: int) -> int:
    """Kill a worker and return its replacement."""
    others = workers()
    await replace_worker(victim)
    (newcomer,) = workers() - others
    return newcomer


async def wait_until_answered(url: str) -> None:
    """Wait until a worker answers."""
    async with httpx.AsyncClient(trust_env=False, timeout=TIMEOUT_SECONDS) as client:
        assert (await client.get(f"{url}/healthz")).status_code == 200


def test_killed_workers_are_replaced_and_sigterm_ends_all_workers(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "proxy")

    async def scene() -> None:
        address, serving = await start_workers()
        assert address.backend == NOWHERE["url"]
        await wait_until_answered(address.url)
        assert "2 workers are running" in caplog.text
        assert "idempotency keys" in caplog.text
        before = workers()
        assert len(before) == 2

        victim = before.pop()
        await replace_worker(victim)
        assert before <= workers()
        await wait_until_answered(address.url)

        os.kill(os.getpid(), signal.SIGTERM)
        await serving
        assert workers() == set()

    run(scene)


@pytest.mark.deep
@FAULT
def test_a_repeatedly_killed_worker_ends_neither_the_server_nor_other_workers(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(workers_module, "FIRST_DELAY", 0.01)

    async def scene() -> None:
        address, serving = await start_workers()
        await wait_until_answered(address.url)
        victim, healthy = workers()
        for _ in range(5):  # most of these workers are killed before they have started
            victim = await kill_worker(victim)
        assert healthy in workers()
        assert not serving.done()
        await wait_until_answered(address.url)
        os.kill(os.getpid(), signal.SIGTERM)
        await serving

    run(scene)
    assert caplog.text.count("starting it again in 0 s") == 1
    assert "starting it again in 0.08 s" in caplog.text


@pytest.mark.deep
def test_killing_every_worker_three_times_after_its_start_does_not_end_the_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(workers_module, "FIRST_DELAY", 0.0)

    async def scene() -> None:
        address, serving = await start_workers()
        for _ in range(MOST_FAILED_STARTS):
            await wait_until_ready(address.url)
            for victim in workers():
                os.kill(victim, signal.SIGKILL)
        await wait_until_ready(address.url)
        os.kill(os.getpid(), signal.SIGTERM)
        await serving

    run(scene)


@pytest.mark.deep
@RELOADED
def test_reloads_replace_one_worker_after_the_other(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "proxy")

    async def scene() -> None:
        address, serving = await start_workers()
        await wait_until_ready(address.url)
        before = workers()
        counts = await reload_until(lambda: FINISHED in caplog.text, again=True)
        assert counts == {2, 3}
        assert len(workers() - before) == 2
        assert caplog.text.count("configuration reloaded") == 2
        await wait_until_answered(address.url)
        os.kill(os.getpid(), signal.SIGTERM)
        await serving

    run(scene)


@pytest.mark.deep
@RELOADED
def test_the_old_workers_continue_if_a_new_worker_does_not_start(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # the parent finds most errors, but not those that only occur in the new process
    monkeypatch.setattr(reloading, "server_options_of", lambda _settings: None)

    async def scene() -> None:
        address, serving = await start_workers(lambda: settings_of(profile={"name": "unheard-of"}))
        await wait_until_ready(address.url)
        before = workers()
        counts = await reload_until(lambda: "stays in use" in caplog.text)
        assert counts <= {2, 3}
        assert workers() == before
        victim = before.pop()
        await replace_worker(victim)  # with the old settings
        await wait_until_ready(address.url)
        os.kill(os.getpid(), signal.SIGTERM)
        await serving

    run(scene)
    (problem,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    message = problem.getMessage()
    assert message.startswith("a new worker exited with code 1 (profile.name: unknown profile")
    assert message.endswith("); the old configuration stays in use")


@pytest.mark.deep
@RELOADED
def test_the_old_configuration_is_used_if_dead_workers_cannot_start_with_the_new_configuration(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The simulation (seed 784) found that the server ended because no worker could start."""
    monkeypatch.setattr(reloading, "server_options_of", lambda _settings: None)
    monkeypatch.setattr(
        workers_module, "FIRST_DELAY", 1.0
    )  # the second restart of a worker is delayed by it

    async def scene() -> None:
        address, serving = await start_workers(lambda: settings_of(profile={"name": "unheard-of"}))
        for delay in (0, 1):
            await wait_until_ready(address.url)
            for victim in workers():
                os.kill(victim, signal.SIGKILL)
            while caplog.text.count(f"starting it again in {delay} s") < 2:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        os.kill(os.getpid(), signal.SIGHUP)
        await wait_until_ready(address.url)
        os.kill(os.getpid(), signal.SIGTERM)
        await serving

    run(scene)
    assert "the old configuration stays in use" in caplog.text


@pytest.mark.deep
@RELOADED
def test_a_signal_during_a_reload_ends_all_workers() -> None:
    async def scene() -> None:
        address, serving = await start_workers()
        await wait_until_ready(address.url)
        await reload_until(lambda: len(workers()) > 2)
        os.kill(os.getpid(), signal.SIGTERM)
        await serving
        assert workers() == set()

    run(scene)


@FAULT
def test_only_a_worker_that_exits_before_serving_counts_as_a_failed_start() -> None:
    restarts = WorkerRestarts(2)
    for served in (5.0, None, None, 0.0, None, None, None, None):
        assert restarts.delay_after(1, served) is not None
    for _ in range(
        MOST_FAILED_STARTS - 1
    ):  # the server ends only after failed starts of both workers
        assert restarts.delay_after(2, None) is not None
    assert restarts.delay_after(2, None) is None


def test_a_crashing_worker_is_restarted_with_a_growing_delay() -> None:
    restarts = WorkerRestarts(2)
    delays = [restarts.delay_after(1, 5.0) for _ in range(5)]
    assert delays == [0, FIRST_DELAY, 2 * FIRST_DELAY, 4 * FIRST_DELAY, 8 * FIRST_DELAY]
    assert [restarts.delay_after(1, 5.0) for _ in range(2000)][-1] == LONGEST_DELAY
    assert restarts.delay_after(2, 5.0) == 0  # each worker has a separate delay
    assert restarts.delay_after(1, STEADY_SECONDS) == 0
    assert restarts.delay_after(1, 5.0) == FIRST_DELAY
    restarts.reset(1)
    assert restarts.delay_after(1, 5.0) == 0


async def read_metrics(url: str) -> Exposition:
    """Read metrics over a new connection, so that any worker may answer."""
    async with httpx.AsyncClient(trust_env=False, timeout=TIMEOUT_SECONDS) as client:
        return Exposition.read((await client.get(f"{url}/metrics")).text)


def shared_counts() -> Path:
    return Path(os.environ["PROMETHEUS_MULTIPROC_DIR"])


def counting_workers() -> int:
    """Return how many workers have counted a request; each of them has written a file."""
    return len(list(shared_counts().glob("histogram_*.db")))


async def send_failing_request(url: str) -> None:
    """Send a request that fails at once."""
    body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
    async with httpx.AsyncClient(trust_env=False, timeout=TIMEOUT_SECONDS) as client:
        answer = await client.post(f"{url}/v1/chat/completions", json=body)
        assert answer.status_code == 502


async def send_failing_requests_to_both(url: str) -> int:
    """Send failing requests until each worker has received one; return the number of requests."""
    sent = 0
    while counting_workers() < 2:
        await send_failing_request(url)
        sent += 1
    return sent


async def wait_until_counted(url: str, requests: int) -> None:
    """Wait until `requests` are counted; a worker counts each one shortly after its answer."""
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while (await read_metrics(url)).value("temper_requests_total", status="502") < requests:  # noqa: ASYNC110
            await asyncio.sleep(0.02)


@pytest.mark.deep
def test_the_metrics_of_every_worker_contain_the_counts_of_all_workers() -> None:
    async def scene() -> None:
        address, serving = await start_workers()
        url = address.url
        sent = await send_failing_requests_to_both(url)
        await wait_until_counted(url, sent)
        for _ in range(6):
            metrics = await read_metrics(url)
            assert metrics.value("temper_requests_total", status="502") == sent
            assert metrics.value("temper_backend_errors_total", kind="unavailable") == sent
            assert metrics.value("temper_requests_running") == 0
            assert metrics.value("temper_backend_up", model="default") == 0

        await replace_worker(workers().pop())
        assert (await read_metrics(url)).value("temper_requests_total", status="502") == sent

        os.kill(os.getpid(), signal.SIGTERM)
        folders.append(shared_counts())
        await serving

    folders: list[Path] = []
    run(scene)
    assert not folders[0].exists()


async def page_of_any(url: str) -> tuple[int, int, int]:
    """Return the worker's number, the count of workers and all failures from any dashboard."""
    async with httpx.AsyncClient(trust_env=False, timeout=TIMEOUT_SECONDS) as client:
        state = (await client.get(f"{url}/ui/api/state")).json()
    return state["worker"], state["workers"], state["totals"]["start"][""]["failed"]


async def names_on_boards(url: str) -> set[str]:
    """Return the names of requests on the boards of two workers."""
    names = set[str]()
    while len({name.partition("-")[0] for name in names}) < 2:
        async with httpx.AsyncClient(trust_env=False, timeout=TIMEOUT_SECONDS) as client:
            state = (await client.get(f"{url}/ui/api/state")).json()
        names |= {row["id"] for row in state["requests"]}
    return names


async def status_of(url: str) -> int:
    """Request the status over a new connection, so that any worker may answer."""
    async with httpx.AsyncClient(trust_env=False, timeout=TIMEOUT_SECONDS) as client:
        return (await client.get(url)).status_code


@pytest.mark.deep
def test_the_dashboard_of_every_worker_shows_the_counts_of_all_workers() -> None:
    async def scene() -> None:
        address, serving = await start_workers()
        url = address.url
        sent = await send_failing_requests_to_both(url)
        totals = set[tuple[int, int, int]]()
        while not {(1, 2, sent), (2, 2, sent)} <= totals:
            totals.add(await page_of_any(url))
        assert max(failed for *_, failed in totals) == sent
        names = await names_on_boards(url)
        for name in names:  # another worker than the one that ran the request may answer
            for _ in range(4):
                assert await status_of(f"{url}/ui/api/requests/{name}") == 200
        instance = next(iter(names)).partition("-")[0]
        assert await status_of(f"{url}/ui/api/requests/{instance}-999") == 404

        await replace_worker(workers().pop())
        assert (await page_of_any(url))[2] == sent  # the counts of a dead worker are kept
        os.kill(os.getpid(), signal.SIGTERM)
        await serving

    run(scene)


@pytest.mark.deep
def test_workers_that_fail_to_start_end_the_server_with_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers_module, "FIRST_DELAY", 0.0)
    folder = tmp_path / "profiles"
    folder.mkdir()

    async def scene() -> None:
        server: dict[str, object] = {
            "port": 0,
            "workers": 1,
        }  # one is enough: two workers would fail in the same way
        settings = settings_of(server=server, profile={"folder": str(folder)})
        with pytest.raises(ExitedUnexpectedly, match="exited 3 times"):
            await run_workers(settings, on_ready=lambda _: folder.rmdir())
        assert workers() == set()

    run(scene)


def test_configuration_errors_are_reported_before_any_worker_starts() -> None:
    async def scene() -> None:
        with pytest.raises(InvalidConfiguration, match="unknown profile"):
            await run_workers(settings_of(profile={"name": "unheard-of"}))

    run(scene)
