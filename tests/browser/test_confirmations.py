"""Calls that wait for a confirmation, in a real browser and with a real tool server."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from msgspec.structs import replace as replace_struct

from proxy.api.app import ServerOptions, create_app
from proxy.backends.client import Description
from proxy.conversation.json import JsonObject
from proxy.conversation.replies import (
    ReplyEvent,
    ReplyFinished,
    ReplyStarted,
    TextDelta,
    ToolCallArgumentsDelta,
    ToolCallStarted,
)
from proxy.errors import TemperError
from proxy.mcp.confirmations import Decision, Requester
from proxy.mcp.definitions import ServedTool
from proxy.mcp.execution import ToolOffer, ToolSource
from proxy.mcp.fleet import open_fleet
from proxy.mcp.hosting import ToolHosting
from proxy.observability.board import Board
from proxy.observability.observers import Observers
from proxy.observability.record import ToolRecord
from tests.browser.conftest import Open
from tests.browser.test_page import HOSTILE, RECORD, LongRequest
from tests.fakes.backend import ScriptedBackend
from tests.fakes.sockets import listening
from tests.fakes.tool_server import NAMES
from tests.fakes.tool_servers import LONG_TIMEOUTS, FakeSource, program, served
from tests.timeouts import TIMEOUT_SECONDS

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.browser


DROP = served("drop", "notes", needs_approval=True)
NOTES = FakeSource({"notes": (DROP,)})
ALLOW = "button:text('Allow')[aria-disabled=false]"
REFUSE = "button:text('Refuse')[aria-disabled=false]"
PROSE: list[ReplyEvent | TemperError] = [
    ReplyStarted(),
    TextDelta("It was done."),
    ReplyFinished("stop"),
]


def call(text: str) -> list[ReplyEvent | TemperError]:
    return [
        ReplyStarted(),
        ToolCallStarted(0, "1", "echo"),
        ToolCallArgumentsDelta(0, f'{{"text": "{text}"}}'),
        ReplyFinished("tool_calls"),
    ]


class Scene:
    """A Temper with tool servers and a scripted backend, and its waiting calls."""

    def __init__(
        self, url: str, hosting: ToolHosting, backend: ScriptedBackend, board: Board
    ) -> None:
        self.url = url
        self.board = board
        self.hosting = hosting
        self.backend = backend
        self.answers: list[str] = []

    @contextmanager
    def chatting(self) -> Iterator[None]:
        """Send a client's request in a thread; its response is stored."""

        def ask() -> None:
            body: JsonObject = {
                "model": "m",
                "messages": [{"role": "user", "content": "Tell it to Paris."}],
                "tools": [{"type": "mcp", "server_label": "fake"}],
            }
            url = f"{self.url}/v1/chat/completions"
            answer = httpx.post(url, json=body, timeout=TIMEOUT_SECONDS, trust_env=False)
            self.answers.append(answer.json()["choices"][0]["message"]["content"])

        client = threading.Thread(target=ask)
        client.start()
        try:
            yield
        finally:
            client.join(TIMEOUT_SECONDS)
            assert not client.is_alive()

    def results(self) -> list[str]:
        """Return the tool results of the last upstream request."""
        messages = self.backend.upstream_requests[-1].messages
        return [str(message.text) for message in messages if message.role == "tool"]


@dataclass
class Servers:
    """Runs servers in the event loop of a thread until the end of the test."""

    portal: BlockingPortal
    stack: ExitStack

    def with_a_real_tool_server(
        self, folder: Path, *scripts: list[ReplyEvent | TemperError]
    ) -> Scene:
        """Serve a backend and a real tool server; its tool `echo` requires confirmation."""
        spec = replace(program(env={"LOG": str(folder / "log")}), ask=("echo",))
        opened = self.portal.wrap_async_context_manager(open_fleet([spec], LONG_TIMEOUTS))
        fleet = self.stack.enter_context(opened)
        self.portal.call(fleet.wait_settled, TIMEOUT_SECONDS)
        return self.of(fleet, ScriptedBackend([*scripts]))

    def of(
        self, source: ToolSource, backend: ScriptedBackend | None = None, *, read_only: bool = False
    ) -> Scene:
        """Serve the tools of a source."""
        hosting = ToolHosting(ToolOffer(source), confirm_seconds=TIMEOUT_SECONDS)
        options, upstream = ServerOptions(has_read_only_ui=read_only), backend or ScriptedBackend()
        board = Board()
        observers = Observers((), board=board)
        app = create_app(options.services_for(upstream), options, observers, tools=hosting)
        server = self.stack.enter_context(self.portal.wrap_async_context_manager(listening(app)))
        return Scene(server.url, hosting, upstream, board)

    @contextmanager
    def waiting(
        self, scene: Scene, arguments: JsonObject, tool: ServedTool
    ) -> Iterator[list[Decision]]:
        """Let a call wait for confirmation; yields a list that gets the decision."""
        decided: list[Decision] = []
        confirmations, before = scene.hosting.confirmations, scene.hosting.confirmations.number

        async def ask() -> None:
            requester = Requester("anna", "", "req-1")
            decided.append(await confirmations.ask(tool, arguments, requester, TIMEOUT_SECONDS))

        async def until_it_waits() -> None:
            while confirmations.number == before:  # noqa: ASYNC110 - a turn of the loop
                await asyncio.sleep(0)

        asking = self.portal.start_task_soon(ask)
        self.portal.call(until_it_waits)
        try:
            yield decided
        finally:
            if not decided:
                asking.cancel()


