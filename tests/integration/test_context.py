"""Conversations that outgrow the window, through the whole HTTP path."""

import asyncio
import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import pytest

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from tests.examples import PROFILE, mostly_deep
from tests.fakes import sse
from tests.fakes.running_proxy import TOOLS, RunningProxy, in_front_of, request, temper
from tests.fakes.scripted_backend import ScriptedBackend, refuses
from tests.fakes.tokenizing import TokenizingBackend

WINDOW = 4096
SYSTEM: JsonObject = {"role": "system", "content": "Answer in one sentence."}
QUESTION: JsonObject = {"role": "user", "content": "Which of the hundred cities is warm?"}
OVERFLOW: JsonObject = {
    "code": 400,
    "message": "request (9000 tokens) exceeds the available context size (4096 tokens)",
    "type": "exceed_context_size_error",
    "n_prompt_tokens": 9000,
    "n_ctx": WINDOW,
}


def step(number: int) -> list[JsonValue]:
    """Return a call and its result, together some hundred tokens."""
    arguments = json.dump_text({"city": f"City number {number}"})
    call: JsonObject = {
        "id": f"call_{number}",
        "type": "function",
        "function": {"name": "get_weather", "arguments": arguments},
    }
    lines = "\n".join(f"hour {hour}: sunny and {hour} degrees" for hour in range(40))
    result = f"report for City number {number}\n{lines}\nend of report {number}"
    return [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"call_{number}", "content": result},
    ]


def conversation(steps: int) -> JsonObject:
    history = [message for number in range(steps) for message in step(number)]
    return request(messages=[SYSTEM, QUESTION, *history])


def with_window(proxy: RunningProxy, tokens: int = WINDOW) -> None:
    proxy.backend.properties = {
        "model_alias": "m",
        "total_slots": 1,
        "default_generation_settings": {"n_ctx": tokens},
    }


def shape(header: str) -> dict[str, int]:
    """Parse the value of the header `x-temper-context`."""
    pairs = (part.split("=") for part in header.split("; "))
    return {name: int(number) for name, number in pairs}


DONE = sse.says("City number 3.")


def costs(prompt: int, reply: bytes = sse.text("It is warm."), reason: str = "stop") -> bytes:
    """Return a reply whose usage reports a prompt of `prompt` tokens."""
    finish = sse.part([{"finish_reason": reason, "index": 0, "delta": {}}])
    usage = sse.part([], usage={"prompt_tokens": prompt, "completion_tokens": 3})
    return sse.START + reply + finish + usage + sse.DONE


async def test_short_conversation_is_forwarded_byte_for_byte(*, stream: bool) -> None:
    async with temper(DONE) as proxy:
        with_window(proxy)
        answer = await proxy.ask(conversation(2), stream=stream)
    sent = proxy.backend.upstream_requests[0].messages
    assert sent == json.split_array(json.dump(conversation(2)["messages"]))
    counts = shape(answer.report["context"])
    assert (counts["n_ctx"], counts["tier"], counts["epoch"]) == (WINDOW, 0, 0)
    assert counts["sent"] == counts["client"] > 0


async def test_long_conversation_is_compacted_and_reported(*, stream: bool) -> None:
    async with temper(DONE) as proxy:
        with_window(proxy)
        answer = await proxy.ask(conversation(30), stream=stream)
    assert answer.status == 200
    counts = shape(answer.report["context"])
    assert counts["tier"] >= 1
    assert counts["sent"] < WINDOW < counts["client"]
    sent = proxy.backend.upstream_requests[0].messages
    assert sent[:2] == [json.dump(SYSTEM), json.dump(QUESTION)]
    assert sent[-2:] == [json.dump(message) for message in step(29)]
    everything = b"".join(sent)
    assert b"City number 29" in everything
    assert b"hour 20" in sent[-1]


