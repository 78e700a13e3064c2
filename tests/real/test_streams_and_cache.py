"""Streams, clients that leave, and the prompt cache, with a real model."""

import time
from typing import cast

import httpx
import pytest

from proxy.conversation.json import JsonObject, JsonValue
from tests.real.conftest import CHAT, LiveTemper
from tests.real.conversations import SYSTEM, Step, exchange
from tests.timeouts import TIMEOUT_SECONDS

ENDLESS = 6000  # tokens, which take minutes even on a fast CPU
LEAST_SHARE = 0.95  # share of the common prefix of two requests that must be cached


def conversation(user: str) -> list[JsonValue]:
    return [{"role": "system", "content": SYSTEM}, {"role": "user", "content": user}]


@pytest.mark.parametrize(
    "user",
    [
        "Explain in one sentence what rain is.",
        "Switch the kitchen lights off.",
        "Tell me the weather in Rome and in Lima.",
    ],
)
def test_the_text_of_a_stream_equals_that_of_a_response_that_is_not_streamed(
    temper: LiveTemper, user: str
) -> None:
    messages = conversation(user)
    # Cache the prompt first: a new prompt is computed in other batches than a cached one, so its
    # results may be rounded differently.
    temper.ask(messages, max_tokens=1)
    whole = temper.ask(messages)
    streamed = temper.ask(messages, stream=True)
    assert streamed.text == whole.text
    assert streamed.calls == whole.calls
    assert streamed.answer.reason == whole.answer.reason


def is_busy(engine: httpx.Client) -> bool:
    return any(slot["is_processing"] for slot in engine.get("/slots").json())


def test_disconnect_stops_the_generation(temper: LiveTemper, engine: httpx.Client) -> None:
    endless = temper.body(
        conversation("Write a very long story about a lighthouse."),
        stream=True,
        max_tokens=ENDLESS,
        ignore_eos=True,
        tools=[],
    )
    with temper.client.stream("POST", CHAT, json=endless) as response:
        for line in response.iter_lines():
            if '"content":' in line and '"content":""' not in line:
                break
        assert is_busy(engine)
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while is_busy(engine) and time.monotonic() < deadline:
        time.sleep(0.2)
    # a generation that was not stopped would reach its 6000 tokens, or be busy at the deadline
    assert not is_busy(engine)
    (slot,) = engine.get("/slots").json()
    assert slot["n_prompt_tokens"] < ENDLESS


def test_in_an_agent_loop_the_engine_reads_only_new_tokens(temper: LiveTemper) -> None:
    messages = conversation("Compare the weather in Rome, Lima and Oslo.")
    shared = 0
    for number, city in enumerate(("Rome", "Lima", "Oslo")):
        answer = temper.ask(messages, max_tokens=64)
        usage = cast("JsonObject", answer.answer.usage)
        details = cast("dict[str, int]", usage["prompt_tokens_details"])
        assert details["cached_tokens"] >= LEAST_SHARE * shared, f"round {number}: {usage}"
        shared = cast("int", usage["prompt_tokens"])
        weather: JsonObject = {"city": city, "weather": "sun, 24 degrees", "wind": "light"}
        messages += exchange(f"call_{number}", Step("get_weather", {"city": city}, weather))
