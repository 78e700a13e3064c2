"""Requests to the hand-written model and responses from it, for the SDKs of all dialects."""

from dataclasses import dataclass
from typing import cast

import openai
import pytest
from openai import omit
from openai.types.chat import (
    ChatCompletion,
    ChatCompletionMessageParam,
    ChatCompletionToolChoiceOptionParam,
    ChatCompletionToolUnionParam,
)

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from tests.fakes.scripts import THOUGHTS, TOOLS, reply_to

POLICY_HEADER = "x-temper-text-policy"
OFFERED = cast("list[ChatCompletionToolUnionParam]", list(TOOLS))

# the history: a call and its result
AFTER_A_CALL: tuple[ChatCompletionMessageParam, ...] = (
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {
                "id": "call.1",
                "type": "function",
                "function": {"name": "get_weather", "arguments": '{"city": "Paris"}'},
            }
        ],
    },
    {"role": "tool", "tool_call_id": "call.1", "content": "sunny"},
)


def weather(**arguments: JsonValue) -> tuple[str, JsonValue]:
    return ("get_weather", arguments)


# prompt -> the calls that the client receives
CALLS: dict[str, list[tuple[str, JsonValue]]] = {
    "[[call]]": [weather(city="Paris", unit="celsius")],
    "[[two calls]]": [("get_time", {}), weather(city="Oslo")],
    "[[no newline]]": [weather(city="Lyon")],
    "[[bare]]": [weather(city="Graz")],
    "[[fenced]]": [weather(city="Cork")],
    "[[coder]]": [weather(city="Turin")],
    "[[wrong type]]": [weather(city="Nice", days=3)],
    "[[bad json]]": [weather(city="Nice", days=2)],
    "[[violation]]": [weather(city="Nice", unit="celsius")],
    "[[unknown tool]]": [weather(city="Paris")],
    "[[thinking call]]": [weather(city="Bern")],
}


@dataclass(frozen=True)
class SdkAnswer:
    """A response without its ids; `reason` is the finish reason of chat completions."""

    text: str = ""
    thoughts: str = ""
    calls: tuple[tuple[str, JsonValue], ...] = ()
    reason: str = "stop"


@dataclass(frozen=True)
class SdkQuestion:
    """A request that can be sent with any SDK."""

    prompt: str
    policy: str = "respond"
    has_tools: bool = True
    max_tokens: int = 400

    @property
    def headers(self) -> dict[str, str]:
        """The headers that Temper defines."""
        return {POLICY_HEADER: self.policy}


def calling(prompt: str, thoughts: str = "") -> tuple[SdkQuestion, SdkAnswer]:
    return SdkQuestion(prompt), SdkAnswer("", thoughts, tuple(CALLS[prompt]), "tool_calls")


each_answer = pytest.mark.parametrize(
    ("question", "answer"),
    [
        (SdkQuestion("[[prose]]", "auto"), SdkAnswer(reply_to("[[prose]]"))),
        (SdkQuestion("[[four]]", has_tools=False), SdkAnswer(reply_to("[[four]]"))),
        calling("[[call]]"),
        calling("[[coder]]"),
        calling("[[bad json]]"),
        calling("[[two calls]]"),
        (SdkQuestion("[[thinking]]", "auto"), SdkAnswer("The answer is 4.", THOUGHTS)),
        calling("[[thinking call]]", "A tool will know."),
        (SdkQuestion("[[empty]]", "accept"), SdkAnswer()),
    ],
    ids=lambda value: value.prompt if isinstance(value, SdkQuestion) else "",
)


def check_as_in_chat(url: str, question: SdkQuestion, got: SdkAnswer, answer: SdkAnswer) -> None:
    """Check a response against the expected response, and against that of chat completions."""
    assert got == chat_answer(url, question)
    assert got.text == answer.text
    assert got.thoughts.strip() == answer.thoughts
    assert (got.calls, got.reason) == (answer.calls, answer.reason)


def chat_answer(url: str, question: SdkQuestion) -> SdkAnswer:
    """Send the request as a chat completion."""
    with openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        completion = client.chat.completions.create(
            model="any",
            messages=[{"role": "user", "content": question.prompt}],
            max_tokens=question.max_tokens,
            tools=OFFERED if question.has_tools else omit,
            extra_headers=question.headers,
        )
    (choice,) = completion.choices
    return SdkAnswer(
        choice.message.content or "",
        str((choice.message.model_extra or {}).get("reasoning_content", "")),
        tuple(calls_in(completion)),
        choice.finish_reason,
    )


async def ask(
    client: openai.AsyncOpenAI,
    prompt: str,
    *,
    model: str,
    history: tuple[ChatCompletionMessageParam, ...] = (),
    choice: ChatCompletionToolChoiceOptionParam | None = None,
    extra: JsonObject | None = None,
) -> ChatCompletion:
    """Request a whole chat completion with tools."""
    return await client.chat.completions.create(
        model=model,
        messages=[{"role": "user", "content": prompt}, *history],
        tools=OFFERED,
        tool_choice=choice or omit,
        extra_body=extra,
    )


def calls_in(completion: ChatCompletion) -> list[tuple[str, JsonValue]]:
    """Return the names and arguments of the calls; their ids must be unique."""
    (choice,) = completion.choices
    made = choice.message.tool_calls or []
    assert len({call.id for call in made}) == len(made)
    return [
        (call.function.name, json.parse(call.function.arguments))
        for call in made
        if call.type == "function"
    ]
