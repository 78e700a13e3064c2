import asyncio
from collections.abc import AsyncGenerator
from contextlib import ExitStack, aclosing, asynccontextmanager
from pathlib import Path

import msgspec

from proxy.api.app import ServerOptions
from proxy.api.feed_events import About
from proxy.api.watching import MOST_WATCHERS, Watching
from proxy.backends.client import Description, Health
from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.facts import Asked, Compacted, ReplyOutcome
from proxy.mcp.confirmations import Requester
from proxy.mcp.execution import ToolOffer
from proxy.mcp.hosting import ToolHosting
from proxy.observability.board import Board
from proxy.observability.history import CountsBySpan
from proxy.observability.live_request import BoardLink, LiveRequest
from proxy.observability.live_request import RequestTarget as AskedFor
from proxy.observability.peer_workers import SharedCounts, WorkerIdentity
from proxy.observability.record import ToolRecord
from tests.fakes.backend import ScriptedBackend
from tests.fakes.tool_servers import FakeSource, served


def watching(
    board: Board, backend: ScriptedBackend | None = None, *, pause: float = 0.001
) -> Watching:
    services = ServerOptions().services_for(backend or ScriptedBackend())
    return Watching(board, services, About("1.2", workers=4), pause=pause)


def running_request(board: Board) -> LiveRequest:
    live = LiveRequest("r", link=BoardLink(board))
    live.target = AskedFor("m", "default", "b", stream=False)
    return live


def finish(live: LiveRequest) -> None:
    live.status, live.outcome = 200, ReplyOutcome.CLEAN
    live.record()


async def next_events(feed: AsyncGenerator[bytes, None]) -> list[tuple[str, JsonObject]]:
    """Read the next batch of events."""
    batch = await anext(feed)
    events: list[tuple[str, JsonObject]] = []
    for event in batch.decode().split("\n\n")[:-1]:
        name, data = event.removeprefix("event: ").split("\ndata: ")
        value = json.parse(data)
        assert isinstance(value, dict)
        events.append((name, value))
    return events


async def until(feed: AsyncGenerator[bytes, None], wanted: str) -> JsonObject:
    """Read events until one has the name `wanted`; return its data."""
    while True:
        for name, value in await next_events(feed):
            if name == wanted:
                return value


def phases(rows: JsonValue) -> list[JsonValue]:
    assert isinstance(rows, list)
    return [row["phase"] for row in rows if isinstance(row, dict)]


@asynccontextmanager
async def watch(watched: Watching) -> AsyncGenerator[AsyncGenerator[bytes, None], None]:
    with watched.count_watcher():
        async with aclosing(watched.feed()) as feed:
            yield feed


async def test_the_feed_starts_with_the_state_followed_by_changes() -> None:
    now = [0.0]
    board = Board(clock=lambda: now[0])
    async with watch(watching(board)) as feed:
        ((name, state),) = await next_events(feed)
        assert (name, state["version"], state["workers"], state["requests"]) == (
            "state",
            "1.2",
            4,
            [],
        )
        live = running_request(board)
        changed = await until(feed, "requests")
        assert phases(changed["rows"]) == ["receiving"]
        live.wait(None)
        live.admit(0.0)
        changed = await until(feed, "requests")
        assert phases(changed["rows"]) == ["reading"]
        finish(live)
        changed = await until(feed, "requests")
        assert phases(changed["rows"]) == ["over"]
        now[0] += 1.0
        sums = await until(feed, "totals")
        totals = sums["totals"]
        assert isinstance(totals, dict)
        assert isinstance(totals["start"], dict)
        assert totals["start"].keys() == {"", "default"}


async def test_after_missed_rows_a_watcher_gets_the_whole_state() -> None:
    board = Board(2)
    async with watch(watching(board)) as feed:
        await next_events(feed)
        for _ in range(5):
            finish(running_request(board))
        state = await until(feed, "state")
    assert len(phases(state["requests"])) == 2
    assert state["number"] == board.number


async def test_many_requests_at_once_are_sent_as_one_state_per_second() -> None:
    now = [0.0]
    board = Board(clock=lambda: now[0])
    async with watch(watching(board, pause=0.0)) as feed:
        await next_events(feed)
        running_request(board)  # it stays in progress
        for _ in range(250):  # more than a batch can contain
            finish(running_request(board))
        next_batch = asyncio.ensure_future(next_events(feed))
        for _ in range(100):
            await asyncio.sleep(0)
        assert not next_batch.done()
        now[0] += 1.0
        ((name, state),) = await next_batch
        displayed = phases(state["requests"])
        assert (name, displayed.count("receiving"), displayed.count("over")) == ("state", 1, 200)
        assert state["number"] == board.number
        finish(running_request(board))
        (event,) = await next_events(feed)
        assert event[0] == "requests"


