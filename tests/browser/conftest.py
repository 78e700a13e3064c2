"""A Chromium that opens the dashboard, and servers with dashboards.

Without playwright (the extra `browser`) or without a Chromium these tests are skipped. Pictures go
to `build/dashboard`, or to the folder that TEMPER_PICTURES names.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal

from proxy.api.app import ServerOptions, create_app
from proxy.observability.board import Board
from proxy.observability.observers import Observers
from proxy.observability.recording import KeptExchanges, Recording
from temper_evals.demo import scenarios
from temper_evals.demo.scripted_model import build_scripted_model
from tests.fakes.backend import ScriptedBackend
from tests.fakes.llama import plan_for, serving
from tests.fakes.sockets import listening
from tests.timeouts import TIMEOUT_SECONDS

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PICTURES = Path(os.environ.get("TEMPER_PICTURES", "build/dashboard"))
FOREVER = "[[forever]]"
_LONG = 65_536

# errors that the page reports; there must be none
_WITNESS = """
window.violations = [];
addEventListener("securitypolicyviolation", (event) =>
  window.violations.push(`${event.violatedDirective} ${event.blockedURI}`));
"""


@dataclass
class OpenedPage:
    """A page, and the errors on it."""

    page: "Page"
    problems: list[str] = field(default_factory=list)

    def picture(self, name: str) -> None:
        """Save a screenshot."""
        PICTURES.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=PICTURES / f"{name}.png", animations="disabled")

    def is_sound(self) -> bool:
        """Return whether there are no console errors and no violations of the security policy."""
        violations = self.page.evaluate("window.violations")
        assert violations == []
        assert self.problems == []
        return True


class Open(Protocol):
    """Opens the dashboard of the server at a URL."""

    def __call__(
        self, url: str, *, width: int = 1440, height: int = 900, scheme: str = "light"
    ) -> OpenedPage: ...


def chromium() -> str | None:
    named = os.environ.get("TEMPER_BROWSER")
    return named or next(filter(None, map(shutil.which, NAMES)), None)


@pytest.fixture(scope="module")
def browser() -> "Iterator[Browser]":
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="playwright is missing: the extra `browser` brings it"
    )
    program = chromium()
    if program is None:
        pytest.skip("no Chromium is installed, and TEMPER_BROWSER names none")
    flags = ["--no-sandbox"] if os.geteuid() == 0 else []
    with playwright.sync_playwright() as driver:
        running = driver.chromium.launch(executable_path=program, args=flags)
        yield running
        running.close()


@pytest.fixture
def open_page(browser: "Browser") -> Iterator[Open]:
    """Open the dashboard of a server; at the end of a test, no page may have errors."""
    with ExitStack() as stack:
        opened: list[OpenedPage] = []

        def opens(
            url: str, *, width: int = 1440, height: int = 900, scheme: str = "light"
        ) -> OpenedPage:
            context = browser.new_context(
                viewport={"width": width, "height": height},
                color_scheme="dark" if scheme == "dark" else "light",
                locale="en-US",  # some builds report an invalid language without one
            )
            stack.callback(context.close)
            context.set_default_timeout(TIMEOUT_SECONDS * 1000)
            context.add_init_script(_WITNESS)
            seen = OpenedPage(context.new_page())
            seen.page.on("dialog", lambda dialog: seen.problems.append(f"dialog {dialog.message}"))
            seen.page.on("pageerror", lambda error: seen.problems.append(str(error)))
            seen.page.on(
                "console",
                lambda console_message: note(seen, console_message.type, console_message.text),
            )
            seen.page.goto(f"{url}/ui")
            opened.append(seen)
            return seen

        yield opens
        assert all(seen.is_sound() for seen in opened)


def note(seen: OpenedPage, kind: str, text: str) -> None:
    """Record an error; browsers log responses with a status other than 2xx as errors too."""
    if kind in ("error", "warning") and not text.startswith("Failed to load resource"):
        seen.problems.append(text)


@dataclass
class Stage:
    """A server in this process, and its board, which the test fills."""

    url: str
    board: Board
    kept: KeptExchanges
    portal: BlockingPortal


@contextmanager
def staged() -> Iterator[Stage]:
    """Serve a board without any requests."""
    kept = KeptExchanges(50_000_000)
    board = Board(has_exchange=kept.has)
    observers = Observers((), recording=Recording(None, 0, (), kept), board=board)
    options = ServerOptions()
    app = create_app(options.services_for(ScriptedBackend()), options, observers)
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(listening(app)) as server,
    ):
        yield Stage(server.url, board, kept, portal)


@pytest.fixture
def stage() -> Iterator[Stage]:
    """A stage for one test."""
    with staged() as stage:
        yield stage


@pytest.fixture(scope="module")
def llama_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """A real llama-server with the demonstration's model: its address, and its key."""
    path = tmp_path_factory.mktemp("model") / "demo.gguf"
    scripts = {**scenarios.SCRIPTS, FOREVER: ("and so on", " and on\0")}
    # a large window, because an endless reply ends when it fills the window
    build_scripted_model(path, scripts, context_tokens=_LONG)
    plan = replace(plan_for(path, context_tokens=_LONG), alias="demo")
    with serving(plan) as server:
        yield server.base_url, server.api_key
