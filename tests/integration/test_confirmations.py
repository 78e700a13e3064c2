"""Calls that require confirmation: a real tool server, and decisions of a simulated operator."""

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import httpx
import pytest

from proxy.api.app import ServerOptions
from proxy.api.edge import Access
from proxy.api.streaming import StreamTimeouts
from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.mcp.execution import ToolOffer
from proxy.mcp.fleet import open_fleet
from proxy.mcp.hosting import ToolHosting
from proxy.mcp.specification import CallLimits
from proxy.observability.board import Board
from proxy.observability.observers import Observers
from proxy.observability.record import RequestRecord
from tests.fakes import sse
from tests.fakes.answers import Answer
from tests.fakes.running_proxy import CHAT, RunningProxy, request, temper
from tests.fakes.sse import calls, says
from tests.fakes.tool_servers import LONG_TIMEOUTS, program
from tests.integration.test_dashboard import code_of, following, get_data, objects
from tests.timeouts import TIMEOUT_SECONDS

ECHO, SAYS = calls("echo", '{"text": "Paris"}'), says("It was done.")
REFUSED = "Error: a person refused this call; it was not made"
UNANSWERED = "Error: this call needs the consent of a person, and got no answer; it was not made"
YES: JsonObject = {"allow": True}
NO: JsonObject = {"allow": False}
ASKING: JsonObject = request(
    messages=[{"role": "user", "content": "Delete it."}],
    tools=[{"type": "mcp", "server_label": "fake"}],
)
KEYS = {"api_key": "operators", "bob": "bobs"}
OPERATOR = {"authorization": "Bearer operators"}


@dataclass
class Scene:
    """A Temper with the tool `echo`, which requires confirmation, and the calls of its server."""

    proxy: RunningProxy
    log: Path
    records: list[RequestRecord] = field(default_factory=list)

    @property
    def ran(self) -> list[str]:
        """Return the tools that were called."""
        lines = self.log.read_text("utf-8").splitlines()
        return [line.removeprefix("called ") for line in lines if line.startswith("called ")]

    def take(self, record: RequestRecord) -> None:
        """Keep the record of a finished request."""
        self.records.append(record)

    def results(self) -> list[JsonValue]:
        """Return the tool results of the last upstream request."""
        messages = [
            json.parse(message) for message in self.proxy.backend.upstream_requests[-1].messages
        ]
        return [
            message["content"]
            for message in messages
            if isinstance(message, dict) and _is_result(message)
        ]

    async def pending(self, many: int = 1) -> list[JsonObject]:
        """Wait until a number of calls wait for confirmation."""
        while True:
            _, state = await get_data(self.proxy, "state")
            if len(confirmations := objects(state["confirmations"])) == many:
                return confirmations

    async def answer(self, name: JsonValue, decision: JsonObject) -> httpx.Response:
        """Answer a confirmation as the operator."""
        return await self.proxy.client.post(f"/ui/api/confirmations/{name}", json=decision)


def _is_result(message: JsonObject) -> bool:
    return message["role"] == "tool"


@asynccontextmanager
async def with_confirmation(
    folder: Path,
    *scripts: bytes,
    seconds: float = TIMEOUT_SECONDS,
    serving: ServerOptions | None = None,
    limits: CallLimits | None = None,
) -> AsyncGenerator[Scene, None]:
    log, serves = folder / "log", serving or ServerOptions()
    spec = replace(program(env={"LOG": str(log)}), ask=("echo",))
    async with open_fleet([spec], LONG_TIMEOUTS) as fleet:
        await fleet.wait_settled(TIMEOUT_SECONDS)
        offer = ToolOffer(fleet)
        tools = ToolHosting(offer, limits or CallLimits(), confirm_seconds=seconds)
        sinks: list[Scene] = []
        observers = Observers((_Sinks(sinks),), board=Board())
        async with temper(*scripts, serving=serves, tools=tools, observers=observers) as proxy:
            scene = Scene(proxy, log)
            sinks.append(scene)
            yield scene


@dataclass
class _Sinks:
    all: list[Scene]

    def take(self, record: RequestRecord) -> None:
        for sink in self.all:
            sink.take(record)


def begin(scene: Scene, *, stream: bool = False) -> asyncio.Task[Answer]:
    return asyncio.create_task(scene.proxy.ask(ASKING, stream=stream))


