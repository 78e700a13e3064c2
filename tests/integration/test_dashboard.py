"""The dashboard's data over HTTP: every row, the feed, access control, canceling a request."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager

import pytest

from proxy.api.app import ServerOptions
from proxy.api.edge import Access
from proxy.api.watching import MOST_WATCHERS
from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.dialects.sse import EventDecoder
from proxy.observability.board import Board
from proxy.observability.logs import RequestLog
from proxy.observability.observers import Observers
from proxy.observability.record import RequestRecord
from proxy.observability.recording import KeptExchanges, Recording
from tests.fakes import sse
from tests.fakes.running_proxy import CHAT, RunningProxy, request, temper
from tests.fakes.scripted_backend import Ending, Script, refuses
from tests.fakes.sse import calls, says

GOOD = calls("get_weather", '{"city": "Paris"}')
BROKEN = calls("get_weather", '{"city": "Paris", "days": "two"}')
RESCUED = says('<tool_call>{"name": "get_weather", "arguments": {"city": "Paris"}}</tool_call>')
SILENT = Script((Ending.NEVER,))
TALKING = Script((sse.START + sse.text("It is"), Ending.NEVER))
RESPOND = {"x-temper-text-policy": "respond"}


class Records:
    """Keeps the records of finished requests."""

    def __init__(self) -> None:
        self.finished: list[RequestRecord] = []

    def take(self, record: RequestRecord) -> None:
        self.finished.append(record)


def observers_with_board(*, keep: int = 0) -> Observers:
    if not keep:
        return Observers(board=Board())
    kept = KeptExchanges(keep)
    board = Board(has_exchange=kept.has)
    return Observers((RequestLog(),), recording=Recording(None, 0, (), kept), board=board)


async def get_data(proxy: RunningProxy, path: str, **headers: str) -> tuple[int, JsonObject]:
    response = await proxy.client.get(f"/ui/api/{path}", headers=headers)
    body = json.parse(response.content)
    assert isinstance(body, dict)
    return response.status_code, body


async def rows_of(proxy: RunningProxy) -> list[JsonObject]:
    _, state = await get_data(proxy, "state")
    return objects(state["requests"])


def objects(value: JsonValue) -> list[JsonObject]:
    assert isinstance(value, list)
    return [item for item in value if isinstance(item, dict)]


def code_of(body: JsonObject) -> JsonValue:
    error = body["error"]
    assert isinstance(error, dict)
    return error["code"]


@asynccontextmanager
async def following(
    proxy: RunningProxy,
) -> AsyncGenerator[AsyncIterator[tuple[str, JsonObject]], None]:
    """Open the feed of the dashboard; yield its events as (name, data)."""

    async def events(pieces: AsyncIterator[bytes]) -> AsyncGenerator[tuple[str, JsonObject], None]:
        decoder = EventDecoder()
        async for piece in pieces:
            for event in decoder.feed(piece):
                value = json.parse(event.data)
                assert isinstance(value, dict)
                yield event.event, value

    async with proxy.client.stream("GET", "/ui/api/events") as response:
        assert response.status_code == 200
        async with aclosing(events(response.aiter_bytes())) as feed:
            yield feed


async def test_every_request_is_a_dashboard_row_with_the_values_of_its_log_record() -> None:
    records, board = Records(), Board()
    scripts = (GOOD, RESCUED, says("Prose."), RESCUED, BROKEN, BROKEN, BROKEN)
    observers = Observers((records,), board=board)
    async with temper(*scripts, refuses(500, {"message": "no"}), observers=observers) as proxy:
        for _ in range(5):
            await proxy.ask(request(), headers=RESPOND)
        await proxy.send(b"{")
        rows = (await rows_of(proxy))[::-1]
        _, state = await get_data(proxy, "state")
    assert [(row["status"], row["outcome"]) for row in rows] == [
        (record.status, record.outcome.value if record.outcome else None)
        for record in records.finished
    ]
    assert [row["outcome"] for row in rows] == [
        "clean",
        "repaired",
        "retried",
        "exhausted",
        None,
        None,
    ]
    assert [bool(row["problem"]) for row in rows] == [False] * 4 + [True] * 2
    for row, record in zip(rows, records.finished, strict=True):
        assert (row["request_id"], row["model"]) == (record.id, record.model)
        assert row["seconds"] == pytest.approx(record.seconds, abs=0.001)
        assert row["tokens"] == {
            "prompt": record.tokens.prompt,
            "cached": record.tokens.cached,
            "output": record.tokens.output,
            "reading": record.tokens.reading,
        }
        assert len(objects(row["attempts"])) == len(record.attempts)
    totals = state["totals"]
    assert isinstance(totals, dict)
    assert isinstance(totals["start"], dict)
    everything = totals["start"][""]
    assert isinstance(everything, dict)
    counts = [everything[name] for name in ("clean", "repaired", "retried", "exhausted", "failed")]
    assert counts == [1, 1, 1, 1, 2]


def reply_with_counts(prompt: int, cached: int, milliseconds: float) -> bytes:
    """Return a reply of a llama-server with the token counts of its prompt."""
    usage: JsonObject = {
        "prompt_tokens": prompt,
        "completion_tokens": 2,
        "prompt_tokens_details": {"cached_tokens": cached},
    }
    end = sse.part([{"index": 0, "delta": {}, "finish_reason": "stop"}])
    counts = sse.part([], usage=usage, timings={"prompt_ms": milliseconds})
    return sse.START + sse.text("Good.") + end + counts + sse.DONE


async def test_a_row_explains_why_the_engine_read_a_prompt_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    replies = (
        reply_with_counts(13_000, 0, 39_000),
        reply_with_counts(13_020, 589, 38_000),
        reply_with_counts(13_020, 13_019, 3),
    )
    async with temper(*replies, observers=observers_with_board()) as proxy:
        for clock in ("12:30", "12:31", "12:31"):
            messages: list[JsonValue] = [
                {"role": "system", "content": f"It is {clock}."},
                {"role": "user", "content": "Hi"},
            ]
            await proxy.ask(request(messages=messages, tools=[]))
        last, second, first = await rows_of(proxy)
    reason = "the system prompt changed at character 10 (it seems to contain a timestamp)"
    assert second["reread"] == {
        "prompt": 13_020,
        "cached": 589,
        "seconds": 38.0,
        "causer": "client",
        "reason": reason,
        "is_measured": False,
    }
    assert second["cache"] == {"place": 0, "reason": reason, "role": "system"}
    assert (first["reread"], last["reread"]) == (None, None)
    warned = [line for line in caplog.messages if line.startswith("prompt re-read")]
    assert warned == [f"prompt re-read: 12,431 of 13,020 tokens (38 s), because {reason}"]


async def test_applying_the_events_to_a_state_gives_the_later_state(*, stream: bool) -> None:
    rows: dict[JsonValue, JsonObject] = {}
    async with temper(GOOD, RESCUED, GOOD, observers=observers_with_board()) as proxy:
        await proxy.ask(request(), stream=stream)
        async with following(proxy) as events:
            name, state = await anext(events)
            assert name == "state"
            rows |= {row["id"]: row for row in objects(state["requests"])}
            for _ in range(2):
                await proxy.ask(request(), stream=stream)
            while len([row for row in rows.values() if row["phase"] == "over"]) < 3:
                name, changed = await anext(events)
                if name == "requests":
                    rows |= {row["id"]: row for row in objects(changed["rows"])}
        later = await rows_of(proxy)
    assert {*rows} == {row["id"] for row in later}
    assert all(rows[row["id"]] == row for row in later)


async def test_events_after_a_flood_of_rows_give_the_same_rows_as_the_state() -> None:
    rows: dict[JsonValue, JsonObject] = {}
    flood = 80  # more rows than one event contains, fewer than the state contains
    async with temper(*[GOOD] * (flood + 1), observers=observers_with_board()) as proxy:
        async with following(proxy) as events:
            assert (await anext(events))[0] == "state"
            await asyncio.gather(*(proxy.ask(request()) for _ in range(flood)))
            await proxy.ask(request())
            while [row["phase"] for row in rows.values()].count("over") <= flood:
                name, data = await anext(events)
                if name in ("state", "requests"):
                    known = objects(data["requests" if name == "state" else "rows"])
                    rows = {
                        **({} if name == "state" else rows),
                        **{row["id"]: row for row in known},
                    }
        later = await rows_of(proxy)
    assert {*rows} == {row["id"] for row in later}
    assert all(rows[row["id"]] == row for row in later)


async def test_the_seventeenth_event_feed_is_rejected_until_another_closes() -> None:
    async with temper(observers=observers_with_board()) as proxy, AsyncExitStack() as stack:
        leaving = await stack.enter_async_context(AsyncExitStack())
        for number in range(MOST_WATCHERS):
            where = leaving if number == 0 else stack
            events = await where.enter_async_context(following(proxy))
            assert (await anext(events))[0] == "state"
        status, body = await get_data(proxy, "events")
        assert (status, code_of(body)) == (503, "too_many_watchers")
        await leaving.aclose()
        status = 503
        while status == 503:
            async with proxy.client.stream("GET", "/ui/api/events") as again:
                status = again.status_code
        assert status == 200


async def test_a_cross_site_request_for_the_state_is_a_403() -> None:
    async with temper(observers=observers_with_board()) as proxy:
        status, body = await get_data(proxy, "state", **{"sec-fetch-site": "cross-site"})
        assert (status, code_of(body)) == (403, "foreign_origin")
        status, _ = await get_data(proxy, "state", **{"sec-fetch-site": "same-origin"})
        assert status == 200


@pytest.mark.parametrize("script", [SILENT, TALKING], ids=["silent", "talking"])
async def test_canceling_a_request_in_the_dashboard_frees_its_slot(
    script: Script, *, stream: bool
) -> None:
    serving = ServerOptions(parallel=1)
    async with temper(script, GOOD, serving=serving, observers=observers_with_board()) as proxy:
        body = request(tools=None, stream=stream)
        stuck = asyncio.create_task(proxy.client.post(CHAT, json=body))
        upstream_request = await proxy.backend.next_request()
        (row,) = await rows_of(proxy)
        if script is TALKING and stream:
            while row["phase"] != "streaming":
                (row,) = await rows_of(proxy)
        path = f"/ui/api/requests/{row['id']}/cancel"
        assert (await proxy.client.post(path, json={})).status_code == 200
        answer = await stuck
        await upstream_request.left.wait()
        assert b"An operator of this server canceled the request" in answer.content
        assert answer.status_code == (200 if script is TALKING and stream else 503)
        assert (await proxy.ask(request())).status == 200
        again = await proxy.client.post(path, json={})
        assert (again.status_code, code_of(again.json())) == (409, "request_over")
        ended = (await rows_of(proxy))[1]
    assert (ended["status"], ended["outcome"]) == (499, None)


async def test_the_exchange_of_a_row_is_returned_or_a_404_with_the_reason() -> None:
    async with temper(GOOD, SILENT, observers=observers_with_board(keep=5000)) as proxy:
        await proxy.ask(request())
        await proxy.send(b"{")
        waiting = asyncio.create_task(proxy.client.post(CHAT, json=request()))
        await proxy.backend.next_request()
        await proxy.backend.next_request()
        running, refused, good = [str(row["id"]) for row in await rows_of(proxy)]
        status, exchange = await get_data(proxy, f"requests/{good}/exchange")
        assert status == 200
        assert objects(exchange["calls"])[0]["name"] == "get_weather"
        reasons = {
            running: "not_over",
            refused: "not_understood",
            "abcdef-1": "before_restart",
            f"{good.partition('-')[0]}-99": "request_forgotten",
        }
        for name, reason in reasons.items():
            status, body = await get_data(proxy, f"requests/{name}/exchange")
            assert (status, code_of(body)) == (404, reason)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await proxy.server.settle()


@pytest.mark.parametrize(("keep", "reason"), [(0, "recording_off"), (100, "too_large")])
async def test_an_exchange_that_is_not_stored_is_a_404_with_the_reason(
    keep: int, reason: str
) -> None:
    async with temper(GOOD, observers=observers_with_board(keep=keep)) as proxy:
        await proxy.ask(request())
        (row,) = await rows_of(proxy)
        assert row["has_exchange"] is False
        status, body = await get_data(proxy, f"requests/{row['id']}/exchange")
        assert (status, code_of(body)) == (404, reason)
        status, alone = await get_data(proxy, f"requests/{row['id']}")
        assert (status, alone) == (200, row)


async def test_rows_before_an_id_are_returned_page_by_page() -> None:
    async with temper(*[GOOD] * 3, observers=observers_with_board()) as proxy:
        for _ in range(3):
            await proxy.ask(request())
        newest, middle, oldest = [row["id"] for row in await rows_of(proxy)]
        _, page = await get_data(proxy, f"requests?before={newest}&limit=1")
        assert [row["id"] for row in objects(page["requests"])] == [middle]
        _, page = await get_data(proxy, f"requests?before={middle}&limit=x")
        assert [row["id"] for row in objects(page["requests"])] == [oldest]
        status, body = await get_data(proxy, "requests?before=none")
    assert (status, code_of(body)) == (404, "before_restart")


PATHS = ("state", "events", "requests", "requests/x-1", "requests/x-1/exchange")
KEYS = {"api_key": "operators", "anna": "annas", "bob": "bobs"}


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    ("headers", "refusal"),
    [
        ({}, (401, "invalid_api_key")),
        ({"authorization": "Bearer wrong"}, (401, "invalid_api_key")),
        ({"authorization": "Bearer bobs"}, (403, "ui_not_allowed")),
        ({"authorization": "Bearer operators"}, None),
        ({"x-api-key": "annas"}, None),
        ({"authorization": "Bearer operators", "host": "evil.example"}, (403, "host_not_allowed")),
        (
            {"authorization": "Bearer operators", "origin": "http://evil.example"},
            (403, "foreign_origin"),
        ),
    ],
)
async def test_data_is_sent_only_to_the_same_origin_and_only_for_an_operators_key(
    path: str, headers: dict[str, str], refusal: tuple[int, str] | None
) -> None:
    access = Access(KEYS, frozenset({"127.0.0.1"}))
    serving = ServerOptions(access=access, operators=frozenset({"api_key", "anna"}))
    async with temper(serving=serving, observers=observers_with_board()) as proxy:
        url = f"/ui/api/{path}"
        if refusal is None:
            async with proxy.client.stream("GET", url, headers=headers) as response:
                assert response.status_code == (404 if "x-1" in path else 200)
                assert response.headers["cache-control"] == "no-store"
                assert response.headers["x-content-type-options"] == "nosniff"
                assert response.headers["cross-origin-resource-policy"] == "same-origin"
                first = await anext(response.aiter_text())
            assert not any(key in first for key in KEYS.values())
        else:
            response = await proxy.client.get(url, headers=headers)
            assert (response.status_code, code_of(response.json())) == refusal
        for public in ("/ui", "/ui/assets/app.js", "/"):
            assert (await proxy.client.get(public)).status_code == 200


async def test_the_dashboard_data_contains_no_api_keys() -> None:
    serving = ServerOptions(access=Access(KEYS), operators=frozenset({"api_key"}))
    kept = KeptExchanges(50_000)
    recording = Recording(None, 0, (*KEYS.values(),), kept)
    observers = Observers(recording=recording, board=Board(has_exchange=kept.has))
    async with temper(GOOD, serving=serving, observers=observers) as proxy:
        proxy.client.headers["authorization"] = "Bearer operators"
        quoting = request(user="bobs")  # a body that contains another client's key
        assert (await proxy.client.post(CHAT, json=quoting)).status_code == 200
        (row,) = await rows_of(proxy)
        paths = ("state", "requests", f"requests/{row['id']}", f"requests/{row['id']}/exchange")
        pages = [(await proxy.client.get(f"/ui/api/{path}")).text for path in paths]
        async with following(proxy) as events:
            pages.append(str(await anext(events)))
    assert [text for text in pages if any(key in text for key in KEYS.values())] == []
    assert "Bearer" not in "".join(pages)


@pytest.mark.parametrize(
    ("sent", "refusal"),
    [
        ({"content": b"{}", "headers": {"content-type": "text/plain"}}, 415),
        ({"json": {}, "headers": {"origin": "http://evil.example"}}, 403),
        ({"json": {}, "headers": {"authorization": "Bearer bobs"}}, 403),
        ({"json": {}, "headers": {"authorization": "Bearer operators"}}, 404),
    ],
)
async def test_a_request_is_canceled_only_from_the_same_origin_and_only_with_an_operators_key(
    sent: dict[str, object], refusal: int
) -> None:
    serving = ServerOptions(access=Access(KEYS), operators=frozenset({"api_key"}))
    async with temper(serving=serving, observers=observers_with_board()) as proxy:
        proxy.client.headers["authorization"] = "Bearer operators"
        path = "/ui/api/requests/x-1/cancel"
        response = await proxy.client.request("POST", path, **sent)  # type: ignore[arg-type]
    assert response.status_code == refusal


async def test_read_only_dashboard_cannot_cancel_requests() -> None:
    serving = ServerOptions(has_read_only_ui=True)
    async with temper(serving=serving, observers=observers_with_board()) as proxy:
        response = await proxy.client.post("/ui/api/requests/x-1/cancel", json={})
    assert (response.status_code, code_of(response.json())) == (403, "ui_read_only")


async def test_with_the_dashboard_disabled_its_paths_are_404() -> None:
    async with temper() as proxy:
        for path in ("/ui", "/ui/api/state", "/ui/assets/app.js"):
            assert (await proxy.client.get(path)).status_code == 404
        assert "/ui" not in (await proxy.client.get("/")).text
