"""The main path: the real OpenAI SDK, `temper serve`, and a real llama-server."""

import asyncio
import itertools
from dataclasses import dataclass, field
from typing import cast

import openai
import pytest
from openai.types.chat import (
    ChatCompletion,
    ChatCompletionChunk,
    ChatCompletionMessageParam,
    ChatCompletionToolChoiceOptionParam,
    ChatCompletionToolUnionParam,
)
from openai.types.chat.completion_create_params import CompletionCreateParamsBase

from proxy.conversation import json
from tests.fakes.scripts import LONG_CITY, SENTENCES, THOUGHTS, reply_to
from tests.fakes.sdk_answers import AFTER_A_CALL, CALLS, OFFERED, POLICY_HEADER

MESSAGE = "".join(SENTENCES)
WITH_USAGE = {"stream_options": {"include_usage": True}}
WAYS = ("sync", "sync stream", "async", "async stream")


@dataclass(frozen=True)
class Ask:
    """A request of a client."""

    prompt: str
    policy: str = "respond"
    has_tools: bool = True
    max_tokens: int | None = None
    choice: ChatCompletionToolChoiceOptionParam | None = None
    history: tuple[ChatCompletionMessageParam, ...] = ()

    @property
    def asked(self) -> CompletionCreateParamsBase:
        params: CompletionCreateParamsBase = {
            "model": "any",
            "messages": [{"role": "user", "content": self.prompt}, *self.history],
        }
        if self.has_tools:
            params["tools"] = OFFERED
        if self.choice is not None:
            params["tool_choice"] = self.choice
        if self.max_tokens is not None:
            params["max_tokens"] = self.max_tokens
        return params

    @property
    def headers(self) -> dict[str, str]:
        return {POLICY_HEADER: self.policy}


@dataclass
class Answer:
    """A response, streamed or whole; `pieces` counts the deltas with text."""

    text: str = ""
    reasoning: str = ""
    calls: list[tuple[str, json.JsonValue]] = field(default_factory=list)
    reason: str | None = None
    pieces: int = 0


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> str:
    """The synchronous and the asynchronous SDK, each with and without streaming."""
    return str(request.param)


def get(url: str, way: str, ask: Ask) -> Answer:
    if way.startswith("async"):
        return asyncio.run(get_async(url, ask, is_stream=way == "async stream"))
    with openai.OpenAI(
        base_url=f"{url}/v1", api_key="none", max_retries=0, default_headers=ask.headers
    ) as client:
        if way == "sync":
            return whole(client.chat.completions.create(**ask.asked, stream=False))
        return streamed(
            [*client.chat.completions.create(**ask.asked, stream=True, extra_body=WITH_USAGE)]
        )


async def get_async(url: str, ask: Ask, *, is_stream: bool) -> Answer:
    async with openai.AsyncOpenAI(
        base_url=f"{url}/v1", api_key="none", max_retries=0, default_headers=ask.headers
    ) as client:
        if not is_stream:
            return whole(await client.chat.completions.create(**ask.asked, stream=False))
        chunks = await client.chat.completions.create(
            **ask.asked, stream=True, extra_body=WITH_USAGE
        )
        return streamed([chunk async for chunk in chunks])


def whole(completion: ChatCompletion) -> Answer:
    """Read a completion, and check the invariants that every client relies on."""
    (choice,) = completion.choices
    assert completion.id
    assert completion.usage is not None
    assert completion.usage.completion_tokens > 0 or not choice.message.content
    assert choice.message.role == "assistant"
    answer = Answer(choice.message.content or "", reason=choice.finish_reason)
    answer.reasoning = str((choice.message.model_extra or {}).get("reasoning_content", ""))
    for call in choice.message.tool_calls or []:
        assert call.type == "function"
        answer.calls.append((call.function.name, json.parse(call.function.arguments)))
    return answer


def streamed(chunks: list[ChatCompletionChunk]) -> Answer:
    """Read a stream, and check the invariants that every client relies on."""
    answer = Answer()
    assert chunks[0].choices[0].delta.role == "assistant"
    assert len({chunk.id for chunk in chunks}) == 1
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    ids: set[str] = set()
    calls: list[tuple[str, list[str]]] = []
    for choice in itertools.chain.from_iterable(chunk.choices for chunk in chunks):
        assert answer.reason is None, "nothing comes behind the finish reason"
        answer.text += choice.delta.content or ""
        answer.pieces += bool(choice.delta.content)
        answer.reasoning += str((choice.delta.model_extra or {}).get("reasoning_content", ""))
        for call in choice.delta.tool_calls or []:
            assert call.function is not None
            if call.id is not None:
                assert call.index == len(calls)
                ids.add(call.id)
                calls.append((str(call.function.name), []))
            calls[call.index][1].append(call.function.arguments or "")
        answer.reason = choice.finish_reason
    assert len(ids) == len(calls)
    if answer.reason == "tool_calls":  # calls of a truncated response are never run
        answer.calls = [(name, json.parse("".join(pieces))) for name, pieces in calls]
    return answer