async def test_allowed_call_is_run(tmp_path: Path, *, stream: bool) -> None:
    async with with_confirmation(tmp_path, ECHO, SAYS) as scene:
        answer = begin(scene, stream=stream)
        (call,) = await scene.pending()
        assert (call["server"], call["tool"], call["client"]) == ("fake", "echo", "")
        assert call["arguments"] == '{\n  "text": "Paris"\n}'
        assert isinstance(call["seconds_left"], float)
        assert 0 < call["seconds_left"] <= TIMEOUT_SECONDS
        assert scene.ran == []
        response = await scene.answer(call["id"], YES)
        assert (response.status_code, response.json()) == (
            200,
            {"confirmation": call["id"], "allowed": True},
        )
        assert (await answer).text == "It was done."
        assert (scene.ran, scene.results()) == (["echo"], ["Paris"])
        assert await scene.pending(0) == []
    (tool,) = scene.records[0].tools
    assert (tool.status, tool.waited > 0) == ("done", True)


async def test_denied_call_is_not_run(tmp_path: Path, *, stream: bool) -> None:
    async with with_confirmation(tmp_path, ECHO, SAYS) as scene:
        answer = begin(scene, stream=stream)
        (call,) = await scene.pending()
        assert (await scene.answer(call["id"], NO)).json()["allowed"] is False
        assert (await answer).text == "It was done."
        assert (scene.ran, scene.results()) == ([], [REFUSED])
        late_response = await scene.answer(call["id"], YES)
        assert (late_response.status_code, code_of(late_response.json())) == (
            404,
            "confirmation_over",
        )
    (tool,) = scene.records[0].tools
    assert (tool.status, tool.error, tool.seconds) == ("refused", "refused", 0.0)


async def test_a_call_that_is_not_confirmed_in_time_is_not_run(
    tmp_path: Path, *, stream: bool
) -> None:
    async with with_confirmation(tmp_path, ECHO, SAYS, seconds=0.05) as scene:
        answer = await begin(scene, stream=stream)
        assert answer.text == "It was done."
        assert (scene.ran, scene.results()) == ([], [UNANSWERED])
        assert await scene.pending(0) == []
    (tool,) = scene.records[0].tools
    assert (tool.status, tool.error) == ("refused", "unanswered")


async def test_a_client_disconnect_removes_its_pending_confirmation(
    tmp_path: Path, *, stream: bool
) -> None:
    async with with_confirmation(tmp_path, ECHO) as scene:
        asking = begin(scene, stream=stream)
        (call,) = await scene.pending()
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        assert await scene.pending(0) == []
        assert (await scene.answer(call["id"], YES)).status_code == 404
        await scene.proxy.server.settle()
        assert scene.ran == []
    assert [tool.status for tool in scene.records[0].tools] == ["cancelled"]


async def test_a_decision_is_reused_for_equal_calls_only_in_the_same_request(
    tmp_path: Path,
) -> None:
    again = calls("echo", '{ "text" : "Paris" }')
    other = calls("echo", '{"text": "Rome"}')
    async with with_confirmation(tmp_path, ECHO, again, other, SAYS, ECHO, SAYS) as scene:
        answer = begin(scene)
        (call,) = await scene.pending()
        await scene.answer(call["id"], YES)
        while (await scene.pending())[0]["id"] == call["id"]:
            pass
        assert scene.ran == ["echo", "echo"]
        (call,) = await scene.pending()
        assert call["arguments"] == '{\n  "text": "Rome"\n}'
        await scene.answer(call["id"], NO)
        assert (await answer).text == "It was done."
        assert scene.results() == ["Paris", "Paris", REFUSED]
        new_request = begin(scene)
        (call,) = await scene.pending()  # the decision does not apply to another request
        await scene.answer(call["id"], NO)
        assert (await new_request).text == "It was done."
    assert scene.ran == ["echo", "echo"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/messages", {"messages": ASKING["messages"], "max_tokens": 100}),
        ("/v1/responses", {"input": "Delete it."}),
    ],
)
async def test_in_every_dialect_the_response_waits_for_the_confirmation(
    tmp_path: Path, path: str, body: JsonObject, *, stream: bool
) -> None:
    asks = json.dump({"model": "m", "stream": stream, "tools": ASKING["tools"], **body})
    async with with_confirmation(tmp_path, ECHO, SAYS) as scene:
        answer = asyncio.create_task(scene.proxy.client.post(path, content=asks))
        (call,) = await scene.pending()
        await scene.answer(call["id"], NO)
        assert "It was done." in (await answer).text
        assert (scene.ran, scene.results()) == ([], [REFUSED])