@pytest.fixture
def servers() -> "Iterator[Servers]":
    """Servers that are closed after the pages of a test, because a server waits for open pages."""
    with start_blocking_portal() as portal, ExitStack() as stack:
        yield Servers(portal, stack)


@pytest.fixture
def open_page(servers: "Servers", open_page: Open) -> Open:
    """Close the pages before the servers."""
    del servers
    return open_page


def title_of(page: "Page", wanted: str) -> None:
    page.wait_for_function("(wanted) => document.title === wanted", arg=wanted)


def test_an_allowed_call_runs_and_a_denied_call_does_not(
    servers: Servers, open_page: Open, tmp_path: Path
) -> None:
    scene = servers.with_a_real_tool_server(tmp_path, call("Paris"), call("Rome"), PROSE)
    seen, late_page = open_page(scene.url), open_page(scene.url)
    page, question = seen.page, seen.page.locator(".question")
    page.locator(".tool-server", has_text=f"{len(NAMES)} (1 needs approval)").wait_for()
    with scene.chatting():
        question.locator("h2", has_text="Allow the call of fake.echo?").wait_for()
        assert question.locator("pre").inner_text() == '{\n  "text": "Paris"\n}'
        page.locator("tr.live", has_text="waiting for approval: fake.echo").wait_for()
        title_of(page, "(1) Temper")
        live = page.locator("[aria-live=assertive]")
        assert live.inner_text() == "1 call is waiting for your approval: fake.echo"
        page.wait_for_selector(ALLOW)
        seen.picture("confirmation")
        question.locator("text=Show the request").click()
        page.locator(".detail h2", has_text="waiting for approval: fake.echo").wait_for()
        page.click(ALLOW)
        question.locator("pre", has_text="Rome").wait_for()
        late_page.page.locator(".question pre", has_text="Rome").wait_for()
        late_page.page.click(REFUSE)
    question.wait_for(state="detached")
    title_of(page, "Temper")
    paris, rome = scene.results()
    assert paris == "Paris"
    assert "a person refused" in rome
    assert scene.answers == ["It was done."]
    assert (tmp_path / "log").read_text().count("called echo") == 1


def test_the_details_of_a_request_show_the_wait_and_the_refusal_of_a_call(
    servers: Servers, open_page: Open, tmp_path: Path
) -> None:
    scene = servers.with_a_real_tool_server(tmp_path, call("Paris"), PROSE)
    with scene.chatting():
        seen = open_page(scene.url)  # this page was opened later
        seen.page.click(REFUSE)
    seen.page.locator(".tool-server", has_text="Refused1").wait_for()
    seen.page.locator("tbody tr").first.click()
    timeline = seen.page.locator(".detail .timeline")
    timeline.get_by_text("for approval: echo").wait_for()
    in_order = ["Attempt 1", "Waited", "echo", "Attempt 2"]
    assert timeline.locator(".name").all_inner_texts()[-4:] == in_order
    seen.picture("tool-servers")


def test_calls_can_be_allowed_and_refused_by_keyboard(servers: Servers, open_page: Open) -> None:
    scene = servers.of(NOTES)
    with (
        servers.waiting(scene, {"id": 1}, DROP) as first,
        servers.waiting(scene, {"id": 2}, DROP) as second,
    ):
        page = open_page(scene.url).page
        page.wait_for_selector(ALLOW)
        page.keyboard.press("c")
        for _ in range(2):  # first to the arguments of the call, then to its button
            page.keyboard.press("Tab")
        page.locator("button:focus", has_text="Allow").wait_for()
        page.keyboard.press("Enter")
        title_of(page, "(1) Temper")
        # the second call moves up and gets the focus, so that further keys do not reach its buttons
        page.locator(".question:focus", has_text='"id": 2').wait_for()
        page.wait_for_selector(ALLOW)
        for _ in range(3):
            page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        title_of(page, "Temper")
        page.locator(".question").wait_for(state="detached")
    assert (first, second) == ([Decision.ALLOWED], [Decision.REFUSED])