async def test_sent_prefix_is_stable_until_the_next_compaction() -> None:
    async with temper(*[DONE] * 12) as proxy:
        with_window(proxy, 3 * WINDOW)
        epochs = []
        for steps in range(20, 32):
            answer = await proxy.ask(conversation(steps))
            epochs.append(shape(answer.headers["x-temper-context"])["epoch"])
        sent = [upstream_request.messages for upstream_request in proxy.backend.upstream_requests]
    kept = [after[: len(before)] == before for before, after in itertools.pairwise(sent)]
    cut = [now > before for before, now in itertools.pairwise(epochs)]
    assert [not is_cut for is_cut in cut] == kept
    assert 0 < sum(cut) <= 4


@pytest.mark.parametrize("mode", ["off", "report"])
async def test_the_prompt_is_forwarded_unchanged_if_the_compaction_header_is_off(mode: str) -> None:
    async with temper(costs(3 * WINDOW)) as proxy:
        with_window(proxy)
        headers = {"x-temper-compaction": mode}
        answer = await proxy.ask(conversation(30), headers=headers)
    sent = proxy.backend.upstream_requests[0].messages
    assert sent == json.split_array(json.dump(conversation(30)["messages"]))
    assert ("x-temper-context" in answer.headers) is (mode == "report")


async def test_unknown_compaction_option_is_rejected_by_name() -> None:
    async with temper() as proxy:
        answer = await proxy.ask(conversation(1), headers={"x-temper-compaction": "please"})
    assert (answer.status, answer.error is not None) == (400, True)
    assert answer.error is not None
    assert answer.error["param"] == "x-temper-compaction"


async def test_a_prompt_that_the_backend_rejects_as_too_long_is_compacted(*, stream: bool) -> None:
    """The window is unknown at first: the rejection reports it and the size of the prompt."""
    async with temper(refuses(400, OVERFLOW), DONE) as proxy:
        answer = await proxy.ask(conversation(20), stream=stream)
    assert (answer.status, answer.text, answer.error) == (200, "City number 3.", None)
    first, second = (
        upstream_request.messages for upstream_request in proxy.backend.upstream_requests
    )
    assert len(b"".join(second)) < len(b"".join(first))
    assert shape(answer.report["context"])["tier"] >= 1


async def test_incompressible_prompt_is_rejected_with_both_token_counts(*, stream: bool) -> None:
    long = request(messages=[{"role": "user", "content": "word " * 40_000}])
    async with temper() as proxy:
        with_window(proxy)
        answer = await proxy.ask(long, stream=stream)
        assert proxy.backend.upstream_requests == []
    assert answer.status == 400
    assert answer.error is not None
    assert answer.error["code"] == "context_length_exceeded"
    assert answer.error["n_ctx"] == WINDOW
    assert isinstance(answer.error["n_prompt_tokens"], int)
    assert "maximum context length" in str(answer.error["message"])


async def test_an_overflow_of_a_short_conversation_has_the_message_of_the_backend() -> None:
    async with temper(refuses(400, OVERFLOW), refuses(400, OVERFLOW)) as proxy:
        answer = await proxy.ask(conversation(1))
    assert answer.error is not None
    assert "exceeds the available context size" in str(answer.error["message"])
    assert answer.error["n_prompt_tokens"] == 9000


async def test_input_tokens_are_those_of_the_compacted_prompt() -> None:
    async with temper() as proxy:
        with_window(proxy)
        counts = []
        for steps in (2, 30):
            answer = await proxy.client.post(
                "/v1/chat/completions/input_tokens", json=conversation(steps)
            )
            assert answer.status_code == 200
            counts.append(answer.json()["input_tokens"])
            assert answer.json()["temper"] == {"estimated": True}  # this server cannot count
        bad = await proxy.client.post("/v1/chat/completions/input_tokens", json={"messages": []})
    assert 0 < counts[0] < counts[1] < WINDOW
    assert (bad.status_code, bad.json()["error"]["param"]) == (400, "messages")
    assert proxy.backend.upstream_requests == []


