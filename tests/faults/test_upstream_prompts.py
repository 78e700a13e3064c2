"""F13, F15, F17 to F19 and F25: models that load, prompts that are too long, broken histories."""

import asyncio
from typing import cast

import pytest

from benchmarks.faults.toxics import chunked, sends
from proxy.api.app import ServerOptions
from proxy.api.streaming import StreamTimeouts
from proxy.backends.ollama import Ollama, OllamaOverrides
from proxy.backends.transport import BackendClient
from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from tests.fakes.answers import Answer
from tests.fakes.running_proxy import RunningProxy, in_front_of, temper
from tests.fakes.scripted_backend import ScriptedBackend, refuses
from tests.fakes.sse import calls, says
from tests.fakes.toxic_backend import toxic_backend
from tests.faults.proxies import PLAIN, WITH_TOOLS, before
from tests.faults.wires import ended, line

WINDOW = 2048
LOADING: JsonObject = {"message": "Loading model", "type": "unavailable_error", "code": 503}
OVERFLOW: JsonObject = {
    "code": 400,
    "message": "request (33009 tokens) exceeds the available context size (2048 tokens)",
    "type": "exceed_context_size_error",
    "n_prompt_tokens": 33009,
    "n_ctx": WINDOW,
}
DONE = calls("get_weather", '{"city": "Paris"}')


@pytest.mark.fault("F13")
@pytest.mark.fault("F25")
async def test_a_request_waits_while_its_model_loads(*, stream: bool) -> None:
    async with temper(refuses(503, LOADING), says("It is sunny."), load_wait=5) as proxy:
        proxy.backend.health = 503
        asking = asyncio.create_task(proxy.ask(PLAIN, stream=stream))
        await proxy.backend.next_probe()
        proxy.backend.health = 200
        answer = await asking
    assert (answer.text, answer.reason) == ("It is sunny.", "stop")
    assert len(proxy.backend.upstream_requests) == 2


@pytest.mark.fault("F13")
async def test_a_stream_receives_keep_alives_while_its_model_loads() -> None:
    frequent = ServerOptions(timeouts=StreamTimeouts(keep_alive=0.01))
    async with temper(*[refuses(503, LOADING)] * 2, load_wait=0.1, serving=frequent) as proxy:
        proxy.backend.health = 503
        answer = await proxy.ask(PLAIN, stream=True)
    assert answer.deltas.count({}) >= 2
    assert answer.error is not None
    assert answer.error["code"] == "model_loading"


@pytest.mark.fault("F13")
async def test_a_request_that_waits_too_long_for_its_model_gets_503_with_retry_after(
    *, stream: bool
) -> None:
    async with temper(refuses(503, LOADING), load_wait=0.02) as proxy:
        proxy.backend.health = 503
        answer = await proxy.ask(PLAIN, stream=stream)
    assert (answer.status, answer.headers["retry-after"]) == (503, "5")
    assert answer.error is not None
    assert answer.error["code"] == "model_loading"
    assert len(proxy.backend.upstream_requests) == 1


def conversation(steps: int) -> JsonObject:
    """Return a conversation of a request and many steps, each of about a hundred tokens."""
    history: list[JsonValue] = [*cast("list[JsonValue]", PLAIN["messages"])]
    for number in range(steps):
        function: JsonObject = {"name": "get_weather", "arguments": f'{{"city": "City {number}"}}'}
        call: JsonObject = {"id": f"call_{number}", "type": "function", "function": function}
        report = "\n".join(f"hour {hour} in City {number}: sunny" for hour in range(40))
        history += [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"call_{number}", "content": report},
        ]
    return {**WITH_TOOLS, "messages": history}


@pytest.mark.fault("F15")
async def test_a_prompt_that_the_backend_rejects_as_too_long_is_compacted_and_sent_again(
    *, stream: bool
) -> None:
    async with temper(refuses(400, OVERFLOW), DONE) as proxy:
        answer = await proxy.ask(conversation(20), stream=stream)
        first, second = (
            upstream_request.messages for upstream_request in proxy.backend.upstream_requests
        )
    assert answer.called == [("get_weather", {"city": "Paris"})]
    assert len(b"".join(second)) < len(b"".join(first))


@pytest.mark.fault("F15")
async def test_a_prompt_rejected_twice_as_too_long_is_a_400_with_its_size_and_the_window(
    *, subject: str, stream: bool
) -> None:
    async with before(subject, *[refuses(400, OVERFLOW)] * 9) as proxy:
        answer = await proxy.ask(conversation(20), stream=stream)
        assert len(proxy.backend.upstream_requests) <= 2
    assert answer.status == 400
    assert answer.error is not None
    assert "33009" in json.dump_text(answer.error)
    assert str(WINDOW) in json.dump_text(answer.error)


