"""Replays of recorded exchanges have the recorded outcome; recordings contain no API key."""

import asyncio
from pathlib import Path

import pytest

from proxy.api.app import ServerOptions
from proxy.backends.transport import Timeouts
from proxy.conversation.json import JsonObject
from proxy.guardrails.offer import Mode
from proxy.inference.plan import Policy
from proxy.observability.observers import Observers
from proxy.observability.recording import Recording, read_recording
from proxy.observability.replay import replay_file
from tests.fakes import sse
from tests.fakes.running_proxy import CHAT, request, temper
from tests.fakes.scripted_backend import Ending, Script, refuses
from tests.fakes.sse import call_delta, calls, says

GOOD = calls("get_weather", '{"city": "Paris"}')
BROKEN = calls("get_weather", '{"city": "Paris", "days": "two"}')
RESCUED = says('<tool_call>{"name": "get_', 'weather", "arguments": {"city": "Paris"}}</tool_call>')
UNREADABLE = refuses(
    500, {"message": "Failed to parse input at pos 3", "type": "server_error", "code": 500}
)
CUT_OFF = sse.START + call_delta("get_weather", '{"city": "Par') + sse.end("length")
STEPS: JsonObject = {
    "workflow": {"required_steps": ["get_time"], "terminal_tools": ["get_weather"]}
}

SCRIPTS: dict[str, tuple[Script | bytes, ...]] = {
    "a good call": (GOOD,),
    "a rescued call": (RESCUED,),
    "prose, and a call when nudged": (says("Prose."), RESCUED),
    "prose twice": (says("Prose."), says("More prose.")),
    "never a good call": (BROKEN, BROKEN, BROKEN),
    "a reply that was lost": (UNREADABLE, RESCUED),
    "a second attempt that failed": (says("Prose."), refuses(500, {"message": "no"})),
    "a respond call": (calls("respond", '{"message": "Hello', ' there"}'),),
    "a call that was cut off": (CUT_OFF,),
}


def recording_to(path: Path) -> Observers:
    return Observers((), recording=Recording(path, 10_000_000, ("operators-key",)))


@pytest.mark.parametrize("name", SCRIPTS)
@pytest.mark.parametrize("mode", list(Mode))
async def test_a_replay_of_a_recorded_exchange_has_the_recorded_outcome(
    *, name: str, mode: Mode, stream: bool, tmp_path: Path
) -> None:
    path = tmp_path / "recording.jsonl"
    serving = ServerOptions(policy=Policy(mode=mode))
    async with temper(*SCRIPTS[name], serving=serving, observers=recording_to(path)) as proxy:
        answer = await proxy.ask(request(), stream=stream)
    (replayed,) = replay_file(path, None)
    assert replayed.changes == ()
    (kept,) = read_recording(path)
    assert replayed.is_complete == (kept.verdict.outcome is not None)
    assert kept.answer.text == (answer.text or "")
    assert len(kept.generations) == len(proxy.backend.upstream_requests)


@pytest.mark.parametrize(
    "policy", [Policy(is_strict=True), Policy(attempts=1)], ids=["strict", "one attempt"]
)
async def test_operator_settings_apply_in_the_replay(policy: Policy, tmp_path: Path) -> None:
    path = tmp_path / "recording.jsonl"
    scripts, observers = [BROKEN] * policy.attempts, recording_to(path)
    async with temper(*scripts, serving=ServerOptions(policy=policy), observers=observers) as proxy:
        await proxy.ask(request(temper=STEPS))
    (replayed,) = replay_file(path, None)
    assert (replayed.changes, replayed.status) == ((), "same")


async def test_recording_of_a_compacted_prompt_contains_the_rejected_generation(
    tmp_path: Path,
) -> None:
    path = tmp_path / "recording.jsonl"
    overflow: JsonObject = {
        "code": 400,
        "message": "request (999 tokens) exceeds the available context size (256 tokens)",
        "type": "exceed_context_size_error",
        "n_prompt_tokens": 999,
        "n_ctx": 256,
    }
    async with temper(refuses(400, overflow), GOOD, observers=recording_to(path)) as proxy:
        await proxy.ask(request())
    (kept,) = read_recording(path)
    assert replay_file(path, None)[0].changes == ()
    assert kept.generations[0] == (["failed", "context_overflow"],)