async def test_reply_that_fills_the_window_is_reported(*, stream: bool) -> None:
    cut = (
        sse.START
        + sse.text("It is")
        + sse.part([{"finish_reason": "length", "index": 0, "delta": {}}])
        + sse.part([], usage={"total_tokens": WINDOW, "prompt_tokens": 9})
        + sse.DONE
    )
    async with temper(cut) as proxy:
        with_window(proxy)
        answer = await proxy.ask(request(tools=TOOLS), stream=stream)
    assert answer.reason == "length"
    assert "filled=1" in answer.report["context"]


# The reported size of a short prompt, from which Temper concludes that the long prompt fits.
COST = len(json.dump(conversation(3))) // 5


async def test_silently_truncated_prompt_is_compacted_and_reported(*, stream: bool) -> None:
    """The backend reports that it read less than half of the prompt."""
    shorter = costs(1900, sse.text("City number 3."))
    cut = costs(900, sse.text("")) if stream else costs(900)
    async with temper(costs(COST), cut, shorter) as proxy:
        with_window(proxy)
        await proxy.ask({**conversation(3), "tool_choice": "none"})
        answer = await proxy.ask({**conversation(10), "max_tokens": 64}, stream=stream)
    first, second = (
        upstream_request.messages for upstream_request in proxy.backend.upstream_requests[1:]
    )
    assert first == json.split_array(json.dump(conversation(10)["messages"]))
    assert len(b"".join(second)) < len(b"".join(first))
    assert (answer.status, answer.text, answer.error) == (200, "City number 3.", None)


async def test_a_truncated_prompt_detected_after_streamed_text_is_an_error() -> None:
    async with temper(costs(COST), costs(900)) as proxy:
        with_window(proxy)
        await proxy.ask({**conversation(3), "tool_choice": "none"})
        body = {**conversation(10), "tool_choice": "none", "max_tokens": 64}
        answer = await proxy.ask(body, stream=True)
    assert answer.error is not None
    assert answer.error["code"] == "context_length_exceeded"
    assert "maximum context length" in str(answer.error["message"])
    assert "it read 900 of about" in str(answer.error["message"])
    assert answer.error["n_read"] == 900
    assert answer.status == 200
    assert b"[DONE]" not in answer.body


def in_bytes(text: str) -> int:
    return len(text.encode())


def in_words(text: str) -> int:
    return len(text) // 4 + 1


def prose(number: int) -> list[JsonValue]:
    """Return a call and a result with long English words."""
    called, result = step(number)
    assert isinstance(called, dict)
    assert isinstance(result, dict)
    saying = "nobody remembers everything about parameters\n"
    arguments = json.dump_text({"city": f"{saying * 2}{number}"})
    function: JsonObject = {"name": "get_weather", "arguments": arguments}
    call: JsonObject = {"id": f"call_{number}", "type": "function", "function": function}
    return [{**called, "tool_calls": [call]}, {**result, "content": f"{number}: {saying * 12}"}]


def chinese(number: int) -> list[JsonValue]:
    """Return a call and a result in Chinese."""
    called, result = step(number)
    assert isinstance(result, dict)
    return [called, {**result, "content": f"城市 {number}\n" + "今天晴朗而温暖。明天有雨。\n" * 40}]


def emoji(number: int) -> list[JsonValue]:
    """Return a call and a result with emoji, which need many tokens for their length."""
    called, result = step(number)
    assert isinstance(result, dict)
    return [called, {**result, "content": f"{number}: " + "☀️🌧️⛅ " * 90}]


Steps = Callable[[int], list[JsonValue]]
STEPS: list[Steps] = [step, prose, chinese, emoji]
TOKENIZERS: list[Callable[[str], int]] = [len, in_bytes, in_words]
# With the quick profile, each kind of step has one tokenizer; with HYPOTHESIS_PROFILE=deep, each
# kind has every tokenizer.
TEXTS = pytest.mark.parametrize(
    ("steps", "tokenize"),
    [*zip(STEPS, itertools.cycle(TOKENIZERS), strict=False)]
    if PROFILE == "quick"
    else [*itertools.product(STEPS, TOKENIZERS)],
)


