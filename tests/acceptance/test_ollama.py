"""The real OpenAI SDK, Temper, and a double of Ollama over a real llama-server.

The double proves that Temper implements the protocol as read from Ollama's source; it is not
Ollama. Its responses are validated with the types of Ollama's own Python client.
"""

import asyncio
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from typing import cast

import ollama
import openai
import pytest
from ollama._types import ChatRequest

from proxy.api.app import ServerOptions
from proxy.backends.ollama import Ollama, OllamaOverrides
from proxy.backends.transport import BackendClient
from proxy.conversation.json import JsonObject, JsonValue
from proxy.processes.process import RunningServer
from tests.fakes.command import running_temper
from tests.fakes.histories import call, called, result
from tests.fakes.histories import said as said_by
from tests.fakes.llama import seconds_until
from tests.fakes.ollama import OllamaDouble, Path
from tests.fakes.running_proxy import RunningProxy, in_front_of
from tests.fakes.scripted_backend import ScriptedBackend
from tests.fakes.scripts import SENTENCES, THOUGHTS, TOOLS, reply_to
from tests.fakes.sdk_answers import AFTER_A_CALL, CALLS, OFFERED, calls_in
from tests.fakes.sdk_answers import ask as ask_model
from tests.fakes.sockets import listening

MESSAGE = "".join(SENTENCES)
MODEL = "scripted:latest"


@pytest.fixture(params=[Path.NATIVE, Path.RENDERED], ids=lambda path: str(path.value))
def double(request: pytest.FixtureRequest, llama_server: RunningServer) -> OllamaDouble:
    """Two doubles: one lets its llama-server parse the model's calls, the other parses them."""
    return OllamaDouble(llama_server, cast("Path", request.param))


@asynccontextmanager
async def temper(
    double: OllamaDouble, overrides: OllamaOverrides | None = None, *, policy: str = "respond"
) -> AsyncGenerator[tuple[openai.AsyncOpenAI, RunningProxy], None]:
    """Run Temper in front of the double, and the SDK in front of Temper."""
    async with listening(double.app()) as upstream:
        engine = Ollama(BackendClient(upstream.url), overrides or OllamaOverrides(num_ctx=4096))
        async with (
            in_front_of(engine, ServerOptions(), ScriptedBackend()) as proxy,
            openai.AsyncOpenAI(
                base_url=f"{proxy.server.url}/v1",
                api_key="none",
                max_retries=0,
                default_headers={"x-temper-text-policy": policy},
            ) as client,
        ):
            try:
                yield client, proxy
            finally:
                await engine.unload()


ask = partial(ask_model, model=MODEL)


def check_bodies(double: OllamaDouble) -> None:
    """Validate every body with the types of Ollama's own client."""
    assert double.requests
    for body in double.requests:
        ChatRequest.model_validate(body, extra="ignore")
        assert (body["stream"], body["truncate"], body["shift"]) == (True, False, False)


@pytest.mark.parametrize("prompt", [prompt for prompt in CALLS if prompt != "[[bad json]]"])
async def test_a_call_in_any_text_format_is_returned_as_a_valid_tool_call(
    double: OllamaDouble, prompt: str
) -> None:
    async with temper(double) as (client, _):
        completion = await ask(client, prompt)
    assert calls_in(completion) == CALLS[prompt]
    assert completion.choices[0].finish_reason == "tool_calls"
    check_bodies(double)


@pytest.mark.fault("F16")
async def test_call_that_ollama_cannot_parse_is_retried_without_its_parser(
    double: OllamaDouble,
) -> None:
    """If Ollama parses calls, a broken call is an error without the text of the call."""
    async with temper(double) as (client, _):
        completion = await ask(client, "[[bad json]]")
    if double.path is Path.NATIVE:
        assert calls_in(completion) == [("get_weather", {"city": "Nice", "days": 2})]
        assert all("tools" in body for body in double.requests)
    else:
        assert calls_in(completion) == [("get_weather", {"city": "Paris"})]
        assert ["tools" in body for body in double.requests] == [True, False, False]
        assert ["format" in body for body in double.requests] == [False, False, True]


