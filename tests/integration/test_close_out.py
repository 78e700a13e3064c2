"""The close-out check over HTTP: in every dialect, and interrupted in every way."""

import asyncio
from pathlib import Path

import pytest

from proxy.api.app import ServerOptions
from proxy.api.streaming import StreamTimeouts
from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.facts import ClosedOut
from proxy.guardrails.close_out import MARK, CloseOut
from proxy.inference.plan import Policy
from proxy.mcp.execution import ToolOffer
from proxy.mcp.hosting import ToolHosting
from proxy.mcp.specification import CallLimits, ToolCallResult
from proxy.observability.metrics import Metrics
from proxy.observability.observers import Observers
from proxy.observability.record import RequestRecord
from proxy.observability.recording import Recording, read_recording
from proxy.observability.replay import before_after, replay_file
from proxy.profiles.files import load_profiles
from proxy.tools.executor import Status
from tests.fakes import sse
from tests.fakes.exposition import Exposition
from tests.fakes.running_proxy import TOOLS, RunningProxy, request, temper
from tests.fakes.scripted_backend import Ending, Script, refuses
from tests.fakes.sse import calls, says
from tests.fakes.tool_servers import FakeSource, served

POLICY = Policy(close_out=CloseOut.STRUCTURAL)
SERVING = ServerOptions(policy=POLICY)
PARIS, OSLO = '{"city": "Paris"}', '{"city": "Oslo"}'
GAVE_UP, DONE, AGAIN = says("It failed."), says("DO", "NE"), calls("get_weather", OSLO)
CHATTER = Script(
    (
        sse.START + sse.text("I am sorry, ", "but there is nothing ", "that I could do."),
        Ending.NEVER,
    )
)

CHAT: JsonObject = request(
    messages=[
        {"role": "user", "content": "How is the weather?"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {
                    "id": "a",
                    "type": "function",
                    "function": {"name": "get_weather", "arguments": PARIS},
                }
            ],
        },
        {"role": "tool", "tool_call_id": "a", "content": '{"error": "no such city"}'},
    ]
)
SCHEMA: JsonObject = {"type": "object", "properties": {"city": {"type": "string"}}}
MESSAGES: JsonObject = {
    "model": "m",
    "max_tokens": 500,
    "tools": [{"name": "get_weather", "input_schema": SCHEMA}],
    "messages": [
        {"role": "user", "content": "How is the weather?"},
        {
            "role": "assistant",
            "content": [
                {"type": "tool_use", "id": "a", "name": "get_weather", "input": {"city": "Paris"}}
            ],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "a",
                    "is_error": True,
                    "content": "no such city",
                }
            ],
        },
    ],
}
RESPONSES: JsonObject = {
    "model": "m",
    "store": False,
    "tools": [{"type": "function", "name": "get_weather", "parameters": SCHEMA}],
    "input": [
        {"role": "user", "content": "How is the weather?"},
        {"type": "function_call", "call_id": "a", "name": "get_weather", "arguments": PARIS},
        {"type": "function_call_output", "call_id": "a", "output": '{"error": "no such city"}'},
    ],
}
PATHS = {"/v1/chat/completions": CHAT, "/v1/messages": MESSAGES, "/v1/responses": RESPONSES}
# API dialect -> what a response contains if it ends with a call
REASONS = {
    "/v1/chat/completions": '"finish_reason":"tool_calls"',
    "/v1/messages": '"stop_reason":"tool_use"',
    "/v1/responses": '"type":"function_call"',
}
# for each dialect: the end of the text, and a keep-alive
ENDS = {
    "/v1/chat/completions": (b'"finish_reason":"', b'"delta":{}'),
    "/v1/messages": (b"content_block_stop", b"event: ping"),
    "/v1/responses": (b"response.output_text.done", b"response.in_progress"),
}


class Records:
    """Keeps the records of finished requests."""

    def __init__(self) -> None:
        self.finished: list[RequestRecord] = []

    def take(self, record: RequestRecord) -> None:
        self.finished.append(record)


async def post(proxy: RunningProxy, path: str, *, stream: bool = False) -> str:
    body = {**PATHS[path], "stream": stream}
    answer = await proxy.client.post(path, content=json.dump(body))
    assert answer.status_code == 200, answer.text
    return answer.text


