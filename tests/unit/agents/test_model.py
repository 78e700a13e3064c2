import asyncio
import builtins
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from proxy.agents.agent import Agent
from proxy.agents.model import Model, NoTracing, open_tracing
from proxy.errors import InvalidConfiguration, InvalidRequest, TemperError
from proxy.observability.tracing import RunTracing
from proxy.tools.toolset import Toolset
from proxy.tools.transcript import Conversation
from tests.fakes.agents import WEATHER_CALLED, get_weather, scripted
from tests.fakes.rounds import called, done
from tests.fakes.sse import says

HI = {"messages": [{"role": "user", "content": "Hi"}]}


async def test_a_model_cannot_be_opened_twice_or_used_outside_of_its_block() -> None:
    async with scripted(says("Hi.")) as (model, _):
        assert model.opened.settings.backend.kind == "llama-server"
        with pytest.raises(RuntimeError, match="already open"):
            await model.__aenter__()
        with pytest.raises(RuntimeError, match="run_sync"):
            _ = model.portal
    with pytest.raises(RuntimeError, match="not open"):
        _ = model.opened


@pytest.mark.parametrize(
    ("model", "problem"),
    [
        (Model("http://127.0.0.1:9", path="model.gguf"), "cannot be combined with model.path"),
        (Model("not a url"), "backend.url"),
        (Model("http://127.0.0.1:9", settings={"backend": {"colour": "red"}}), "colour"),
        (Model(config="/nowhere/temper.toml"), "/nowhere/temper.toml"),
    ],
)
async def test_the_error_for_an_invalid_model_argument_names_the_setting(
    model: Model, problem: str
) -> None:
    with pytest.raises(InvalidConfiguration, match=problem):
        await model.__aenter__()


def test_a_model_that_cannot_be_opened_ends_its_thread() -> None:
    model = Model("not a url")
    with pytest.raises(InvalidConfiguration):
        model.__enter__()
    with pytest.raises(RuntimeError, match="run_sync"):
        _ = model.portal


def test_a_model_opened_by_another_event_loop_is_refused_with_a_remedy() -> None:
    model = Model("http://127.0.0.1:9", settings={"backend": {"kind": "llama-server"}})
    with model, pytest.raises(RuntimeError, match=r"another event loop: use run_sync\(\)"):
        asyncio.run(Agent(model).run("Hi"))


async def test_an_error_during_opening_closes_the_opened_parts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    closed: list[str] = []

    def open_nothing(_: str | None, opened: ExitStack) -> NoTracing:
        opened.callback(closed.append, "tracing")
        return NoTracing()

    monkeypatch.setattr("proxy.agents.model.open_tracing", open_nothing)
    model = Model(path="/nowhere/model.gguf")
    with pytest.raises(TemperError):
        await model.__aenter__()
    assert closed == ["tracing"]


async def test_a_model_is_selected_by_its_name_in_a_configuration_file(tmp_path: Path) -> None:
    config = tmp_path / "temper.toml"
    config.write_text('[models.coder]\nurl = "http://127.0.0.1:9"\nkind = "llama-server"\n')
    async with Model(config=config, name="coder") as model:
        assert model.request({**HI}).model == "coder"  # type: ignore[dict-item]
        names = [service.name for service in model.opened.preparation.services]
    assert names == ["coder"]


async def test_the_argument_ollama_sets_the_kind_and_the_model() -> None:
    async with Model(ollama="qwen3") as model:
        settings = model.opened.settings
    assert (settings.backend.kind, settings.ollama.model) == ("ollama", "qwen3")


def test_a_request_field_of_the_wrong_type_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="temperature"):
        Model("http://127.0.0.1:9").request({**HI, "temperature": "hot"})  # type: ignore[dict-item]


def test_headers_are_sent_unchanged_if_tracing_is_off() -> None:
    with NoTracing().run("agent", "tiny") as spans:
        with spans.attempt({"a": "b"}, 1, None) as headers:
            assert headers == {"a": "b"}
        spans.tool_started(called(1), 1)
        spans.tool_finished(done(called(1)))
        spans.finish("answered", 1, (1, 1))


