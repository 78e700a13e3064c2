"""The `/metrics` of real exchanges: outcomes, repairs, and disconnects."""

import asyncio

import pytest

from proxy.api.app import ServerOptions
from proxy.api.edge import Access
from proxy.observability.metrics import Metrics
from proxy.observability.observers import Observers
from proxy.observability.record import RequestRecord
from tests.fakes import sse
from tests.fakes.exposition import Exposition
from tests.fakes.running_proxy import CHAT, RunningProxy, request, temper
from tests.fakes.scripted_backend import Ending, Script, refuses
from tests.fakes.sse import calls, says

GOOD = calls("get_weather", '{"city": "Paris"}')
RESPOND = {"x-temper-text-policy": "respond"}
SILENT = Script((Ending.NEVER,))
TALKING = Script((sse.START + sse.text("It is"), Ending.NEVER))


def counting_observers() -> Observers:
    return Observers(meter=Metrics())


async def metrics_of(proxy: RunningProxy) -> Exposition:
    response = await proxy.client.get("/metrics")
    assert response.status_code == 200
    return Exposition.read(response.text)


async def test_the_metrics_count_a_rescued_call_and_a_successful_nudge(*, stream: bool) -> None:
    call = '{"name": "get_weather", "arguments": {"city": "Paris", "days": "2"}}'
    rescued = says(f"<tool_call>{call}</tool_call>")
    async with temper(says("Prose."), rescued, observers=counting_observers()) as proxy:
        answer = await proxy.ask(request(), stream=stream, headers=RESPOND)
        seen = await metrics_of(proxy)
    assert answer.report["outcome"] == "retried"
    assert seen.value("temper_requests_total", outcome="retried", status="200") == 1
    assert seen.value("temper_attempts_total", reason="as_asked", result="rejected") == 1
    assert seen.value("temper_attempts_total", reason="nudged", result="accepted") == 1
    assert seen.value("temper_rejected_replies_total", defect="prose") == 1
    assert seen.value("temper_rescued_calls_total", syntax="hermes") == 1
    assert seen.value("temper_repairs_total", kind="coerced") == 1
    assert seen.value("temper_tokens_total", type="input") == 11
    assert seen.value("temper_time_to_first_token_seconds_count") == 1
    assert seen.value("temper_overhead_seconds_count") == 1


async def test_the_metrics_count_requests_by_dialect() -> None:
    body = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]}
    async with temper(*[says("Hi.")] * 4, observers=counting_observers()) as proxy:
        await proxy.client.post("/v1/messages", json=body)
        await proxy.client.post("/api/chat", json=body)
        await proxy.client.post("/v1/messages", json={})
        await proxy.client.post("/v1/responses", json={"model": "m", "input": "Hi"})
        await proxy.ask(request(tools=None))
        seen = await metrics_of(proxy)
    name = "temper_requests_total"
    assert seen.value(name, dialect="messages", status="200", outcome="clean") == 1
    assert seen.value(name, dialect="messages", status="400", outcome="none") == 1
    assert seen.value(name, dialect="responses", status="200") == 1
    assert seen.value(name, dialect="chat") == 1
    assert seen.value(name, dialect="ollama", status="200") == 1


async def test_the_metrics_count_backend_errors_and_invalid_requests_separately(
    *, stream: bool
) -> None:
    async with temper(refuses(500, {"message": "no"}), observers=counting_observers()) as proxy:
        await proxy.ask(request(), stream=stream)
        await proxy.send(b"{")
        seen = await metrics_of(proxy)
    assert seen.value("temper_backend_errors_total", kind="refused", model="default") == 1
    assert seen.value("temper_requests_total", status="502", outcome="none") == 1
    assert seen.value("temper_requests_total", status="400", model="other") == 1


@pytest.mark.parametrize(
    ("scripts", "phase"),
    [((SILENT,), "before_first_token"), ((says("Prose."), SILENT), "between_attempts")],
)
async def test_the_metrics_count_client_disconnects_by_the_stage_of_the_request(
    *, scripts: tuple[Script | bytes, ...], phase: str, stream: bool
) -> None:
    async with temper(*scripts, observers=counting_observers()) as proxy:
        task = asyncio.create_task(
            proxy.client.post(CHAT, json=request(stream=stream), headers=RESPOND)
        )
        upstream_requests = [await proxy.backend.next_request() for _ in scripts]
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await upstream_requests[-1].left.wait()
        await proxy.server.settle()
        seen = await metrics_of(proxy)
    assert seen.value("temper_cancelled_requests_total", phase=phase) == 1
    assert seen.value("temper_cancelled_requests_total") == 1
    assert seen.value("temper_requests_running") == 0


async def test_the_metrics_count_a_disconnect_in_the_middle_of_a_stream() -> None:
    async with temper(TALKING, observers=counting_observers()) as proxy:
        body = request(tools=None, stream=True)
        async with proxy.client.stream("POST", CHAT, json=body) as response:
            async for piece in response.aiter_bytes():
                if b"It is" in piece:
                    break
        await (await proxy.backend.next_request()).left.wait()
        await proxy.server.settle()
        seen = await metrics_of(proxy)
    assert seen.value("temper_cancelled_requests_total", phase="streaming") == 1


async def test_the_metrics_contain_the_current_running_and_waiting_requests() -> None:
    gate = asyncio.Event()
    serving = ServerOptions(parallel=1)
    async with temper(
        *[Script((gate, GOOD))] * 3, serving=serving, observers=counting_observers()
    ) as proxy:
        proxy.backend.properties = {
            "total_slots": 1,
            "default_generation_settings": {"n_ctx": 1000},
        }
        asking = [asyncio.create_task(proxy.ask(request())) for _ in range(2)]
        await proxy.backend.next_request()
        canceled = asyncio.create_task(proxy.client.post(CHAT, json=request()))
        busy = await until(proxy, "temper_requests_waiting", 2)
        assert busy.value("temper_requests_running", model="default") == 1
        assert 0 < busy.value("temper_kv_cache_usage_ratio") < 1
        canceled.cancel()
        await until(proxy, "temper_requests_waiting", 1)
        gate.set()
        await asyncio.gather(*asking)
        await proxy.server.settle()
        idle = await metrics_of(proxy)
    assert idle.value("temper_requests_running") == idle.value("temper_requests_waiting") == 0
    assert idle.value("temper_kv_cache_usage_ratio") == pytest.approx(0)
    assert idle.value("temper_cancelled_requests_total", phase="queued") == 1


async def until(proxy: RunningProxy, name: str, value: float) -> Exposition:
    """Read the metrics until the metric `name` has this value."""
    while True:
        seen = await metrics_of(proxy)
        if seen.value(name) == value:
            return seen


async def test_the_metrics_and_the_log_contain_the_name_of_the_api_key(
    caplog: pytest.LogCaptureFixture,
) -> None:
    locked = ServerOptions(access=Access({"ann": "key-1", "bob": "key-2"}))
    with caplog.at_level("INFO"):
        async with temper(says("Hello."), serving=locked, observers=counting_observers()) as proxy:
            headers = {"authorization": "Bearer key-2"}
            await proxy.ask(request(tools=None), headers=headers)
            response = await proxy.client.get("/metrics", headers=headers)
    seen = Exposition.read(response.text)
    assert seen.value("temper_client_requests_total", client="bob", outcome="clean") == 1
    (log_record,) = (record for record in caplog.records if record.name == "proxy.requests")
    record: object = vars(log_record)["request"]
    assert isinstance(record, RequestRecord)
    assert record.client == "bob"
    assert "key-2" not in str(record)