@pytest.mark.parametrize("prompt", CALLS)
@pytest.mark.parametrize("policy", ["respond", "accept"])
def test_a_call_in_any_text_format_is_returned_as_a_valid_tool_call(
    url: str, way: str, policy: str, prompt: str
) -> None:
    answer = get(url, way, Ask(prompt, policy))
    assert answer.calls == CALLS[prompt]
    assert answer.reason == "tool_calls"
    assert "{" not in answer.text
    assert "<" not in answer.text


def test_text_before_a_call_is_returned_with_the_call(url: str, way: str) -> None:
    answer = get(url, way, Ask("[[preamble]]"))
    assert answer.text.strip() == "Let me look that up for you."
    assert answer.calls == [("get_weather", {"city": "Rome"})]


@pytest.mark.parametrize(
    ("ask", "text"),
    [
        pytest.param(Ask("[[respond]]"), MESSAGE, id="message of respond"),
        pytest.param(Ask("[[prose]]", "accept"), reply_to("[[prose]]"), id="accepted prose"),
        pytest.param(Ask("[[prose]]"), reply_to("You answered in plain text."), id="nudged prose"),
        pytest.param(Ask("[[four]]", has_tools=False), reply_to("[[four]]"), id="no tools"),
        pytest.param(Ask("[[four]]", choice="none"), reply_to("[[four]]"), id="choice none"),
        pytest.param(
            Ask("[[call]]", "accept", history=AFTER_A_CALL),
            reply_to("<tool_response>"),
            id="after a tool has run",
        ),
        pytest.param(Ask("[[thinking]]", "accept"), "The answer is 4.", id="after reasoning"),
    ],
)
def test_a_text_reply_is_returned_completely_and_streamed_in_several_deltas(
    url: str, way: str, ask: Ask, text: str
) -> None:
    answer = get(url, way, ask)
    assert (answer.text, answer.calls, answer.reason) == (text, [], "stop")
    assert answer.pieces > 1 or "stream" not in way
    assert answer.reasoning.strip() == (THOUGHTS if "thinking" in ask.prompt else "")


@pytest.mark.parametrize(
    "ask",
    [
        Ask("[[prose]]", "require"),
        Ask("[[prose]]", choice="required"),
        Ask("[[prose]]", choice={"type": "function", "function": {"name": "get_weather"}}),
    ],
    ids=["policy require", "choice required", "named tool"],
)
def test_prose_is_retried_until_the_model_makes_the_required_call(
    url: str, way: str, ask: Ask
) -> None:
    assert get(url, way, ask).calls == [("get_weather", {"city": "Paris"})]


@pytest.mark.parametrize("prompt", ["[[long call]]", "[[long exact call]]"])
def test_a_call_cut_off_by_max_tokens_is_not_returned(url: str, way: str, prompt: str) -> None:
    answer = get(url, way, Ask(prompt, max_tokens=12))
    assert answer.calls == []
    assert answer.reason == "length"
    assert LONG_CITY[:5] not in answer.text


def test_an_oversized_prompt_is_a_client_error(url: str, way: str) -> None:
    with pytest.raises(openai.BadRequestError) as raised:
        get(url, way, Ask("word " * 20_000))
    assert raised.value.code == "context_length_exceeded"
    assert "maximum context length" in raised.value.message


def test_a_request_succeeds_even_if_the_server_rejects_its_schema(url: str) -> None:
    """llama-server rejects boolean sub-schemas with 400; Temper still validates the reply."""
    properties = {"city": {"enum": ["Lyon"]}, "anything": True, "odd": {"type": "any"}}
    schema = {"type": "object", "properties": properties}
    function = {"name": "get_weather", "description": None, "parameters": schema}
    tools = cast("list[ChatCompletionToolUnionParam]", [{"type": "function", "function": function}])
    with openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        completion = client.chat.completions.create(
            model="any", messages=Ask("[[no newline]]").asked["messages"], tools=tools
        )
    assert whole(completion).calls == [("get_weather", {"city": "Lyon"})]


def test_a_retry_reuses_the_prompt_cache(url: str) -> None:
    """The prompt of a retry begins with the prompt of the previous attempt, which is cached."""
    with openai.OpenAI(base_url=f"{url}/v1", api_key="none") as client:
        raw = client.chat.completions.with_raw_response.create(
            model="any",
            messages=[{"role": "user", "content": "Please think of [[unknown tool]]"}],
            tools=OFFERED,
        )
    assert raw.headers["x-temper-attempts"] == "3"
    assert raw.headers["x-temper-outcome"] == "retried"
    usage = raw.parse().usage
    assert usage is not None
    assert usage.prompt_tokens_details is not None
    cached = usage.prompt_tokens_details.cached_tokens or 0
    sums = (usage.model_extra or {})["temper"]
    before = sums["prompt_tokens"] - usage.prompt_tokens  # the prompts of the first two attempts
    assert usage.prompt_tokens > cached >= before / 2