async def test_a_stream_contains_text_and_reasoning_and_usage(double: OllamaDouble) -> None:
    async with temper(double, policy="accept") as (client, _):
        chunks = await client.chat.completions.create(
            model=MODEL,
            messages=[{"role": "user", "content": "[[thinking]]"}],
            tools=OFFERED,
            stream=True,
            stream_options={"include_usage": True},
        )
        deltas = [chunk async for chunk in chunks]
    texts = [chunk.choices[0].delta.content for chunk in deltas if chunk.choices]
    thoughts = [
        (chunk.choices[0].delta.model_extra or {}).get("reasoning_content", "")
        for chunk in deltas
        if chunk.choices
    ]
    assert "".join(text or "" for text in texts).strip() == "The answer is 4."
    assert "".join(map(str, thoughts)).strip() == THOUGHTS
    usage = deltas[-1].usage
    assert usage is not None
    assert usage.prompt_tokens > 100
    assert usage.completion_tokens > 0


async def test_a_call_of_the_respond_tool_is_returned_as_text(double: OllamaDouble) -> None:
    """Ollama sends a call in one chunk, so the text of a respond call is not streamed."""
    async with temper(double) as (client, _):
        chunks = await client.chat.completions.create(
            model=MODEL,
            messages=[{"role": "user", "content": "[[respond]]"}],
            tools=OFFERED,
            stream=True,
        )
        text = [chunk.choices[0].delta.content or "" async for chunk in chunks if chunk.choices]
    assert "".join(text) == MESSAGE


async def test_empty_replies_to_a_required_call_end_in_a_constrained_call(
    double: OllamaDouble,
) -> None:
    async with temper(double) as (client, _):
        completion = await ask(client, "[[empty]]", choice="required")
    assert calls_in(completion) == [("get_weather", {"city": "Paris"})]
    *before, last = double.requests
    assert all("format" not in body for body in before)
    assert isinstance(last["format"], dict)
    assert last["tools"] == before[0]["tools"], "the prompt stays the same, and so does the cache"


async def test_with_the_tool_choice_none_no_tools_are_sent(double: OllamaDouble) -> None:
    async with temper(double) as (client, _):
        completion = await ask(client, "[[four]]", choice="none")
    assert completion.choices[0].message.content == reply_to("[[four]]")
    assert "tools" not in double.requests[0]


async def test_a_tool_result_is_sent_to_ollama_with_the_name_and_id_of_its_call(
    double: OllamaDouble,
) -> None:
    async with temper(double, policy="accept") as (client, _):
        completion = await ask(client, "[[call]]", history=AFTER_A_CALL)
    assert completion.choices[0].message.content == reply_to("<tool_response>")
    messages = cast("list[JsonObject]", double.requests[0]["messages"])
    assert (messages[-1]["tool_name"], messages[-1]["tool_call_id"]) == ("get_weather", "call.1")


@pytest.mark.parametrize("is_told", [True, False], ids=["declared", "discovered"])
async def test_tools_are_described_in_the_prompt_of_a_model_without_tool_support(
    double: OllamaDouble, *, is_told: bool
) -> None:
    double.capabilities, double.tells_capabilities = ("completion",), is_told
    async with temper(double) as (client, _):
        completion = await ask(client, "[[no newline]]")
        await ask(client, "[[no newline]]")
    assert calls_in(completion) == [("get_weather", {"city": "Lyon"})]
    assert sum("tools" in body for body in double.requests) == (0 if is_told else 1)
    check_bodies(double)


async def test_all_requests_use_the_same_num_ctx(double: OllamaDouble) -> None:
    async with temper(double) as (client, _):
        await ask(client, "[[call]]", extra={"seed": 1})
        await ask(client, "[[violation]]", extra={"temperature": 0.5})
    assert double.loads == [4096]