async def grow(backend: TokenizingBackend, steps: Steps, turns: int = 50) -> list[int]:
    """Send a conversation that outgrows the window; returns the status of every answer."""
    statuses: list[int] = []
    history: list[JsonValue] = []
    async with in_front_of(backend, None, ScriptedBackend()) as proxy:
        for number in range(turns):
            history += steps(number)
            body = request(messages=[SYSTEM, QUESTION, *history], max_tokens=64)
            answer = await proxy.ask({**body, "tool_choice": "none"})
            statuses.append(answer.status)
    return statuses


@TEXTS
async def test_no_prompt_of_a_growing_conversation_is_rejected_if_tokens_are_counted(
    steps: Steps, tokenize: Callable[[str], int]
) -> None:
    backend = TokenizingBackend(tokenize=tokenize, window=14_336)
    assert await grow(backend, steps) == [200] * 50
    assert backend.refused == []
    sent = [upstream_request.messages for upstream_request in backend.upstream_requests]
    kept = [after[: len(before)] == before for before, after in itertools.pairwise(sent)]
    everything = sum(tokenize(json.dump_text(steps(number))) for number in range(50))
    assert kept.count(False) <= everything / (0.25 * backend.window)


@TEXTS
@pytest.mark.parametrize("is_silent", mostly_deep([False, True]))
async def test_a_growing_conversation_is_rejected_at_most_six_times_if_tokens_are_not_counted(
    steps: Steps, tokenize: Callable[[str], int], *, is_silent: bool
) -> None:
    """Without token counting, only rejections and usage reveal the size of prompts."""
    backend = TokenizingBackend(
        tokenize=tokenize, window=14_336, can_count=False, is_silent=is_silent
    )
    assert await grow(backend, steps) == [200] * 50
    assert len(backend.refused) <= 6


async def test_overflow_is_returned_when_nothing_is_left_to_compact() -> None:
    overflow = {**OVERFLOW, "n_prompt_tokens": 4097}
    async with temper(*[refuses(400, overflow)] * 20) as proxy:
        with_window(proxy)
        answer = await proxy.ask(conversation(8))
    sizes = [
        len(b"".join(upstream_request.messages))
        for upstream_request in proxy.backend.upstream_requests
    ]
    assert (answer.status, answer.error is not None) == (400, True)
    assert 2 <= len(sizes) <= 9
    assert sizes == sorted(set(sizes), reverse=True)


@dataclass
class RecordingBackend(TokenizingBackend):
    """Appends "counted" to `happened` at each count; the test appends its own events."""

    happened: list[str] = field(default_factory=list)

    async def count_texts(
        self, texts: Iterable[str], headers: dict[str, str]
    ) -> tuple[int, ...] | None:
        self.happened.append("counted")
        return await super().count_texts(texts, headers)


async def test_health_is_answered_while_a_tool_result_of_megabytes_is_counted() -> None:
    watching = RecordingBackend(tokenize=lambda text: len(text) // 4)
    long = "7" * 3_000_000
    call, result = step(0)
    assert isinstance(result, dict)
    messages = [SYSTEM, QUESTION, call, {**result, "content": long}]
    body = json.dump(request(messages=messages))
    async with in_front_of(watching, None, ScriptedBackend()) as proxy:
        await proxy.ask(conversation(1))  # now the model's window is known
        watching.happened.clear()
        asking = asyncio.create_task(proxy.send(body))
        while not asking.done():
            alive = await proxy.client.get("/healthz")
            watching.happened.append("answered")
            assert alive.status_code == 200
        answer = await asking
    assert answer.status == 200
    assert watching.happened.index("counted") > 40, watching.happened
