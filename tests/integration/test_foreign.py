"""A program that uses `Guardrails` in its own loop gets the same calls as a client of the proxy."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import pytest

from proxy.agents.foreign import GuardedAnswer, GuardedTurn, Guardrails
from proxy.api.app import ServerOptions
from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.replies import ReplyInProgress
from proxy.conversation.tools import ToolCall
from proxy.dialects.openai_chat.replies import ChunkDecoder, StreamedError
from proxy.dialects.sse import EventDecoder
from proxy.errors import CallBrokeOff
from proxy.guardrails.offer import TextPolicy
from proxy.inference.plan import Policy
from tests.corpus.cases import TOOLS as CORPUS_TOOLS
from tests.corpus.cases import Case
from tests.corpus.genuine import genuine
from tests.corpus.quoted import quoted
from tests.fakes.running_proxy import TOOLS, request, temper
from tests.fakes.sse import calls, says
from tests.fakes.whole_replies import completion_of

PARIS = '{"city": "Paris"}'
BARE = f'{{"name": "get_weather", "arguments": {PARIS}}}'
LEAKED = f'<tool_call>\n{{"name": "get_weather", "arguments": {PARIS}}}\n</tool_call>'
UNKNOWN = '<tool_call>\n{"name": "launch_rocket", "arguments": {"to": "mars"}}\n</tool_call>'
BROKEN = '<tool_call>{"name": "get_weather", "arguments": {"city": "Nice", "days": }}</tool_call>'
VIOLATING = calls("get_weather", '{"town": "Nice"}')

# the model's replies, one per attempt
LADDERS: dict[str, tuple[bytes, ...]] = {
    "a good call": (calls("get_weather", '{"city"', ': "Paris"}'),),
    "a leaked call": (says("Let me see.\n", *LEAKED),),
    "a coerced call": (calls("get_weather", '{"city": "Nice", "days": "3"}'),),
    "two calls": (says(LEAKED, "\n", LEAKED.replace("Paris", "Oslo")),),
    "the same call again and again": (says(*[f"{LEAKED}\n"] * 8),),
    "an announcement": (says("I'll check ", "the weather in Paris."), says(LEAKED)),
    "an unknown tool": (says(UNKNOWN), says(LEAKED)),
    "broken arguments": (says(BROKEN), says(LEAKED)),
    "a violation": (VIOLATING, says(LEAKED)),
    "all attempts": (VIOLATING, says(BROKEN), says(BARE)),
    "the end of the ladder": (says(UNKNOWN), says(BROKEN), says(UNKNOWN)),
    "an empty reply": (says(""), says(LEAKED)),
    "prose": (says("It is ", "sunny."),),
    "a reply that is cut off": (says("It is ", reason="length"),),
}


@dataclass(frozen=True)
class ForeignResult:
    """The events of a foreign loop, and the requests that it sent."""

    answer: GuardedAnswer
    deltas: list[JsonObject]
    requests: list[JsonObject]

    @property
    def called(self) -> list[tuple[JsonValue, JsonValue]]:
        return [(call.name, json.parse(call.arguments)) for call in self.answer.calls]


def chunks_of(reply: bytes) -> Iterator[JsonObject]:
    """Read a stream as an SDK does: all chunks except the end mark."""
    for event in EventDecoder().feed(reply):
        if event.data != "[DONE]":
            chunk = json.parse(event.data)
            assert isinstance(chunk, dict)
            yield chunk


def run_foreign_loop(turn: GuardedTurn, replies: Sequence[bytes], *, stream: bool) -> ForeignResult:
    """Run a foreign loop that receives the replies in order, without a network."""
    deltas: list[JsonObject] = []
    requests: list[JsonObject] = []
    while (body := turn.next_request()) is not None:
        reply = replies[len(requests)]
        requests.append(body)
        if stream:
            for chunk in chunks_of(reply):
                deltas += turn.receive(chunk)
        else:
            whole = completion_of(reply)
            assert isinstance(whole, bytes)
            deltas += turn.receive(json.parse(whole))
    return ForeignResult(turn.answer, deltas, requests)


def accumulate(deltas: Sequence[JsonObject]) -> tuple[str, list[str]]:
    """Return the text and the calls that an SDK accumulates from deltas."""
    decoder, reply = ChunkDecoder(), ReplyInProgress()
    for delta in deltas:
        for event in decoder.feed(json.dump_text({"choices": [{"index": 0, "delta": delta}]})):
            assert not isinstance(event, StreamedError)
            reply.add(event)
    whole = reply.finish("stop")
    calls = [ToolCall(call.id or "", call.name, str(call.arguments)) for call in whole.calls]
    return whole.text, [*map(str, calls)]


@pytest.mark.parametrize("title", LADDERS)
async def test_a_foreign_loop_gets_the_same_retries_and_calls_as_a_client_of_the_proxy(
    title: str, *, stream: bool
) -> None:
    replies = LADDERS[title]
    guard = Guardrails(tools=tools_of(TOOLS), model="m", engine="llama-server")
    messages = cast("list[JsonObject]", request()["messages"])
    outcome = run_foreign_loop(guard.turn(messages, stream=stream), replies, stream=stream)
    async with temper(*replies) as proxy:
        answer = await proxy.ask(request(), stream=stream)
    bodies = [upstream_request.fields for upstream_request in proxy.backend.upstream_requests]

    assert outcome.called == answer.called
    assert (outcome.answer.text or None) == (answer.text or None)
    assert outcome.answer.outcome.value == answer.report["outcome"]
    assert outcome.answer.finish_reason == answer.reason
    assert accumulate(outcome.deltas) == (outcome.answer.text, [*map(str, outcome.answer.calls)])
    assert len(outcome.requests) == len(replies) == len(bodies)
    for ours, theirs in zip(outcome.requests, bodies, strict=True):
        for member in ("messages", "tools", "tool_choice", "response_format", "max_tokens"):
            default = "auto" if member == "tool_choice" else None
            assert without_ids(ours.get(member, default)) == without_ids(
                theirs.get(member, default)
            )


def test_a_streamed_call_of_a_foreign_loop_raises_call_broke_off_if_never_completed() -> None:
    guard = Guardrails(tools=tools_of(TOOLS), engine="llama-server")
    turn = guard.turn([{"role": "user", "content": "How is it?"}], stream=True)
    with pytest.raises(CallBrokeOff):
        run_foreign_loop(
            turn, [calls("get_weather", '{"days": 3', ', "town": "Nice"}')] * 3, stream=True
        )
    with pytest.raises(CallBrokeOff):
        turn.next_request()


def without_ids(value: JsonValue) -> JsonValue:
    """Remove generated ids, which differ each time."""
    return json.parse(re.sub("call_[0-9a-f]{24}", "call", json.dump_text(value)))


def tools_of(offered: Sequence[JsonValue]) -> list[JsonObject]:
    return cast("list[JsonObject]", offered)


def sample_cases(kinds: Mapping[str, Sequence[Case]], per_kind: int) -> Iterator[Case]:
    """Choose a few cases of each kind, evenly spread."""
    for cases in kinds.values():
        plain = [case for case in cases if case.reason == "stop" and not case.reasoning]
        yield from plain[:: max(1, len(plain) // per_kind)]


async def test_a_foreign_loop_gets_the_same_rescued_calls_as_a_client_of_the_proxy(
    *, stream: bool
) -> None:
    cases = [*sample_cases(genuine(), 6), *sample_cases(quoted(), 1)]
    policy = Policy(text_policy=TextPolicy.ACCEPT, attempts=1)
    guard = Guardrails(
        tools=tools_of(CORPUS_TOOLS),
        model="m",
        engine="llama-server",
        text_policy="accept",
        attempts=1,
    )
    count = 0
    async with temper(
        *(says(case.reply) for case in cases), serving=ServerOptions(policy=policy)
    ) as proxy:
        for case in cases:
            messages = json.parse(case.request.fields["messages"])
            body: JsonObject = {"model": "m", "messages": messages, "tools": [*CORPUS_TOOLS]}
            answer = await proxy.ask(body, stream=stream)
            assert isinstance(messages, list)
            outcome = run_foreign_loop(
                guard.turn(messages, stream=stream), [says(case.reply)], stream=stream
            )
            assert outcome.called == answer.called, case.title
            assert (outcome.answer.text or None) == (answer.text or None), case.title
            count += len(answer.called)
    assert count > len(cases) // 4