async def test_a_model_that_ollama_has_loaded_is_neither_reloaded_nor_unloaded(
    double: OllamaDouble,
) -> None:
    double.loaded[MODEL] = 2048
    async with temper(double, OllamaOverrides()) as (client, _):
        await ask(client, "[[call]]")
    assert double.loads == []
    assert double.unloaded == [], "the model was loaded before Temper started, and stays"


async def test_a_model_that_temper_loaded_is_unloaded_when_temper_ends(
    double: OllamaDouble,
) -> None:
    async with temper(double, OllamaOverrides(keep_alive="10m")) as (client, _):
        await ask(client, "[[call]]")
        assert double.loaded == {MODEL: 4096}
    assert double.unloaded == [MODEL]
    assert double.requests[0]["keep_alive"] == "10m"


async def test_oversized_prompt_is_a_client_error(double: OllamaDouble) -> None:
    async with temper(double) as (client, _):
        with pytest.raises(openai.BadRequestError) as raised:
            await ask(client, "word " * 10_000)
    assert raised.value.code == "context_length_exceeded"
    assert "maximum context length is 4096 tokens" in raised.value.message


async def test_conversation_that_exceeds_the_window_is_compacted(double: OllamaDouble) -> None:
    """Ollama has no token counting: the usage that it reports for each prompt must suffice."""
    lines = "\n".join(f"line {number} of the log" for number in range(10))
    history: list[JsonValue] = [said_by("user", "Please watch the log. [[four]]")]
    statuses: set[int] = set()
    tiers: list[str] = []
    async with temper(double, OllamaOverrides(num_ctx=6144), policy="accept") as (_, proxy):
        for turn in range(20):
            history += [called(call(f"c{turn}", "get_time")), result(f"c{turn}", lines)]
            request: JsonObject = {"model": MODEL, "messages": history, "tools": list(TOOLS)}
            answer = await proxy.ask(request, headers={"x-temper-text-policy": "accept"})
            statuses.add(answer.status)
            tiers += re.findall(r"tier=\d", answer.report.get("context", "tier=0"))
    assert statuses == {200}
    assert tiers[0] == "tier=0"
    assert tiers[-1] in {"tier=1", "tier=2"}
    assert double.loads == [6144]


async def test_an_unknown_window_is_learned_from_the_overflow_error_of_ollama(
    double: OllamaDouble,
) -> None:
    """No model is loaded and no window is configured, so only the error tells the window."""
    double.default_window = 1024
    async with temper(double, OllamaOverrides()) as (client, _):
        with pytest.raises(openai.BadRequestError) as raised:
            await ask(client, "word " * 3_000)
    assert raised.value.code == "context_length_exceeded"
    assert "maximum context length is 1024 tokens" in raised.value.message


@pytest.mark.fault("F18")
async def test_silently_truncated_prompt_is_an_error(double: OllamaDouble, *, stream: bool) -> None:
    """An old Ollama drops the oldest messages of an oversized prompt without an error."""
    double.is_old = True
    async with temper(double, OllamaOverrides(num_ctx=1024), policy="accept") as (_, proxy):
        request: JsonObject = {
            "model": MODEL,
            "messages": [
                {"role": "user", "content": "consequently " * 3_000},
                {"role": "assistant", "content": "Go on."},
                {"role": "user", "content": "[[four]]"},
            ],
        }
        answer = await proxy.ask(request, stream=stream, headers={"x-temper-compaction": "off"})
    assert answer.error is not None
    assert answer.error["code"] == "context_length_exceeded"
    assert answer.status == (200 if stream else 400)