async def test_duplicate_calls_in_one_reply_need_one_confirmation(tmp_path: Path) -> None:
    twice = (
        sse.START
        + sse.call_delta("echo", '{"text": "Paris"}', call_id="one")
        + sse.call_delta("echo", '{"text":"Paris"}', index=1, call_id="two")
        + sse.end("tool_calls")
    )
    async with with_confirmation(tmp_path, twice, SAYS) as scene:
        answer = begin(scene)
        (call,) = await scene.pending()
        await scene.answer(call["id"], NO)
        assert (await answer).text == "It was done."
        assert scene.results() == [REFUSED, REFUSED]


async def test_calls_without_confirmation_run_while_another_call_waits(tmp_path: Path) -> None:
    both = (
        sse.START
        + sse.call_delta("echo", '{"text": "Paris"}', call_id="one")
        + sse.call_delta("nothing", "{}", index=1, call_id="two")
        + sse.end("tool_calls")
    )
    async with with_confirmation(tmp_path, both, SAYS, limits=CallLimits(parallel=1)) as scene:
        answer = begin(scene)
        (call,) = await scene.pending()
        while scene.ran != ["nothing"]:  # noqa: ASYNC110 - another process writes the file
            await asyncio.sleep(0)
        await scene.answer(call["id"], YES)
        assert (await answer).text == "It was done."
    assert scene.ran == ["nothing", "echo"]


async def test_only_one_of_two_simultaneous_decisions_is_accepted(tmp_path: Path) -> None:
    async with with_confirmation(tmp_path, ECHO, SAYS) as scene:
        answer = begin(scene)
        (call,) = await scene.pending()
        both = await asyncio.gather(scene.answer(call["id"], YES), scene.answer(call["id"], NO))
        assert sorted(response.status_code for response in both) == [200, 404]
        assert (await answer).text == "It was done."
        was_allowed = both[0].status_code == 200
        assert scene.results() == (["Paris"] if was_allowed else [REFUSED])
        assert scene.ran == (["echo"] if was_allowed else [])


async def test_keep_alives_are_sent_during_a_confirmation(tmp_path: Path) -> None:
    serving = ServerOptions(timeouts=StreamTimeouts(keep_alive=0.01))
    async with with_confirmation(tmp_path, ECHO, SAYS, serving=serving) as scene:
        body = json.dump({**ASKING, "stream": True})
        async with scene.proxy.client.stream("POST", CHAT, content=body) as answer:
            chunks = answer.aiter_bytes()
            seen = b""
            while seen.count(b"\n\n") < 4:  # the first event starts the response
                seen += await anext(chunks)
            (call,) = await scene.pending()
            await scene.answer(call["id"], YES)
            rest = b"".join([chunk async for chunk in chunks])
    assert b"It was done." in rest


async def test_the_event_feed_contains_a_pending_confirmation_at_once(tmp_path: Path) -> None:
    async with with_confirmation(tmp_path, ECHO, SAYS) as scene, following(scene.proxy) as events:
        name, state = await anext(events)
        assert (name, state["confirmations"]) == ("state", [])
        answer = begin(scene)
        rows: dict[JsonValue, JsonObject] = {}
        pending: list[JsonObject] = []
        data: JsonObject = {}
        while not pending:
            name, data = await anext(events)
            rows |= {row["id"]: row for row in objects(data.get("rows", []))}
            pending = objects(data.get("confirmations", []))
        (call,) = pending
        row = rows[call["request"]]
        (tool,) = objects(row["tools"])
        assert (row["phase"], tool["status"], tool["seconds"]) == (
            "waiting_for_person",
            "waiting",
            None,
        )
        assert (tool["server"], tool["name"]) == ("fake", "echo")
        await scene.answer(call["id"], YES)
        while name != "confirmations" or data["confirmations"]:
            name, data = await anext(events)
        await answer
        while name != "tool_servers":
            name, data = await anext(events)
        (card,) = objects(data["tool_servers"])
    assert (card["name"], card["state"], card["calls"], card["failures"]) == ("fake", "ready", 1, 0)
    assert (card["tools"], card["asking"], card["problem"]) == (15, 1, "")


