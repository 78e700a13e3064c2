"""The SDKs of OpenAI and Anthropic, Temper, and a real llama-server's `/v1/messages`.

The llama-server implements the protocol of Anthropic's API; the API itself is not tested.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from typing import cast

import anthropic
import openai
import pytest
from anthropic.types import Message, MessageParam, ToolParam

from proxy.api.app import ServerOptions
from proxy.backends.anthropic import KEY_HEADER, VERSION_HEADER, Anthropic
from proxy.backends.transport import BackendClient
from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.processes.process import RunningServer
from tests.fakes.anthropic import KEY, MODEL, WINDOW, AnthropicDouble, Fault
from tests.fakes.command import running_temper
from tests.fakes.histories import call, called, result
from tests.fakes.histories import said as said_by
from tests.fakes.running_proxy import RunningProxy, in_front_of
from tests.fakes.scripted_backend import ScriptedBackend
from tests.fakes.scripts import SENTENCES, THOUGHTS, TOOLS, reply_to
from tests.fakes.sdk_answers import AFTER_A_CALL, CALLS, OFFERED, calls_in
from tests.fakes.sdk_answers import ask as ask_model
from tests.fakes.sockets import listening

ANTHROPIC_TOOLS = [
    cast("ToolParam", {"name": function["name"], "input_schema": function["parameters"]})
    for tool in TOOLS
    if isinstance(function := tool["function"], dict)
]


@pytest.fixture
def double(llama_server: RunningServer) -> AnthropicDouble:
    return AnthropicDouble(llama_server)


@asynccontextmanager
async def in_front_of_double(double: AnthropicDouble) -> AsyncGenerator[RunningProxy, None]:
    """Run Temper in front of the double of Anthropic's API."""
    async with listening(double.app()) as upstream:
        connection = BackendClient(upstream.url, KEY, headers=VERSION_HEADER, key_header=KEY_HEADER)
        async with in_front_of(Anthropic(connection), ServerOptions(), ScriptedBackend()) as proxy:
            yield proxy


@asynccontextmanager
async def chat(
    double: AnthropicDouble, policy: str = "respond"
) -> AsyncGenerator[openai.AsyncOpenAI, None]:
    """Run OpenAI's SDK with Temper; the SDK's API key must not reach the backend."""
    async with (
        in_front_of_double(double) as proxy,
        openai.AsyncOpenAI(
            base_url=f"{proxy.server.url}/v1",
            api_key="of-the-client",
            max_retries=0,
            default_headers={"x-temper-text-policy": policy},
        ) as client,
    ):
        yield client


ask = partial(ask_model, model=MODEL)


@asynccontextmanager
async def messages(double: AnthropicDouble) -> AsyncGenerator[anthropic.AsyncAnthropic, None]:
    """Run Anthropic's SDK with Temper."""
    async with (
        in_front_of_double(double) as proxy,
        anthropic.AsyncAnthropic(
            base_url=proxy.server.url, api_key="of-the-client", max_retries=0
        ) as client,
    ):
        yield client


@pytest.mark.parametrize("prompt", [prompt for prompt in CALLS if prompt != "[[unknown tool]]"])
async def test_a_call_in_any_text_format_is_returned_as_a_valid_tool_call(
    double: AnthropicDouble, prompt: str
) -> None:
    async with chat(double) as client:
        completion = await ask(client, prompt)
    assert calls_in(completion) == CALLS[prompt]
    assert completion.choices[0].finish_reason == "tool_calls"
    assert {name: double.requests[0][name] for name in ("model", "max_tokens", "stream")} == {
        "model": MODEL,
        "max_tokens": 2048,
        "stream": True,
    }


async def test_a_streamed_call_has_its_arguments_in_several_deltas(double: AnthropicDouble) -> None:
    async with chat(double) as client:
        chunks = await client.chat.completions.create(
            model=MODEL,
            messages=[{"role": "user", "content": "[[call]]"}],
            tools=OFFERED,
            stream=True,
        )
        deltas = [
            call async for chunk in chunks for call in chunk.choices[0].delta.tool_calls or ()
        ]
    arguments = [delta.function.arguments or "" for delta in deltas if delta.function]
    assert json.parse("".join(arguments)) == {"city": "Paris", "unit": "celsius"}
    assert len(arguments) > 2


async def test_a_stream_contains_text_and_reasoning_and_usage(double: AnthropicDouble) -> None:
    async with chat(double, "accept") as client:
        chunks = await client.chat.completions.create(
            model=MODEL,
            messages=[{"role": "user", "content": "[[thinking]]"}],
            tools=OFFERED,
            stream=True,
            stream_options={"include_usage": True},
        )
        seen = [chunk async for chunk in chunks]
    deltas = [chunk.choices[0].delta for chunk in seen if chunk.choices]
    assert "".join(delta.content or "" for delta in deltas).strip() == "The answer is 4."
    thoughts = [(delta.model_extra or {}).get("reasoning_content", "") for delta in deltas]
    assert "".join(map(str, thoughts)).strip() == THOUGHTS
    usage = seen[-1].usage
    assert usage is not None
    assert usage.prompt_tokens > 100
    assert usage.completion_tokens > 0
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens


async def test_a_call_of_the_respond_tool_is_returned_as_text(double: AnthropicDouble) -> None:
    async with chat(double) as client:
        completion = await ask(client, "[[respond]]")
    assert completion.choices[0].message.content == "".join(SENTENCES)


async def test_prose_is_retried_until_the_last_attempt_forces_the_required_call(
    double: AnthropicDouble,
) -> None:
    """Anthropic's API has no grammar, so the last attempt sets `tool_choice` to force a call."""
    async with chat(double, "require") as client:
        completion = await ask(client, "[[prose]]")
    assert calls_in(completion) == [("get_weather", {"city": "Paris"})]
    *before, last = double.requests
    assert all("tool_choice" not in body for body in before)
    assert last["tool_choice"] == {"type": "any", "disable_parallel_tool_use": True}
    assert last["tools"] == before[0]["tools"]


async def test_a_tool_result_is_appended_to_the_unchanged_prompt_and_answered(
    double: AnthropicDouble,
) -> None:
    async with chat(double, "accept") as client:
        first = await ask(client, "[[call]]")
        second = await ask(client, "[[call]]", history=AFTER_A_CALL)
    assert calls_in(first) == [("get_weather", {"city": "Paris", "unit": "celsius"})]
    assert second.choices[0].message.content == reply_to("<tool_response>")
    before, after = (cast("list[JsonValue]", body["messages"]) for body in double.requests[:2])
    assert after[: len(before)] == before
    assert double.requests[0]["tools"] == double.requests[1]["tools"]
    usage = second.usage
    assert usage is not None
    assert usage.prompt_tokens_details is not None
    assert (usage.prompt_tokens_details.cached_tokens or 0) > 0.8 * usage.prompt_tokens


def content_of(message: Message) -> list[JsonValue]:
    return [block.model_dump(exclude={"signature", "id"}) for block in message.content]


@pytest.mark.parametrize("is_streamed", [False, True], ids=["whole", "streamed"])
async def test_anthropic_sdk_works_with_an_anthropic_backend(
    double: AnthropicDouble, *, is_streamed: bool
) -> None:
    async def send(client: anthropic.AsyncAnthropic, history: list[MessageParam]) -> Message:
        if not is_streamed:
            return await client.messages.create(
                model=MODEL,
                max_tokens=200,
                messages=history,
                tools=ANTHROPIC_TOOLS,
                system="Be kind.",
            )
        async with client.messages.stream(
            model=MODEL, max_tokens=200, messages=history, tools=ANTHROPIC_TOOLS, system="Be kind."
        ) as stream:
            return await stream.get_final_message()

    history: list[MessageParam] = [{"role": "user", "content": "[[thinking call]]"}]
    async with messages(double) as client:
        first = await send(client, history)
        assert first.stop_reason == "tool_use"
        (used,) = [block for block in first.content if block.type == "tool_use"]
        assert (used.name, used.input) == ("get_weather", {"city": "Bern"})
        history.append({"role": "assistant", "content": first.content})
        answered: MessageParam = {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": used.id, "content": "sunny"}],
        }
        second = await send(client, [*history, answered])
    assert second.stop_reason == "end_turn"
    assert [block.text for block in second.content if block.type == "text"] == [
        reply_to("<tool_response>")
    ]
    assert [body["max_tokens"] for body in double.requests] == [200, 200]
    assert double.requests[0]["system"] == [{"type": "text", "text": "Be kind."}]
    before, after = (cast("list[JsonValue]", body["messages"]) for body in double.requests)
    assert after[: len(before)] == before
    (answer,) = (
        message for message in after if isinstance(message, dict) and message["role"] == "assistant"
    )
    kinds = [block["type"] for block in cast("list[JsonObject]", answer["content"])]
    assert kinds == ["tool_use"], "thoughts that Anthropic has not signed do not go back"


async def test_the_backend_counts_the_tokens_and_lists_the_models(
    double: AnthropicDouble,
) -> None:
    async with messages(double) as client:
        counted = await client.messages.count_tokens(
            model=MODEL, messages=[{"role": "user", "content": "Hi"}], tools=ANTHROPIC_TOOLS
        )
        listed = [model async for model in client.models.list()]
    assert counted.input_tokens > 100
    assert 1 <= len(double.counted) <= 2  # once to check that the prompt fits
    assert [(model.id, model.max_input_tokens) for model in listed] == [(MODEL, WINDOW)]


async def test_oversized_prompt_is_a_client_error(double: AnthropicDouble) -> None:
    async with chat(double) as client:
        with pytest.raises(openai.BadRequestError) as raised:
            await ask(client, "word " * 20_000)
    assert raised.value.code == "context_length_exceeded"
    assert f"maximum context length is {WINDOW} tokens" in raised.value.message