async def test_an_exchange_that_ends_with_a_timeout_is_recorded_as_incomplete(
    *, stream: bool, tmp_path: Path
) -> None:
    path = tmp_path / "recording.jsonl"
    talking = Script((sse.START + sse.text("It is"), Ending.NEVER))
    observers, slow = recording_to(path), Timeouts(idle=0.05)
    async with temper(talking, observers=observers, timeouts=slow) as proxy:
        await proxy.ask(request(tools=None), stream=stream)
    (replayed,) = replay_file(path, None)
    assert (replayed.status, replayed.changes) == ("incomplete", ())
    (kept,) = read_recording(path)
    assert kept.generations == ((["text", "It is"], ["failed", "timed_out"]),)


async def test_recording_contains_no_keys(*, stream: bool, tmp_path: Path) -> None:
    path = tmp_path / "recording.jsonl"
    keys = ("operators-key", "clients-key-1", "clients-key-2", "sk-abcdefghijklmnop0000")
    reply = says(f"I know {keys[0]} and {keys[1]} and {keys[2]} and {keys[3]}.")
    async with temper(reply, observers=recording_to(path)) as proxy:
        body = request(tools=None, messages=[{"role": "user", "content": " ".join(keys)}])
        headers = {"authorization": f"Bearer {keys[1]}", "x-api-key": keys[2]}
        answer = await proxy.ask(body, stream=stream, headers=headers)
    assert all(key in (answer.text or "") for key in keys)
    text = path.read_text(encoding="utf-8")
    assert not any(key in text for key in keys)
    assert replay_file(path, None)[0].changes == ()


async def test_invalid_request_is_not_recorded(tmp_path: Path) -> None:
    path = tmp_path / "recording.jsonl"
    async with temper(observers=recording_to(path)) as proxy:
        await proxy.send(b"{")
    assert list(read_recording(path)) == []


WEATHER: JsonObject = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
    "required": ["city"],
}
REQUESTS_BY_DIALECT: dict[str, tuple[str, JsonObject]] = {
    "ollama": (
        "/api/chat",
        {
            "messages": [{"role": "user", "content": "How is the weather in Paris?"}],
            "tools": [
                {"type": "function", "function": {"name": "get_weather", "parameters": WEATHER}},
                {"type": "function", "function": {"name": "get_time"}},
            ],
            "temper": STEPS,
        },
    ),
    "messages": (
        "/v1/messages",
        {
            "max_tokens": 2000,
            "messages": [{"role": "user", "content": "How is the weather in Paris?"}],
            "tools": [{"name": "get_weather", "input_schema": WEATHER}, {"name": "get_time"}],
            "temper": STEPS,
        },
    ),
    "responses": (
        "/v1/responses",
        {
            "input": "How is the weather in Paris?",
            "tools": [
                {"type": "function", "name": "get_weather", "parameters": WEATHER},
                {"type": "function", "name": "get_time"},
            ],
            "tool_choice": {
                "type": "allowed_tools",
                "mode": "required",
                "tools": [{"type": "function", "name": "get_time"}],
            },
        },
    ),
}


@pytest.mark.parametrize("dialect", REQUESTS_BY_DIALECT)
async def test_a_replay_of_a_request_in_any_dialect_has_the_recorded_outcome(
    *, dialect: str, stream: bool, tmp_path: Path
) -> None:
    """The call breaks only rules that Temper enforces: order rules, allowed tools."""
    path = tmp_path / "recording.jsonl"
    route, body = REQUESTS_BY_DIALECT[dialect]
    async with temper(GOOD, calls("get_time", "{}"), observers=recording_to(path)) as proxy:
        answer = await proxy.client.post(route, json={"model": "m", "stream": stream, **body})
    assert answer.status_code == 200
    assert "get_time" in answer.text
    (kept,) = read_recording(path)
    assert kept.dialect == dialect
    assert kept.verdict.attempts[0][1] is not None
    (replayed,) = replay_file(path, None)
    assert (replayed.status, replayed.changes) == ("same", ())


async def test_concurrent_requests_are_recorded_as_separate_exchanges(tmp_path: Path) -> None:
    path = tmp_path / "recording.jsonl"
    count = 8
    async with temper(*[GOOD] * count, observers=recording_to(path)) as proxy:
        await asyncio.gather(*[proxy.client.post(CHAT, json=request()) for _ in range(count)])
    kept = list(read_recording(path))
    assert len({exchange.id for exchange in kept}) == count
    assert all(replayed.changes == () for replayed in replay_file(path, None))
    assert all(len(exchange.generations) == 1 for exchange in kept)
