"""The client of the closed loop: the OpenAI SDK, with tools that run in memory."""

import asyncio
import math
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

from openai import AsyncOpenAI, OpenAIError

from benchmarks.real.bed import Task, ToolSet, World
from benchmarks.real.judging import OUT_OF_TIME, MadeCall, Reply, TaskRun, read_arguments
from proxy.conversation.json import JsonObject

if TYPE_CHECKING:
    from openai.types.chat import (
        ChatCompletion,
        ChatCompletionMessage,
        ChatCompletionMessageParam,
        ChatCompletionToolUnionParam,
    )

# the longest task needs four calls; a model in a loop must end
MOST_REQUESTS = 8
MOST_TOKENS = 256
ATTEMPTS_HEADER = "x-temper-attempts"


@dataclass(frozen=True, slots=True)
class Sampling:
    """The sampling parameters of one run."""

    temperature: float = 0.0
    seed: int = 1


@dataclass(slots=True)
class _Transcript:
    replies: list[Reply] = field(default_factory=list)
    calls: list[MadeCall] = field(default_factory=list)
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Loop:
    """A closed loop with one model."""

    client: AsyncOpenAI
    model: str
    sampling: Sampling = Sampling()
    seconds: float = math.inf  # limit of a task

    async def run_task(self, number: int, task: Task, tools: ToolSet) -> TaskRun:
        """Run a task to its end: a reply without a call, a failure, or the last request."""
        begin, transcript = time.monotonic(), _Transcript()
        world = World(tools.tables)
        messages: list[JsonObject] = [
            {"role": "system", "content": tools.system},
            {"role": "user", "content": task.text},
        ]
        try:
            async with asyncio.timeout(None if math.isinf(self.seconds) else self.seconds):
                await self._converse(tools, world, messages, transcript)
        except TimeoutError:
            transcript.problem = OUT_OF_TIME
        except OpenAIError as error:
            transcript.problem = f"{type(error).__name__}: {error}"
        return TaskRun(
            number,
            self.sampling.seed,
            tuple(transcript.replies),
            tuple(transcript.calls),
            time.monotonic() - begin,
            transcript.problem,
        )

    async def _converse(
        self,
        tools: ToolSet,
        world: World,
        messages: list[JsonObject],
        transcript: _Transcript,
    ) -> None:
        for _ in range(MOST_REQUESTS):
            message, attempts = await self._request(tools, messages)
            functions = [call for call in message.tool_calls or () if call.type == "function"]
            transcript.replies.append(Reply(message.content or "", len(functions), attempts))
            if not functions:
                break
            messages.append(_as_sent(message))
            for call in functions:
                made = _run_call(tools, world, call.function.name, call.function.arguments)
                transcript.calls.append(made)
                messages.append(_result(call.id, made))

    async def _request(
        self, tools: ToolSet, messages: list[JsonObject]
    ) -> "tuple[ChatCompletionMessage, int | None]":
        """Send a request; return the message, and the attempts in the response's header."""
        raw = await self.client.chat.completions.with_raw_response.create(
            model=self.model,
            messages=cast("list[ChatCompletionMessageParam]", messages),
            tools=cast("list[ChatCompletionToolUnionParam]", tools.describe_tools()),
            temperature=self.sampling.temperature,
            seed=self.sampling.seed,
            max_tokens=MOST_TOKENS,
        )
        completion: ChatCompletion = raw.parse()
        attempts = raw.headers.get(ATTEMPTS_HEADER, "")
        return completion.choices[0].message, int(attempts) if attempts.isdigit() else None


def _run_call(tools: ToolSet, world: World, name: str, text: str) -> MadeCall:
    arguments = read_arguments(text)
    result, succeeded = tools.run(world, name, arguments)
    return MadeCall(name, arguments, result, succeeded)


def _result(call_id: str, made: MadeCall) -> JsonObject:
    return {"role": "tool", "tool_call_id": call_id, "content": made.result}


def _as_sent(message: "ChatCompletionMessage") -> JsonObject:
    """Return a reply with calls as the next request repeats it."""
    calls = message.tool_calls or ()
    sent = [call.model_dump(include={"id", "type", "function"}) for call in calls]
    return {"role": "assistant", "content": message.content or "", "tool_calls": [*sent]}