async def test_counts_of_other_workers_are_sent_even_if_this_worker_has_no_events(
    tmp_path: Path,
) -> None:
    now = [0.0]
    board, other = Board(clock=lambda: now[0]), Board(clock=lambda: now[0])
    shared = SharedCounts(WorkerIdentity(2, tmp_path))
    about = About("1.2", workers=2, worker=2)
    services = ServerOptions().services_for(ScriptedBackend())
    watched = Watching(board, services, about, shared=shared, pause=0.0)
    finish(running_request(board))
    async with watch(watched) as feed:
        state = (await next_events(feed))[0][1]
        assert (state["worker"], state["workers"], requests_in(state)) == (2, 2, 1)
        finish(running_request(other))
        (tmp_path / "requests-1.json").write_bytes(msgspec.json.encode(other.history.counts()))
        now[0] += 1.0
        assert requests_in(await until(feed, "totals")) == 2


def requests_in(document: JsonObject) -> JsonValue:
    counts = msgspec.convert(document["totals"], CountsBySpan)
    assert counts.hour[""] == counts.start[""]
    return counts.start[""].requests


async def test_models_are_probed_only_while_the_feed_is_watched() -> None:
    backend = ScriptedBackend(description=Description(("tiny",), slots=2, window=1000))
    watched = watching(Board(), backend)
    async with watch(watched) as feed:
        state = (await next_events(feed))[0][1]
        (card,) = state["models"] if isinstance(state["models"], list) else []
        assert isinstance(card, dict)
        assert card["state"] == "unknown"
        models = (await until(feed, "models"))["models"]
    assert isinstance(models, list)
    assert isinstance(models[0], dict)
    row = [models[0][name] for name in ("name", "state", "slots", "window", "busy")]
    assert row == ["tiny", "loaded", 2, 1000, 0]
    await asyncio.sleep(0)
    assert [task for task in asyncio.all_tasks() if "_poll" in repr(task)] == []


async def test_an_unreachable_backend_has_the_state_failed() -> None:
    watched = watching(Board(), ScriptedBackend(state=Health.UNREACHABLE))
    await watched.look()
    (card,) = watched.cards()
    assert (card.state, card.problem, card.share) == ("failed", "", None)


async def test_the_used_share_of_the_slots_counts_only_running_requests() -> None:
    board = Board()
    description = Description(("tiny",), slots=2, window=1000)
    watched = watching(board, ScriptedBackend(description=description))
    await watched.look()
    live = running_request(board)
    live.facts = (Asked("as_asked"), Compacted(0, 0, 0, 0, 500, 500, 1000))
    assert watched.cards()[0].share == 0
    live.admit(0.25)
    assert watched.cards()[0].share == 0.25
    finish(live)
    assert watched.cards()[0].share == 0


async def test_the_feed_is_full_at_the_maximum_number_of_watchers() -> None:
    watched = watching(Board())
    with ExitStack() as others:
        for _ in range(MOST_WATCHERS - 1):
            others.enter_context(watched.count_watcher())
        seen = [watched.is_full]
        with watched.count_watcher():
            seen.append(watched.is_full)
        seen.append(watched.is_full)
    assert seen == [False, True, False]


async def test_changes_of_tool_servers_and_pending_approvals_are_sent() -> None:
    board, source = Board(), FakeSource({"fake": (served("drop", needs_approval=True),)})
    hosting = ToolHosting(ToolOffer(source))
    services = ServerOptions().services_for(ScriptedBackend())
    watched = Watching(board, services, About("1.2"), tools=hosting, pause=0.001)
    (tool,) = source.offers["fake"] or ()
    waiting = asyncio.create_task(hosting.confirmations.ask(tool, {"a": 1}, Requester(), 300.0))
    await asyncio.sleep(0)
    async with watch(watched) as feed:
        state = (await next_events(feed))[0][1]
        (call,) = as_list(state["confirmations"])
        assert (call["tool"], call["arguments"]) == ("drop", '{\n  "a": 1\n}')
        (card,) = as_list(state["tool_servers"])
        assert (card["name"], card["tools"], card["asking"], card["calls"]) == ("fake", 1, 1, 0)
        assert hosting.confirmations.answer(str(call["id"]), allow=True, decided_by="anna")
        assert (await until(feed, "confirmations"))["confirmations"] == []
        await waiting
        live = running_request(board)
        live.end_call(ToolRecord("fake", "drop", "1", 1, 0.0, 0.5, "done"))
        finish(live)
        (card,) = as_list((await until(feed, "tool_servers"))["tool_servers"])
        assert card["calls"] == 1
        source.offers = {"fake": None}
        (card,) = as_list((await until(feed, "tool_servers"))["tool_servers"])
        assert (card["state"], card["tools"]) == ("waiting", None)


def as_list(value: JsonValue) -> list[JsonObject]:
    assert isinstance(value, list)
    return [item for item in value if isinstance(item, dict)]