@pytest.mark.parametrize("path", PATHS)
async def test_a_call_generated_by_the_check_is_returned_in_the_same_message(
    *, path: str, stream: bool
) -> None:
    async with temper(GAVE_UP, AGAIN, serving=SERVING) as proxy:
        text = await post(proxy, path, stream=stream)
    first, second = proxy.backend.upstream_requests
    assert second.messages[: len(first.messages)] == first.messages
    reply, question = map(json.parse, second.messages[len(first.messages) :])
    assert reply == {"role": "assistant", "content": "It failed."}
    assert isinstance(question, dict)
    assert str(question["content"]).startswith('The call of "get_weather" failed with: "')
    assert "no such city" in str(question["content"])
    assert text.count(MARK) >= 1
    assert "Oslo" in text
    assert "It failed." in text
    assert REASONS[path] in text


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "reply",
    [
        DONE,
        says("I am sorry."),
        says('{"name": "get_wind", "arguments": {"city": "Oslo", sorry"}}\n</tool_call>'),
        calls("get_weather", PARIS),
        refuses(500, {"message": "no"}),
        refuses(400, {"message": "too long", "type": "exceed_context_size_error"}),
    ],
    ids=["done", "prose", "an unknown broken call", "the same call", "a failure", "an overflow"],
)
async def test_the_answer_is_unchanged_if_the_check_generates_no_call(
    *, path: str, reply: bytes | Script, stream: bool
) -> None:
    async with temper(GAVE_UP, reply, serving=SERVING) as proxy:
        text = await post(proxy, path, stream=stream)
    assert len(proxy.backend.upstream_requests) == 2
    assert "It failed." in text
    assert not any(word in text for word in ('DONE"', "sorry", "Paris", MARK, '"error":{'))


@pytest.mark.parametrize("path", PATHS)
async def test_the_text_is_sent_before_the_check_and_keep_alives_during_it(path: str) -> None:
    gate = asyncio.Event()
    serving = ServerOptions(policy=POLICY, timeouts=StreamTimeouts(keep_alive=0.02))
    body = json.dump({**PATHS[path], "stream": True})
    async with (
        temper(GAVE_UP, Script((gate, AGAIN)), serving=serving) as proxy,
        proxy.client.stream("POST", path, content=body) as answer,
    ):
        end, sign = ENDS[path]
        seen = b""
        async for piece in answer.aiter_raw():
            seen += piece
            tail = seen.partition(b"It failed.")[2]
            if sign in tail and not gate.is_set():
                assert end not in tail.replace(b'"finish_reason":null', b"")
                gate.set()
    assert MARK.encode() in seen


@pytest.mark.parametrize(
    "stops",
    [
        CHATTER,
        Script((sse.START + sse.delta({"reasoning_content": "hm "}) * 400, Ending.NEVER)),
    ],
)
async def test_a_check_that_generates_text_is_canceled_at_the_backend(
    *, stops: Script, stream: bool
) -> None:
    async with temper(GAVE_UP, stops, serving=SERVING) as proxy:
        answer = await proxy.ask(CHAT, stream=stream)
        await proxy.backend.upstream_requests[1].left.wait()
    assert (answer.text, answer.calls, answer.reason) == ("It failed.", [], "stop")


async def test_a_client_disconnect_cancels_the_check_at_the_backend(*, stream: bool) -> None:
    async with temper(GAVE_UP, Script((Ending.NEVER,)), serving=SERVING) as proxy:
        asking = asyncio.create_task(proxy.ask(CHAT, stream=stream))
        upstream_requests = [await proxy.backend.next_request() for _ in range(2)]
        asking.cancel()
        await upstream_requests[1].left.wait()


@pytest.mark.parametrize(
    "begun", [b"", sse.START, sse.START + sse.call_delta("get_weather", '{"ci')]
)
async def test_the_answer_is_returned_if_the_check_fails(*, begun: bytes, stream: bool) -> None:
    records = Records()
    dies = Script((begun, Ending.BREAKS))
    observers = Observers((records,))
    async with temper(GAVE_UP, dies, serving=SERVING, observers=observers) as proxy:
        answer = await proxy.ask(CHAT, stream=stream)
    assert (answer.text, answer.calls, answer.reason) == ("It failed.", [], "stop")
    (record,) = records.finished
    assert ClosedOut("failed_result", "failed") in record.facts