async def test_conversation_that_exceeds_the_window_is_compacted(
    double: AnthropicDouble,
) -> None:
    lines = "\n".join(f"line {number} of the log" for number in range(30))
    history: list[JsonValue] = [said_by("user", "Please watch the log. [[four]]")]
    reports: list[str] = []
    async with in_front_of_double(double) as proxy:
        for turn in range(20):
            history += [called(call(f"c{turn}", "get_time")), result(f"c{turn}", lines)]
            request: JsonObject = {"model": MODEL, "messages": history, "tools": list(TOOLS)}
            answer = await proxy.ask(request, headers={"x-temper-text-policy": "accept"})
            assert answer.status == 200
            reports.append(answer.report.get("context", "tier=0"))
    assert "tier=0" in reports[0]
    assert "tier=0" not in reports[-1]


async def test_unknown_model_error_lists_the_known_models(
    double: AnthropicDouble,
) -> None:
    async with in_front_of_double(double) as proxy:
        answer = await proxy.ask(
            {"model": "claude-none", "messages": [said_by("user", "Hi")], "tools": list(TOOLS)}
        )
    assert answer.status == 404
    assert answer.error is not None
    assert answer.error["code"] == "model_not_found"
    assert MODEL in f"{answer.error['message']}"


@pytest.mark.parametrize(
    ("fault", "status", "retry_after"),
    [
        (Fault(529, "overloaded_error", headers={"retry-after": "7"}), 503, "7"),
        (Fault(529, "overloaded_error"), 503, "5"),
        (Fault(429, "rate_limit_error", headers={"retry-after": "9"}), 429, "9"),
        (Fault(401, "authentication_error"), 401, None),
        (Fault(500, "api_error"), 502, None),
        (Fault(kind="overloaded_error", events=1), 503, "5"),
        (Fault(kind="api_error", events=1), 502, None),
        (Fault(events=1), 502, None),
    ],
)
async def test_a_backend_error_sets_the_status_and_the_header_retry_after(
    double: AnthropicDouble, fault: Fault, status: int, retry_after: str | None
) -> None:
    double.faults = [fault]
    async with chat(double, "accept") as client:
        with pytest.raises(openai.APIStatusError) as raised:
            await ask(client, "[[four]]")
    assert raised.value.status_code == status
    assert raised.value.response.headers.get("retry-after") == retry_after


@pytest.mark.parametrize("kind", ["api_error", ""], ids=["error", "cut"])
async def test_a_broken_stream_ends_with_an_error(double: AnthropicDouble, kind: str) -> None:
    double.faults = [Fault(kind=kind, events=5)]
    async with chat(double, "accept") as client:
        chunks = await client.chat.completions.create(
            model=MODEL, messages=[{"role": "user", "content": "[[four]]"}], stream=True
        )
        texts: list[str] = []

        async def collect() -> None:
            async for chunk in chunks:
                texts.extend(choice.delta.content or "" for choice in chunk.choices)

        with pytest.raises(openai.APIError):
            await collect()
    assert "".join(texts)
    assert reply_to("[[four]]").startswith("".join(texts))


@pytest.mark.parametrize(
    ("extra", "param"),
    [({"seed": 1}, "seed"), ({"response_format": {"type": "json_object"}}, None)],
)
async def test_an_option_that_anthropic_lacks_is_emulated_or_named_in_the_error(
    double: AnthropicDouble, extra: JsonObject, param: str | None
) -> None:
    async with chat(double, "accept") as client:
        if param is None:
            assert calls_in(await ask(client, "[[call]]", extra=extra))
            return
        with pytest.raises(openai.BadRequestError) as raised:
            await ask(client, "[[call]]", extra=extra)
    assert raised.value.param == param
    assert double.requests == []


async def test_temper_serve_accepts_a_backend_of_the_kind_anthropic(
    llama_server: RunningServer,
) -> None:
    """Temper gets the model list and the errors from llama-server itself, not from the double."""

    def use() -> None:
        environment = {
            "TEMPER_BACKEND__API_KEY": llama_server.api_key,
            "TEMPER_BACKEND__KIND": "anthropic",
        }
        with running_temper("--backend-url", llama_server.base_url, environment=environment) as url:
            with openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
                assert [model.id for model in client.models.list()] == [MODEL]
                made = client.chat.completions.create(
                    model=MODEL, messages=[{"role": "user", "content": "[[coder]]"}], tools=OFFERED
                )
                response = client.responses.create(model=MODEL, input="[[four]]")
                with pytest.raises(openai.BadRequestError) as raised:
                    client.chat.completions.create(
                        model=MODEL, messages=[{"role": "user", "content": "word " * 20_000}]
                    )
            with anthropic.Anthropic(base_url=url, api_key="none", max_retries=0) as other:
                message = other.messages.create(
                    model=MODEL, max_tokens=99, messages=[{"role": "user", "content": "[[four]]"}]
                )
        assert calls_in(made) == [("get_weather", {"city": "Turin"})]
        assert response.output_text == reply_to("[[four]]")
        assert raised.value.code == "context_length_exceeded"
        assert content_of(message) == [
            {"type": "text", "text": reply_to("[[four]]"), "citations": None}
        ]

    await asyncio.to_thread(use)