BROKEN: list[JsonValue] = [
    {"role": "system", "content": "Answer shortly."},
    {"role": "user", "content": "How is the weather in Paris?"},
    {"role": "system", "content": "Be kind."},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {
                "id": "call_1",
                "type": "function",
                "function": {"name": "get_weather", "arguments": '{"city": "Par'},
            },
            {
                "id": "call_2",
                "type": "function",
                "function": {"name": "get_weather", "arguments": '{"city": "Oslo"}'},
            },
        ],
    },
    {"role": "tool", "tool_call_id": "call_1", "content": "sunny"},
    {"role": "tool", "tool_call_id": "call_9", "content": "an orphan"},
    {"role": "user", "content": "And now?"},
]


def is_sound(messages: list[bytes]) -> bool:
    """Return whether all arguments are valid JSON, and every call has exactly one result."""
    open_calls: list[JsonValue] = []
    for raw in messages:
        message = cast("JsonObject", json.parse(raw))
        if message["role"] == "tool":
            if message["tool_call_id"] not in open_calls:
                return False
            open_calls.remove(message["tool_call_id"])
        elif open_calls:
            return False
        for call in cast("list[JsonObject]", message.get("tool_calls") or []):
            open_calls.append(call["id"])
            if not _has_arguments(cast("JsonObject", call["function"])):
                return False
    return not open_calls


def _has_arguments(function: JsonObject) -> bool:
    try:
        return isinstance(json.parse(f"{function['arguments']}".encode()), dict)
    except ValueError:
        return False


@pytest.mark.fault("F17")
async def test_a_broken_history_is_repaired_in_the_same_way_each_time(
    *, subject: str, stream: bool
) -> None:
    assert not is_sound([json.dump(message) for message in BROKEN])
    async with before(subject, DONE, DONE) as proxy:
        answers = [await proxy.ask({**WITH_TOOLS, "messages": BROKEN}, stream=stream)] * 2
        await proxy.ask({**WITH_TOOLS, "messages": BROKEN}, stream=stream)
        first, second = (
            upstream_request.messages for upstream_request in proxy.backend.upstream_requests
        )
    assert all(answer.called == [("get_weather", {"city": "Paris"})] for answer in answers)
    assert is_sound(first)
    assert first == second


@pytest.mark.fault("F17")
async def test_repairs_of_the_history_are_reported(*, stream: bool) -> None:
    async with temper(DONE) as proxy:
        answer = await proxy.ask({**WITH_TOOLS, "messages": BROKEN}, stream=stream)
    repairs = answer.report["repairs"]
    assert "healed=" in repairs


TOO_LONG_FOR_THE_WINDOW: list[JsonValue] = [
    {"role": "user", "content": "consequently " * 3_000},
    {"role": "assistant", "content": "Go on."},
    {"role": "user", "content": "How is the weather?"},
]


@pytest.mark.fault("F18")
async def test_prompt_silently_truncated_by_ollama_is_an_error(*, stream: bool) -> None:
    """An old Ollama drops the oldest messages of an oversized prompt without an error."""
    cut = sends(chunked(line({"content": "It is sunny."}), ended(prompt=21)))
    async with toxic_backend(*[cut] * 3) as backend:
        engine = Ollama(BackendClient(backend.url), OllamaOverrides(num_ctx=1024))
        async with in_front_of(engine, None, ScriptedBackend()) as proxy:
            body: JsonObject = {"model": "m", "messages": TOO_LONG_FOR_THE_WINDOW}
            headers = {"x-temper-compaction": "off"}
            answer = await proxy.ask(body, stream=stream, headers=headers)
        assert b'"truncate":false' in backend.upstream_requests[0]
    assert answer.error is not None
    assert answer.error["code"] == "context_length_exceeded"
    assert answer.status == (200 if stream else 400)


def with_window(proxy: RunningProxy) -> None:
    proxy.backend.properties = {
        "model_alias": "m",
        "total_slots": 1,
        "default_generation_settings": {"n_ctx": WINDOW},
    }


@pytest.mark.fault("F19")
async def test_compaction_keeps_the_only_user_message(*, stream: bool) -> None:
    async with temper(DONE) as proxy:
        with_window(proxy)
        answer = await proxy.ask(conversation(30), stream=stream)
    assert answer.called == [("get_weather", {"city": "Paris"})]
    (upstream_request,) = proxy.backend.upstream_requests
    assert upstream_request.messages[0] == json.dump(cast("list[JsonValue]", PLAIN["messages"])[0])
    assert len(b"".join(upstream_request.messages)) < len(json.dump(conversation(30)["messages"]))


@pytest.mark.fault("F19")
async def test_user_message_that_cannot_fit_is_rejected_before_sending(*, stream: bool) -> None:
    async with temper() as proxy:
        with_window(proxy)
        long: JsonObject = {"role": "user", "content": "word " * 40_000}
        answer: Answer = await proxy.ask({**WITH_TOOLS, "messages": [long]}, stream=stream)
        assert proxy.backend.upstream_requests == []
    assert answer.status == 400
    assert answer.error is not None
    assert (answer.error["code"], answer.error["n_ctx"]) == ("context_length_exceeded", WINDOW)
    assert isinstance(answer.error["n_prompt_tokens"], int)