def test_runs_are_traced_without_a_collector_if_the_program_uses_opentelemetry(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with ExitStack() as opened:
        assert isinstance(open_tracing(None, opened), RunTracing)
        monkeypatch.delitem(sys.modules, "opentelemetry.sdk.trace")
        assert isinstance(open_tracing(None, opened), NoTracing)


def _uninstall(monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    imported: Callable[..., object] = builtins.__import__  # type: ignore[explicit-any]

    def refuse(name: str, *rest: object) -> object:
        if name.startswith(missing):
            raise ImportError(name)
        return imported(name, *rest)

    monkeypatch.delitem(sys.modules, "proxy.observability.tracing")
    monkeypatch.setattr(builtins, "__import__", refuse)


def test_a_program_that_uses_opentelemetry_is_traced_without_the_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _uninstall(monkeypatch, "opentelemetry.exporter")
    with ExitStack() as opened:
        assert type(open_tracing(None, opened)).__name__ == RunTracing.__name__


@pytest.mark.parametrize("missing", ["opentelemetry.exporter", "opentelemetry"])
def test_a_collector_address_without_the_extra_is_an_error(
    monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    _uninstall(monkeypatch, missing)
    with ExitStack() as opened, pytest.raises(InvalidConfiguration, match=r"temper-proxy\[otel\]"):
        open_tracing("http://127.0.0.1:9", opened)


async def test_a_run_is_traced_with_its_generations_and_its_tools(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    exporter = InMemorySpanExporter()
    tracing = RunTracing(exporter)
    monkeypatch.setattr("proxy.agents.model.open_tracing", lambda *_: tracing)
    wrong = says("I'll check the weather.")
    async with scripted(wrong, WEATHER_CALLED, says("Fine.")) as (model, backend):
        await Agent(model, [get_weather], name="reader").run("How is Paris?")
    tracing.close()
    spans = sorted(exporter.get_finished_spans(), key=lambda span: span.start_time or 0)
    rounds = [(span.name, (span.attributes or {}).get("temper.round")) for span in spans]
    assert rounds == [
        ("invoke_agent reader", None),
        *[("chat default", 1)] * 2,
        ("execute_tool get_weather", 1),
        ("chat default", 2),
    ]
    assert (spans[2].attributes or {})["temper.attempt.defect"] == "announced"
    assert (spans[0].attributes or {})["temper.stop"] == "answered"
    assert spans[1].context is not None
    sent = backend.upstream_requests[0].headers["traceparent"]
    assert f"{spans[1].context.trace_id:032x}-{spans[1].context.span_id:016x}" in sent


async def test_the_method_describe_returns_facts_about_the_engine_and_the_budget() -> None:
    prompted: dict[str, dict[str, object]] = {
        "profile": {"tools_in_prompt": "hermes"},
        "context": {"window_tokens": 4000},
    }
    async with scripted(window=8192, **prompted) as (model, _):
        described = await model.describe()
    assert (described.tools, described.engine) == ("hermes", "llama.cpp")
    assert (described.window, described.slots) == (4000, 2)
    assert 0 < described.budget < 4000
    async with scripted() as (model, _):
        described = await model.describe()
    assert (described.tools, described.window) == ("template", None)
    with pytest.raises(InvalidConfiguration, match=r"context\.window_tokens.*does not report"):
        _ = described.budget


async def test_without_a_count_endpoint_the_tokens_of_a_conversation_are_estimated() -> None:
    conversation = Conversation.of([{"role": "user", "content": "How is the weather in Paris?"}])
    async with scripted() as (model, _):  # a server without an endpoint that counts
        tokens, is_estimated = await model.count_tokens(conversation)
        with_tools = await model.count_tokens(
            conversation.messages, tools=Toolset([get_weather]).openai()
        )
    assert is_estimated
    assert 5 < tokens < with_tools.tokens
