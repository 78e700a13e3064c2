"""A fallback: the first model gives no usable reply, so the request is sent to another model."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from proxy.api.app import ServerOptions
from proxy.api.streaming import StreamTimeouts
from proxy.backends.llama_server import LlamaServer
from proxy.backends.transport import BackendClient
from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.errors import LaunchFailed
from proxy.inference.plan import Policy
from proxy.mcp.execution import ToolOffer
from proxy.mcp.hosting import ToolHosting
from proxy.mcp.specification import ToolCallResult
from proxy.observability.metrics import Metrics
from proxy.observability.observers import Observers
from proxy.observability.record import RequestRecord
from proxy.observability.recording import Recording, read_recording
from proxy.observability.replay import replay_file
from proxy.processes.fleet import Fleet
from proxy.processes.swapping import Budget, LoadableModel, SwapPlanner
from proxy.serving.fallback import Fallback
from proxy.serving.services import Services
from tests.fakes import sse
from tests.fakes.exposition import Exposition
from tests.fakes.running_proxy import CHAT, RunningProxy, request, serving_all
from tests.fakes.scripted_backend import Ending, Script, ScriptedBackend, refuses
from tests.fakes.servers import Server
from tests.fakes.sockets import listening
from tests.fakes.sse import calls, says
from tests.fakes.tool_servers import FakeSource, served
from tests.timeouts import TIMEOUT_SECONDS, until

GOOD = calls("get_weather", '{"city": "Paris"}')
BAD = calls("get_weather", '{"town": 5}')
PARIS = [("get_weather", {"city": "Paris"})]
GAVE_UP = "The model gave no usable reply in 3 attempts"
THINKS = "{% for m in messages %}{{ m.reasoning_content }}{{ tools }}{% endfor %}"


class Records:
    """Keeps the records of finished requests."""

    def __init__(self) -> None:
        self.finished: list[RequestRecord] = []

    def take(self, record: RequestRecord) -> None:
        self.finished.append(record)


@dataclass(frozen=True)
class SmallAndBig:
    """Temper in front of `small`, which falls back to `big` at `big_url`."""

    proxy: RunningProxy
    small: ScriptedBackend
    big: ScriptedBackend
    big_url: str

    @property
    def sent(self) -> tuple[int, int]:
        """The number of requests to each server."""
        return len(self.small.upstream_requests), len(self.big.upstream_requests)


@asynccontextmanager
async def small_and_big(
    *big_scripts: Script | bytes,
    small_scripts: Sequence[Script | bytes] = (BAD,) * 30,
    per_hour: int = 0,
    serving: ServerOptions | None = None,
    observers: Observers | None = None,
    tools: ToolHosting | None = None,
    big_slots: int | None = None,
    fleet: Fleet | None = None,
) -> AsyncGenerator[SmallAndBig, None]:
    serving = serving or ServerOptions()
    small, big = ScriptedBackend(*small_scripts), ScriptedBackend(*big_scripts)
    services, urls = [], []
    async with AsyncExitStack() as stack:
        for name, backend in (("small", small), ("big", big)):
            upstream = await stack.enter_async_context(listening(backend))
            engine = LlamaServer(BackendClient(upstream.url))
            stack.push_async_callback(engine.close)
            services.append(serving.service(engine, name=name, fleet=fleet))
            urls.append(upstream.url)
        services[0] = replace(services[0], fallback=Fallback("big", per_hour))
        services[1] = replace(services[1], parallel=big_slots)
        proxy = await stack.enter_async_context(
            serving_all(Services(services), serving, small, observers, tools=tools)
        )
        yield SmallAndBig(proxy, small, big, urls[1])


async def test_fallback_model_answers_after_three_rejected_replies(*, stream: bool) -> None:
    async with small_and_big(GOOD) as both:
        answer = await both.proxy.ask(request(model="small"), stream=stream)
        assert answer.called == PARIS
        assert answer.reason == "tool_calls"
        assert (answer.report["outcome"], answer.report["fallback"]) == ("fallback", "big=answered")
        assert answer.report["attempts"] == "4"
        assert both.sent == (3, 1)
        if not stream:
            assert answer.headers["x-temper-backend"] == both.big_url
            assert isinstance(answer.usage, dict)
            assert answer.usage["temper"] == {
                "attempts": 4,
                "prompt_tokens": 44,
                "completion_tokens": 28,
                "total_tokens": 72,
                "fallback": "big",
            }


async def test_fallback_model_is_sent_the_client_request_unchanged(*, stream: bool) -> None:
    client_request = request(model="small", temperature=0.2, max_tokens=99)
    async with small_and_big(GOOD) as both:
        await both.proxy.ask(client_request, stream=stream)
        first, to_big = both.small.upstream_requests[0].raw, both.big.upstream_requests[0].raw
        assert {**first, "model": b'"big"'} == to_big
        assert both.big.upstream_requests[0].headers.get("x-temper-prefix")


async def test_the_reply_of_the_first_model_is_returned_if_the_fallback_reply_is_rejected(
    *, stream: bool
) -> None:
    async with small_and_big(BAD) as both:
        answer = await both.proxy.ask(request(model="small"), stream=stream)
        assert (answer.text or "").startswith(GAVE_UP)
        assert answer.report["outcome"] == "exhausted"
        assert answer.report["fallback"] == "big=rejected"
        assert both.sent == (3, 1)


async def test_a_request_for_the_fallback_model_itself_has_no_fallback() -> None:
    async with small_and_big(BAD, BAD, BAD) as both:
        answer = await both.proxy.ask(request(model="big"))
        assert "fallback" not in answer.report
        assert both.sent == (0, 3)


BODIES: dict[str, JsonObject] = {
    CHAT: request(model="small"),
    "/v1/messages": {
        "model": "small",
        "max_tokens": 100,
        "messages": [{"role": "user", "content": "How is the weather in Paris?"}],
        "tools": [
            {
                "name": "get_weather",
                "input_schema": {
                    "type": "object",
                    "properties": {"city": {"type": "string"}},
                    "required": ["city"],
                },
            }
        ],
    },
    "/v1/responses": {
        "model": "small",
        "input": "How is the weather in Paris?",
        "tools": [
            {
                "type": "function",
                "name": "get_weather",
                "parameters": {
                    "type": "object",
                    "properties": {"city": {"type": "string"}},
                    "required": ["city"],
                },
            }
        ],
    },
    "/api/chat": {**request(model="small"), "stream": False},
}


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize("good", [True, False])
async def test_in_every_dialect_the_fallback_reply_is_returned_if_it_is_usable(
    path: str, *, good: bool, stream: bool
) -> None:
    body = {**BODIES[path], "stream": stream}
    async with small_and_big(GOOD if good else BAD) as both:
        response = await both.proxy.client.post(path, json=body)
        assert response.status_code == 200
        assert ("Paris" in response.text.replace("How is the weather in Paris?", "")) is good
        assert (GAVE_UP in response.text) is not good
        assert both.sent == (3, 1)
        result = "big=answered" if good else "big=rejected"
        if not stream:
            assert response.headers["x-temper-fallback"] == result
        elif path != "/api/chat":  # the stream of Ollama (NDJSON) has no comments
            assert f"fallback={result}" in response.text


async def test_a_fallback_call_follows_text_already_streamed_by_the_first_model(
    *, stream: bool
) -> None:
    first = sse.START + sse.text("Let me look. ") + BAD[len(sse.START) :]
    async with small_and_big(GOOD, small_scripts=(first, BAD, BAD)) as both:
        answer = await both.proxy.ask(request(model="small"), stream=stream)
        assert (answer.text, answer.called) == ("Let me look.", PARIS)


async def test_a_partly_streamed_call_fails_unless_the_fallback_call_continues_it() -> None:
    begun = calls("get_weather", '{"city": "Paris", "days": "x"}')
    other = calls("get_weather", '{"city": "Oslo", "days": 1}')
    same = calls("get_weather", '{"city": "Paris", "days": 1}')
    async with small_and_big(same, other, small_scripts=(begun, begun, begun) * 2) as both:
        answer = await both.proxy.ask(request(model="small"), stream=True)
        assert answer.called == [("get_weather", {"city": "Paris", "days": 1})]
        answer = await both.proxy.ask(request(model="small"), stream=True)
        assert answer.error is not None
        assert answer.error["code"] == "call_broke_off"


async def test_the_second_fallback_is_withheld_if_one_per_hour_is_allowed(*, stream: bool) -> None:
    async with small_and_big(GOOD, per_hour=1) as both:
        reports = [
            (await both.proxy.ask(request(model="small"), stream=stream)).report for _ in range(2)
        ]
        assert [report["fallback"] for report in reports] == ["big=answered", "big=withheld"]
        assert reports[1]["outcome"] == "exhausted"
        assert both.sent == (6, 1)


async def test_the_reply_of_the_first_model_is_returned_if_the_fallback_server_fails(
    *, stream: bool
) -> None:
    broken = Script((sse.START, sse.text("It is"), Ending.BREAKS))
    async with small_and_big(refuses(503, {"message": "no"}), broken) as both:
        for _ in range(2):
            answer = await both.proxy.ask(request(model="small"), stream=stream)
            assert answer.status == 200
            assert (answer.text or "").startswith(GAVE_UP)
            assert answer.report["fallback"] == "big=failed"


async def test_in_strict_mode_a_rejected_fallback_reply_is_a_502() -> None:
    serving = ServerOptions(policy=Policy(is_strict=True))
    async with small_and_big(GOOD, BAD, serving=serving) as both:
        assert (await both.proxy.ask(request(model="small"))).called == PARIS
        answer = await both.proxy.ask(request(model="small"))
        assert answer.status == 502
        assert answer.error is not None
        assert answer.error["code"] == "tool_call_unrepairable"


@pytest.mark.parametrize(("window", "result"), [(600, "too_long"), (3_000, "answered")])
async def test_a_conversation_is_compacted_to_the_window_of_the_fallback_model(
    window: int, result: str
) -> None:
    steps: list[JsonValue] = []
    for number in range(30):
        called: JsonObject = {
            "id": f"call_{number}",
            "type": "function",
            "function": {"name": "get_weather", "arguments": json.dump_text({"city": f"{number}"})},
        }
        steps += [
            {"role": "assistant", "content": None, "tool_calls": [called]},
            {"role": "tool", "tool_call_id": f"call_{number}", "content": "sunny " * 100},
        ]
    question: JsonValue = {"role": "user", "content": "How is the weather? " * 100}
    async with small_and_big(GOOD) as both:
        both.big.properties = {"default_generation_settings": {"n_ctx": window}}
        answer = await both.proxy.ask(request(model="small", messages=[question, *steps]))
        assert answer.report["fallback"] == f"big={result}"
        if result == "answered":
            assert answer.report["context"].startswith(f"n_ctx={window}; ")
            small, big = both.small.upstream_requests[0], both.big.upstream_requests[0]
            assert len(big.body) < len(small.body)


async def test_a_client_disconnect_cancels_the_fallback_request(*, stream: bool) -> None:
    async with small_and_big(Script((sse.START, Ending.NEVER))) as both:
        body = {**request(model="small"), "stream": stream}
        asking = asyncio.create_task(both.proxy.client.post(CHAT, json=body))
        sent = await both.big.next_request()
        asking.cancel()
        async with asyncio.timeout(TIMEOUT_SECONDS):
            await sent.left.wait()


async def test_the_reply_of_the_first_model_is_returned_if_the_fallback_exceeds_the_deadline(
    *, stream: bool
) -> None:
    serving = ServerOptions(policy=Policy(attempts=1), timeouts=StreamTimeouts(deadline=3.0))
    async with small_and_big(Script((sse.START, Ending.NEVER)), serving=serving) as both:
        answer = await both.proxy.ask(request(model="small"), stream=stream)
        assert (answer.text or "").startswith("The model gave no usable reply in 1 attempt")
        assert answer.report["fallback"] == "big=failed"


async def test_the_fallback_is_reported_unavailable_if_no_slot_is_free(*, stream: bool) -> None:
    serving = ServerOptions(timeouts=StreamTimeouts(load_wait=0.3))
    busy = Script((sse.START, Ending.NEVER))
    async with small_and_big(busy, serving=serving, big_slots=1) as both:
        blocking = asyncio.create_task(both.proxy.ask(request(model="big")))
        await both.big.next_request()
        answer = await both.proxy.ask(request(model="small"), stream=stream)
        blocking.cancel()
        assert (answer.text or "").startswith(GAVE_UP)
        assert answer.report["fallback"] == "big=unavailable"
        assert both.sent == (3, 1)


def managed(most: int) -> tuple[Fleet, dict[str, Server]]:
    """Return a fleet of both models, of which `most` are loaded at the same time."""
    servers = {"small": Server(), "big": Server()}
    models = [LoadableModel(name) for name in servers]
    planner = SwapPlanner(models, Budget(models=most), failure_seconds=TIMEOUT_SECONDS)
    return Fleet(servers, planner), servers


@pytest.mark.parametrize("most", [1, 2])
async def test_fallback_model_is_loaded_only_if_both_models_fit_into_memory(
    most: int, *, stream: bool
) -> None:
    fleet, servers = managed(most)
    for server in servers.values():
        server.finish()
    async with small_and_big(GOOD, fleet=fleet) as both:
        answer = await both.proxy.ask(request(model="small"), stream=stream)
        result = "answered" if most == 2 else "unavailable"
        assert answer.report["fallback"] == f"big={result}"
        assert servers["big"].starts == most - 1
        assert servers["small"].stops == 0
    await fleet.close()


async def test_the_fallback_is_reported_unavailable_if_its_model_fails_to_load(
    *, stream: bool
) -> None:
    fleet, servers = managed(2)
    servers["small"].finish()
    servers["big"].finish(LaunchFailed("llama-server", "has no memory"))
    async with small_and_big(fleet=fleet) as both:
        for _ in range(2):
            answer = await both.proxy.ask(request(model="small"), stream=stream)
            assert (answer.text or "").startswith(GAVE_UP)
            assert answer.report["fallback"] == "big=unavailable"
        assert servers["big"].starts == 1
    await fleet.close()


async def test_repeated_idempotency_key_sends_no_second_request_to_the_fallback() -> None:
    async with small_and_big(GOOD) as both:
        first, again = [
            await both.proxy.ask(request(model="small"), headers={"idempotency-key": "1"})
            for _ in range(2)
        ]
        assert first.called == again.called == PARIS
        assert again.report["fallback"] == "big=answered"
        assert both.sent == (3, 1)


async def test_the_fallback_model_is_named_in_the_log_the_metrics_and_the_dashboard() -> None:
    records, metrics = Records(), Metrics()
    observers = Observers((records,), metrics)
    async with small_and_big(GOOD, observers=observers) as both:
        await both.proxy.ask(request(model="small"))
        await until(lambda: bool(records.finished))
        (record,) = records.finished
    assert [(each.kind, each.model) for each in record.attempts] == [
        ("as_asked", ""),
        ("nudged", ""),
        ("constrained", ""),
        ("fallback", "big"),
    ]
    seen = Exposition.read(metrics.exposition("")[0].decode())
    assert seen.value("temper_fallbacks_total", model="small", result="answered") == 1
    assert seen.value("temper_attempts_total", model="big", result="accepted") == 1
    assert seen.value("temper_tokens_total", model="big", type="output") == 7
    assert seen.value("temper_requests_running", model="big") == 0
    assert seen.value("temper_requests_running", model="small") == 0


@pytest.mark.parametrize("good", [True, False])
async def test_replay_compares_the_attempts_of_the_first_model(
    tmp_path: Path, *, good: bool, stream: bool
) -> None:
    path = tmp_path / "recording.jsonl"
    observers = Observers((), recording=Recording(path, 10_000_000, ()))
    async with small_and_big(GOOD if good else BAD, observers=observers) as both:
        await both.proxy.ask(request(model="small"), stream=stream)
    (kept,) = read_recording(path)
    assert len(kept.generations) == 3
    assert kept.verdict.outcome == ("fallback" if good else "exhausted")
    assert bool(kept.answer.calls) is good
    assert replay_file(path, None)[0].status == "same"


async def test_reasoning_of_the_fallback_model_is_not_sent_to_the_first_model(
    *, stream: bool
) -> None:
    thought = sse.START + sse.delta({"reasoning_content": "A secret of big."})
    reply = thought + GOOD[len(sse.START) :]
    async with small_and_big(reply, small_scripts=(BAD, BAD, BAD, says("Sunny."))) as both:
        both.small.properties = both.big.properties = {"chat_template": THINKS}
        body = request(model="small")
        answer = await both.proxy.ask(body, stream=stream)
        assert answer.reasoning == "A secret of big."
        messages = body["messages"]
        assert isinstance(messages, list)
        result: JsonObject = {"role": "tool", "tool_call_id": "call_backend", "content": "sunny"}
        called: JsonObject = {"role": "assistant", "content": None, "tool_calls": [*answer.calls]}
        await both.proxy.ask({**body, "messages": [*messages, called, result]})
        assert b"secret" not in both.small.upstream_requests[3].body


FIND = calls("find", '{"q": "Paris"}')
WRONG = calls("open_door", "{}")
ASKS: JsonObject = {"type": "mcp", "server_label": "search"}


def searching() -> ToolHosting:
    source = FakeSource(
        {"search": (served("find", "search"),)}, {"find": ToolCallResult("21 degrees")}
    )
    return ToolHosting(ToolOffer(source))


async def test_an_operator_tool_called_by_the_fallback_runs_and_the_first_model_continues(
    tmp_path: Path, *, stream: bool
) -> None:
    path = tmp_path / "recording.jsonl"
    observers = Observers((), recording=Recording(path, 10_000_000, ()))
    small = (WRONG, WRONG, WRONG, says("It is 21 degrees."))
    async with small_and_big(
        FIND, small_scripts=small, tools=searching(), observers=observers
    ) as both:
        answer = await both.proxy.ask(request(model="small", tools=[ASKS]), stream=stream)
        assert (answer.text, answer.calls) == ("It is 21 degrees.", [])
        assert answer.report["fallback"] == "big=answered"
        assert answer.report["tools"] == "search=1"
        assert answer.report["outcome"] == "fallback"
        assert both.sent == (4, 1)
    assert replay_file(path, None)[0].status == "same"


async def test_fallback_model_is_sent_the_results_of_executed_calls(*, stream: bool) -> None:
    small = (FIND, WRONG, WRONG, WRONG)
    async with small_and_big(
        says("It is 21 degrees."), small_scripts=small, tools=searching()
    ) as both:
        answer = await both.proxy.ask(request(model="small", tools=[ASKS]), stream=stream)
        assert answer.text == "It is 21 degrees."
        assert answer.report["fallback"] == "big=answered"
        assert both.big.upstream_requests[0].messages == both.small.upstream_requests[1].messages
        if not stream:
            assert answer.headers["x-temper-backend"] == both.big_url