async def test_the_answer_is_returned_if_the_check_exceeds_the_deadline(*, stream: bool) -> None:
    serving = ServerOptions(policy=POLICY, timeouts=StreamTimeouts(deadline=0.5))
    async with temper(GAVE_UP, Script((Ending.NEVER,)), serving=serving) as proxy:
        answer = await proxy.ask(CHAT, stream=stream)
    assert (answer.text, answer.calls, answer.reason) == ("It failed.", [], "stop")


async def test_the_check_appears_in_the_record_and_the_metrics(*, stream: bool) -> None:
    records = Records()
    observers = Observers((records,), meter=Metrics())
    async with temper(GAVE_UP, AGAIN, serving=SERVING, observers=observers) as proxy:
        await proxy.ask(CHAT, stream=stream)
        seen = Exposition.read((await proxy.client.get("/metrics")).text)
    (record,) = records.finished
    assert [attempt.kind for attempt in record.attempts] == ["as_asked", "close_out"]
    assert ClosedOut("failed_result", "called") in record.facts
    name = "temper_close_out_checks_total"
    assert seen.value(name, cause="failed_result", result="called") == 1


@pytest.mark.parametrize(
    ("replies", "kind"),
    [
        ((GAVE_UP, AGAIN), "chat"),
        ((GAVE_UP, DONE), "messages"),
        ((GAVE_UP, CHATTER), "messages"),
        ((GAVE_UP, refuses(500, {"message": "no"})), "responses"),
    ],
)
async def test_a_replayed_check_has_the_recorded_result_and_message(
    *, replies: tuple[bytes | Script, ...], kind: str, stream: bool, tmp_path: Path
) -> None:
    path = tmp_path / "recording.jsonl"
    observers = Observers((), recording=Recording(path, 10_000_000, ()))
    (url,) = [path for path in PATHS if kind in path]
    async with temper(*replies, serving=SERVING, observers=observers) as proxy:
        await post(proxy, url, stream=stream)
    (replayed,) = replay_file(path, None)
    assert (replayed.status, replayed.changes) == ("same", ())
    (kept,) = read_recording(path)
    assert [name for name, _ in kept.verdict.attempts] == ["as_asked", "close_out"]
    assert kept.verdict.repairs.startswith("close_out=")
    shown = before_after(path.read_bytes(), load_profiles(None))
    (nudge,) = shown.generations[0].nudge
    assert "failed with:" in nudge.text


async def test_the_answer_after_a_check_with_operator_calls_is_a_new_paragraph(
    *, stream: bool
) -> None:
    ran = {
        "find": ToolCallResult("21 degrees"),
        "open": ToolCallResult("Error: no such page", Status.FAILED),
    }
    source = FakeSource({"search": (served("find", "search"), served("open", "search"))}, ran)
    tools = ToolHosting(ToolOffer(source), CallLimits(), 10)
    body = request(tools=[{"type": "mcp", "server_label": "search"}])
    replies = (
        calls("open", '{"q": "a"}'),
        says("It cannot be opened."),
        calls("find", '{"q": "b"}'),
        says("It is 21 degrees."),
    )
    async with temper(*replies, serving=SERVING, tools=tools) as proxy:
        answer = await proxy.ask(body, stream=stream)
    assert answer.text == "It cannot be opened.\n\nIt is 21 degrees."
    assert answer.reason == "stop"
    assert [name for name, *_ in source.calls] == ["open", "find"]


async def test_conversation_without_failures_is_unchanged_and_unchecked(*, stream: bool) -> None:
    messages = CHAT["messages"]
    assert isinstance(messages, list)
    fine: list[JsonValue] = [
        *messages[:2],
        {"role": "tool", "tool_call_id": "a", "content": "sunny"},
    ]
    body = request(messages=fine, tools=TOOLS)
    off = ServerOptions(policy=Policy(close_out=CloseOut.OFF))
    answers = []
    for serving in (SERVING, off):
        async with temper(says("Sunny."), serving=serving) as proxy:
            answers.append((await proxy.ask(body, stream=stream)).body)
            upstream_requests = proxy.backend.upstream_requests
            answers.append(upstream_requests[0].body)
            assert len(upstream_requests) == 1
    assert answers[:2] == answers[2:]