@pytest.mark.parametrize(
    ("headers", "refusal"),
    [
        ({}, (401, "invalid_api_key")),
        ({"authorization": "Bearer wrong"}, (401, "invalid_api_key")),
        ({"authorization": "Bearer bobs"}, (403, "ui_not_allowed")),
        ({**OPERATOR, "host": "evil.example"}, (403, "host_not_allowed")),
        ({**OPERATOR, "origin": "http://evil.example"}, (403, "foreign_origin")),
        ({**OPERATOR, "content-type": "text/plain"}, (415, "unsupported_media_type")),
        (
            {**OPERATOR, "content-type": "application/x-www-form-urlencoded"},
            (415, "unsupported_media_type"),
        ),
    ],
)
async def test_confirming_requires_an_operators_key_and_the_origin_of_the_dashboard(
    tmp_path: Path, headers: dict[str, str], refusal: tuple[int, str]
) -> None:
    access = Access(KEYS, frozenset({"127.0.0.1"}))
    serving = ServerOptions(access=access, operators=frozenset({"api_key"}))
    async with with_confirmation(tmp_path, ECHO, SAYS, serving=serving) as scene:
        client = scene.proxy.client
        bob = {"authorization": "Bearer bobs"}
        answer = asyncio.create_task(scene.proxy.ask(ASKING, headers=bob))
        state: JsonObject = {"confirmations": []}
        while not objects(state["confirmations"]):
            _, state = await get_data(scene.proxy, "state", **OPERATOR)
        (call,) = objects(state["confirmations"])
        assert call["client"] == "bob"
        path = f"/ui/api/confirmations/{call['id']}"
        denied = await client.post(path, content=b'{"allow": true}', headers=headers)
        assert (denied.status_code, code_of(denied.json())) == refusal
        assert denied.headers.get("access-control-allow-origin") is None
        assert scene.ran == []
        response = await client.post(path, json=NO, headers=OPERATOR)
        assert response.status_code == 200
        assert response.headers["cache-control"] == "no-store"
        assert (await answer).text == "It was done."
    assert scene.ran == []


@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b'{"allow": 1}', b'{"allow": "true"}', b"x"])
async def test_a_decision_that_is_no_boolean_is_a_400(tmp_path: Path, body: bytes) -> None:
    async with with_confirmation(tmp_path, ECHO, SAYS) as scene:
        answer = begin(scene)
        (call,) = await scene.pending()
        path = f"/ui/api/confirmations/{call['id']}"
        wrong = await scene.proxy.client.post(path, content=body)
        assert (wrong.status_code, wrong.json()["error"]["param"]) == (400, "allow")
        assert (await scene.proxy.client.get(path)).status_code == 405
        await scene.answer(call["id"], NO)
        await answer
    assert scene.ran == []


async def test_confirming_is_a_403_if_the_dashboard_is_read_only(tmp_path: Path) -> None:
    serving = ServerOptions(has_read_only_ui=True)
    async with with_confirmation(tmp_path, ECHO, SAYS, serving=serving) as scene:
        answer = begin(scene)
        (call,) = await scene.pending()
        denied = await scene.answer(call["id"], YES)
        assert (denied.status_code, code_of(denied.json())) == (403, "ui_read_only")
        answer.cancel()
        await asyncio.gather(answer, return_exceptions=True)
        await scene.proxy.server.settle()
    assert scene.ran == []


async def test_unknown_confirmation_is_404(tmp_path: Path) -> None:
    async with temper(observers=Observers(board=Board())) as proxy:
        response = await proxy.client.post("/ui/api/confirmations/x", json=YES)
    assert (response.status_code, code_of(response.json())) == (404, "confirmation_over")


async def test_log_contains_the_confirming_operator(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "proxy.mcp.confirmations")
    access = Access(KEYS)
    serving = ServerOptions(access=access, operators=frozenset({"api_key"}))
    async with with_confirmation(tmp_path, ECHO, SAYS, serving=serving) as scene:
        scene.proxy.client.headers.update(OPERATOR)
        answer = asyncio.create_task(
            scene.proxy.ask(ASKING, headers={"x-request-id": "req-7", **OPERATOR})
        )
        (call,) = await scene.pending()
        await scene.answer(call["id"], YES)
        await answer
    assert [record.getMessage() for record in caplog.records if "echo" in record.getMessage()] == [
        "a call of fake.echo is waiting for approval at /ui (request req-7)",
        "a call of fake.echo was allowed by api_key from 127.0.0.1",
    ]