async def test_a_model_that_ollama_lacks_is_an_error_with_the_pull_command(
    double: OllamaDouble,
) -> None:
    async with temper(double) as (client, _):
        with pytest.raises(openai.NotFoundError) as raised:
            await client.chat.completions.create(
                model="qwen3:8b", messages=[{"role": "user", "content": "Hi"}]
            )
    assert raised.value.code == "model_not_found"
    assert "ollama pull qwen3:8b" in raised.value.message
    assert MODEL in raised.value.message


async def test_an_error_within_a_stream_reaches_the_client(double: OllamaDouble) -> None:
    double.broken = "an error was encountered while running the model"
    async with temper(double, policy="accept") as (client, _):
        chunks = await client.chat.completions.create(
            model=MODEL, messages=[{"role": "user", "content": "[[four]]"}], stream=True
        )
        with pytest.raises(openai.APIError, match="while running the model"):
            async for _chunk in chunks:
                pass


@pytest.mark.parametrize(
    ("extra", "param"), [({"logit_bias": {"1": 2}}, "logit_bias"), ({"think": True}, "think")]
)
async def test_an_option_that_ollama_lacks_is_rejected_by_name(
    double: OllamaDouble, extra: JsonObject, param: str
) -> None:
    double.capabilities = ("completion", "tools")
    async with temper(double) as (client, _):
        with pytest.raises(openai.BadRequestError) as raised:
            await ask(client, "[[call]]", extra=extra)
    assert raised.value.param == param


async def test_disconnect_cancels_the_generation_within_two_seconds(
    double: OllamaDouble, llama_server: RunningServer
) -> None:
    took: list[float] = []
    async with temper(double, policy="accept") as (client, _):
        for _ in range(3):  # on a busy machine one or two of three measurements may be too slow
            asking = asyncio.create_task(ask(client, "[[forever]]"))
            await seconds_until(llama_server, is_busy=True)
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
            took.append(await seconds_until(llama_server, is_busy=False))
    assert min(took) < 2


async def test_ollamas_own_client_understands_the_double(double: OllamaDouble) -> None:
    """The responses of the double are valid for the types of Ollama's client."""
    async with listening(double.app()) as upstream, ollama.AsyncClient(upstream.url) as client:
        listed = await client.list()
        shown = await client.show(MODEL)
        lines = [
            line
            async for line in await client.chat(
                MODEL,
                [{"role": "user", "content": "[[preamble]]"}],
                tools=[cast("dict[str, object]", tool) for tool in TOOLS],
                stream=True,
                options={"num_ctx": 4096},
            )
        ]
        running = await client.ps()
        with pytest.raises(ollama.ResponseError, match="not found"):
            await client.chat("none", [{"role": "user", "content": "Hi"}])
    assert [model.model for model in listed.models] == [MODEL]
    assert shown.capabilities == ["completion", "tools", "thinking"]
    assert running.models[0].context_length == 4096
    made = [call for line in lines for call in line.message.tool_calls or ()]
    assert [(call.function.name, call.function.arguments) for call in made] == [
        ("get_weather", {"city": "Rome"})
    ]
    assert (lines[-1].done, lines[-1].done_reason) == (True, "stop")
    is_last = bool(lines[-1].message.tool_calls)
    assert is_last is (double.path is Path.NATIVE)


async def test_the_option_ollama_of_temper_serve_serves_only_the_named_model(
    double: OllamaDouble,
) -> None:
    def use(host: str) -> str:
        surroundings = {"OLLAMA_HOST": host}
        with running_temper("--ollama", MODEL, environment=surroundings) as url:
            client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
            listed = [model.id for model in client.models.list()]
            completion = client.chat.completions.create(
                model="whatever", messages=[{"role": "user", "content": "[[call]]"}], tools=OFFERED
            )
            client.close()
        assert calls_in(completion) == [("get_weather", {"city": "Paris", "unit": "celsius"})]
        return ", ".join(listed)

    async with listening(double.app()) as upstream:
        host = upstream.url.removeprefix("http://")
        assert await asyncio.to_thread(use, host) == MODEL
    assert double.unloaded == [MODEL]
