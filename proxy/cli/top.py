"""`temper top`: draws the feed of a running Temper until `q` or a signal."""

import asyncio
import contextlib
import sys
import time
from collections.abc import AsyncGenerator, Callable, Generator
from http import HTTPStatus

import httpx
import msgspec
from rich.live import Live

from proxy.api.feed_events import Batch, Cards, InitialState, Pending, Sums, ToolCards
from proxy.cli.safe_console import SafeConsole
from proxy.cli.screen import Change, Screen
from proxy.dialects.sse import EventDecoder
from proxy.errors import InvalidConfiguration
from proxy.systems import handle_keys

_SILENCE_SECONDS = 30.0  # the feed sends a keep-alive every 15 seconds
# the name of an event in the feed -> the type of its data
_KINDS: dict[str, type[Change]] = {
    "state": InitialState,
    "requests": Batch,
    "models": Cards,
    "tool_servers": ToolCards,
    "confirmations": Pending,
    "totals": Sums,
}


async def watch_feed(url: str, key: str) -> bool:
    """Draw the feed until the user quits; raises `InvalidConfiguration` if `url` has no feed.

    If the output is not a terminal, print the current state once.
    """
    console = SafeConsole()
    async with contextlib.aclosing(_changes(url, key)) as changes:
        first = await anext(changes)
        assert isinstance(first, InitialState)  # noqa: S101 - the first event of a feed
        screen = Screen(first, f"{url.rstrip('/')}/ui")
        if not console.is_terminal:
            console.print(screen.draw(console.width, time.time()))
            return True
        is_ended = asyncio.Event()
        with _keys(is_ended.set), Live(console=console, screen=True, auto_refresh=False) as live:
            drawing = asyncio.create_task(_draw(changes, screen, live))
            waiting = asyncio.create_task(is_ended.wait())
            try:
                await asyncio.wait((drawing, waiting), return_when=asyncio.FIRST_COMPLETED)
                if drawing.done():
                    drawing.result()
            finally:
                for task in (drawing, waiting):
                    task.cancel()
                await asyncio.wait((drawing, waiting))
    return True


async def _draw(changes: AsyncGenerator[Change | None, None], screen: Screen, live: Live) -> None:
    is_live = True
    next_change = asyncio.ensure_future(anext(changes))
    try:
        while True:
            picture = screen.draw(live.console.width, time.time(), is_live=is_live)
            live.update(picture, refresh=True)
            # redraws every second, because the screen shows durations
            await asyncio.wait((next_change,), timeout=1.0)
            if next_change.done():
                change = next_change.result()
                is_live = change is not None
                if change is not None:
                    screen.apply(change)
                next_change = asyncio.ensure_future(anext(changes))
    finally:
        next_change.cancel()
        await asyncio.wait((next_change,))


async def _changes(url: str, key: str) -> AsyncGenerator[Change | None, None]:
    """Yield the changes of the feed; None means a lost connection, which is then reopened."""
    has_begun = False
    while True:
        try:
            async with contextlib.aclosing(_feed(url, key)) as feed:
                async for change in feed:
                    has_begun = True
                    yield change
        except httpx.HTTPError as error:
            # once the feed has worked, Temper is probably restarting: keep trying
            if not has_begun:
                raise InvalidConfiguration("--url", _no_answer(url, error)) from error
        yield None
        await asyncio.sleep(1.0)


async def _feed(url: str, key: str) -> AsyncGenerator[Change, None]:
    headers = {"authorization": f"Bearer {key}"} if key else {}
    timeouts = httpx.Timeout(5.0, read=_SILENCE_SECONDS)
    async with (
        # trust_env=False: a local address needs no proxy and no certificates, and loading
        # certificates takes long
        httpx.AsyncClient(timeout=timeouts, trust_env=False, headers=headers) as client,
        client.stream("GET", f"{url.rstrip('/')}/ui/api/events") as response,
    ):
        if response.status_code != 200:
            raise _refusal(url, response.status_code, await response.aread())
        decoder = EventDecoder(limit=64_000_000)  # the state is larger than any event of an engine
        async for piece in response.aiter_bytes():
            for event in decoder.feed(piece):
                if (kind := _KINDS.get(event.event)) is not None:
                    yield msgspec.json.decode(event.data, type=kind)


def _no_answer(url: str, error: httpx.HTTPError) -> str:
    match error:
        case httpx.UnsupportedProtocol():
            return f"{url!r} is not a URL; use a form like http://127.0.0.1:8367"
        case httpx.TimeoutException():
            return f"{url} did not respond in time"
        case _:
            return (
                f"no Temper is running at {url}; start one with 'temper serve', "
                "or use the address that it printed"
            )


def _refusal(url: str, status: int, body: bytes) -> InvalidConfiguration:
    """Explain a response without a feed; uses the error message of the server if it sent one."""
    if status == HTTPStatus.NOT_FOUND:
        problem = f"{url} is not a Temper, or its dashboard is disabled (ui.enabled)"
        return InvalidConfiguration("--url", problem)
    try:
        message = msgspec.json.decode(body, type=dict[str, dict[str, str | None]])["error"][
            "message"
        ]
    except (msgspec.MsgspecError, KeyError):
        message = f"status {status}"
    setting = "--key-file" if status in (401, 403) else "--url"
    return InvalidConfiguration(setting, f"{url} returned no feed: {message}")


@contextlib.contextmanager
def _keys(end: Callable[[], None]) -> Generator[None, None, None]:
    """Call `end` when q is pressed during the block, if there is a keyboard."""
    if not sys.stdin.isatty():
        yield
        return

    def on_keys(typed: bytes) -> None:
        if typed.lower().startswith(b"q"):
            end()

    with handle_keys(on_keys):
        yield