def test_clicks_are_ignored_for_a_moment_after_calls_appear_or_disappear(
    servers: Servers, open_page: Open
) -> None:
    texts = open_page(servers.of(NOTES).url).page.evaluate(
        """async () => {
          const { areSettling } = await import("./ui/assets/confirmations.js");
          const s = await import("./ui/assets/store.js");
          const call = { id: "a", seconds_left: 60 };
          let store = s.apply(s.empty(), "confirmations", { confirmations: [call] }, 1000);
          const known = [store.confirmations[0].until, areSettling(store, 1000.1),
            areSettling(store, 1001)];
          store = s.answered(store, "a", 1002);
          return [...known, store.confirmations.length, areSettling(store, 1002.1)];
        }"""
    )
    assert texts == [1060, True, False, 0, True]


def test_a_decision_after_another_decision_is_reported_as_too_late(
    servers: Servers, open_page: Open
) -> None:
    scene = servers.of(NOTES)
    with servers.waiting(scene, {}, DROP) as decided:
        page = open_page(scene.url).page
        page.wait_for_selector(ALLOW)
        refusal = {"error": {"message": "it came too late", "code": "confirmation_over"}}
        page.route("**/confirmations/*", lambda route: route.fulfill(status=404, json=refusal))
        page.click(ALLOW)
        page.locator(".questions [role=alert]", has_text="it came too late").wait_for()
    assert decided == []


def test_read_only_page_shows_waiting_calls_without_buttons(
    servers: Servers, open_page: Open
) -> None:
    scene = servers.of(NOTES, read_only=True)
    with servers.waiting(scene, {}, DROP):
        page = open_page(scene.url).page
        page.locator(".question", has_text="The dashboard is read-only (ui.read_only).").wait_for()
        assert page.locator(".question button").count() == 0


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_call_content_is_shown_as_text_and_keeps_the_layout(
    text: str, servers: Servers, open_page: Open
) -> None:
    shown_text = text.encode("utf-8", "replace").decode()
    tool = served(shown_text, "notes", needs_approval=True)
    scene = servers.of(FakeSource({"notes": (tool,)}))
    with servers.waiting(scene, {shown_text: shown_text, "n": 2**70}, tool):
        for width in (1440, 360):
            page = open_page(scene.url, width=width, height=740).page
            question = page.locator(".question")
            question.locator("h2").wait_for()
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
            assert question.evaluate("(one) => one.scrollWidth <= one.clientWidth")
            shown = question.inner_text()
            assert '"n": 1180591620717411303424' in shown
            assert not {*shown} & {*"\u202e\u2066\u200b\ufeff\x1b\x07\0"}
            assert page.locator("img, script[src=x], iframe").count() == 0


@pytest.mark.parametrize(
    ("name", "width", "scheme"), [("dark", 1440, "dark"), ("narrow", 360, "light")]
)
def test_a_waiting_call_fits_every_screen(
    name: str, width: int, scheme: str, servers: Servers, open_page: Open
) -> None:
    scene = servers.of(FakeSource({"notes": (DROP,), "time": None}))
    arguments: JsonObject = {
        "path": "/srv/notes/2024",
        "recursive": True,
        "why": "to tidy up " * 99,
    }
    with servers.waiting(scene, arguments, DROP):
        seen = open_page(scene.url, width=width, height=740, scheme=scheme)
        seen.page.wait_for_selector(ALLOW)
        seen.page.locator(".tool-server", has_text="It cannot be used").wait_for()
        assert seen.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert seen.page.locator(ALLOW).is_visible()
        seen.picture(f"confirmation-{name}")


class Hostile(FakeSource):
    """A tool server that returns the same text in every field."""

    def __init__(self, text: str) -> None:
        tool = served(text, "notes", needs_approval=True)
        super().__init__({"notes": (tool,), "away": None})
        self.text = text

    def protocol_of(self, server: str) -> tuple[str, str]:
        del server
        return "tcp", self.text

    def condition_of(self, server: str) -> tuple[str, str]:
        return ("ready", "") if self.is_ready(server) else ("waiting", self.text)


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_tool_server_content_is_shown_as_text_and_keeps_the_layout(
    text: str, servers: Servers, open_page: Open
) -> None:
    shown = text.encode("utf-8", "replace").decode()
    backend = ScriptedBackend(description=Description((shown,), identity=shown))
    scene = servers.of(Hostile(shown), backend)
    called = ToolRecord("notes", shown, "1", 1, 0.1, 0.2, "failed", error=shown)
    record = replace_struct(RECORD, tools=(called,))

    def answer() -> None:
        scene.board.close(scene.board.open(LongRequest(record)), record)

    servers.portal.call(answer)
    for width in (1440, 360):
        page = open_page(scene.url, width=width, height=740).page
        cards = page.locator(".card")
        page.locator(".tool-server", has_text="It ").wait_for()
        page.locator(".tool-server", has_text="Last failure: ").wait_for()
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        for card in cards.all():
            assert card.evaluate("(one) => one.scrollWidth <= one.clientWidth")
            assert not {*card.inner_text()} & {*"\u202e\u2066\u200b\ufeff\x1b\x07\0"}
        assert page.locator("img, script[src=x], iframe").count() == 0
