"""`temper serve`: announces the address, and shows the running requests on a terminal."""

# Imports are inside the functions so that every command starts fast (see `commands`).

import asyncio
import logging
import signal
from collections.abc import Coroutine, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from proxy.api.event_loop import delay_collection, freeze_objects, import_libraries
from proxy.cli.commands import Work, print_json
from proxy.conversation import json
from proxy.conversation.json import JsonObject
from proxy.dialects.lenient_json import as_object
from proxy.errors import BackendFailed
from proxy.settings import DEFAULT_SETTINGS, Settings

if TYPE_CHECKING:
    from proxy.api.reloading import ReadSettings
    from proxy.api.server import PublicAddress
    from proxy.backends.transport import BackendClient
    from proxy.cli.live_lines import LiveLines
    from proxy.cli.terminal import Terminal

logger = logging.getLogger(__name__)

_UNREACHABLE = (
    "backend %s is not reachable yet: requests fail until it runs; start it, or correct backend.url"
)
# the states of a backend that is not ready, with their log lines
_NOT_READY = {
    "unknown": (logging.INFO, "backend %s has not answered yet"),
    "loading": (logging.INFO, "backend %s is loading its model: requests wait for it"),
    "unreachable": (logging.WARNING, _UNREACHABLE),
}
_CHECK_SECONDS = 1.0  # between two checks of a backend that is not ready yet


def serve(
    settings: Settings,
    reload: "ReadSettings",
    addresses: tuple[str, ...],
    *,
    as_json: bool,
    watched: Path | None = None,
) -> Work:
    """Serve until a signal; without a configured server, look for one at `addresses`.

    With `watched`, a change of that settings file reloads the settings, as SIGHUP does.
    """
    delay_collection()
    import_libraries()
    from proxy.api.server import run
    from proxy.api.workers import run_workers
    from proxy.cli.live_lines import open_live_lines
    from proxy.cli.terminal import open_terminal
    from proxy.observability.standard_error import unblock_standard_error
    from proxy.serving.opening import find_backend, with_backend

    unblock_standard_error()
    tasks: set[asyncio.Task[None]] = set()  # the event loop holds only weak references
    terminal = open_terminal(logs_events=settings.logging.format != "text")

    async def work() -> bool:
        server = await find_backend(settings, addresses)
        if server is not None:
            terminal.write(f"Found a server at {server.url} ({server.kind}).")
        serve_all = run if settings.server.workers == 1 else run_workers

        def reload_settings() -> Settings:
            return with_backend(reload(), server)

        def show_address(address: "PublicAddress") -> None:
            _announce(address, settings, terminal, as_json=as_json)
            freeze_objects()
            reports = _report_state(settings, address, None if as_json else terminal, lines)
            tasks.update(map(asyncio.create_task, [*reports, *_watch(settings, watched)]))

        effective = with_backend(settings, server)
        with open_live_lines(is_wanted=settings.logging.format != "json") as lines, terminal:
            await serve_all(effective, terminal.follow, show_address, reload=reload_settings)
        return True

    return work()


def _announce(
    address: "PublicAddress", settings: Settings, terminal: "Terminal", *, as_json: bool
) -> None:
    if as_json:
        ollama: JsonObject = {"ollama_url": address.ollama_url} if address.ollama_url else {}
        print_json({"url": address.url, "backend": address.backend, **ollama})
        return
    terminal.next_steps = next_steps(settings, address.url)
    if settings.ui.enabled:
        terminal.write(f"Dashboard: {address.url}/ui")
    if settings.model.source is not None:
        terminal.serve(address, awaits_model=True)


def next_steps(settings: Settings, url: str) -> Sequence[str]:
    """Return a line with commands to try; () if Temper requires an API key."""
    server = settings.server
    if server.api_key is not None or server.api_keys_file is not None:
        return ()
    if server.port != DEFAULT_SETTINGS.settings.server.port:
        return (f"Try it in another terminal: temper chat --backend-url {url}",)
    return ("Try it in another terminal: temper chat, or: temper launch claude-code",)


def _report_state(
    settings: Settings,
    address: "PublicAddress",
    terminal: "Terminal | None",
    lines: "LiveLines | None",
) -> Iterator[Coroutine[None, None, None]]:
    """Yield the coroutines that show the state of the backend and of running requests."""
    if settings.model.source is None:
        yield follow_backend(address, terminal)
    if lines is not None and (board := address.board) is not None:
        from proxy.cli.live_lines import keep_drawing
        from proxy.cli.running_requests import describe_requests

        yield keep_drawing(
            lines, lambda most: [*describe_requests(board, most)], lambda: not board.running_count
        )


def _watch(settings: Settings, file: Path | None) -> Iterator[Coroutine[None, None, None]]:
    """Yield the coroutine that reloads the settings when a file changes."""
    from proxy.api.reloading import watch_files

    if file is not None:
        keys = settings.server.api_keys_file
        files = [file, *([] if keys is None else [keys])]
        yield watch_files(files, partial(signal.raise_signal, signal.SIGHUP))


async def follow_backend(address: "PublicAddress", terminal: "Terminal | None") -> None:
    """Log a backend that is not ready; on a `terminal`, also print when it becomes ready."""
    from proxy.backends.transport import BackendClient

    # the request goes to Temper itself: with several workers, this process has no backend
    client = BackendClient(address.url)
    try:
        check = asyncio.create_task(_backend_state(client))
        await asyncio.wait([check], timeout=_CHECK_SECONDS)
        state, logged = check.result() if check.done() else "unknown", ""
        while state in _NOT_READY:
            if terminal is not None and not logged:
                terminal.listen(address)
            if state != logged:
                logger.log(*_NOT_READY[state], address.backend)
            if terminal is None and check.done():
                return  # a program that started Temper polls /readyz itself
            logged = state
            await asyncio.sleep(_CHECK_SECONDS)
            state = await (_backend_state(client) if check.done() else check)
        if terminal is not None:
            terminal.serve(address, awaits_model=False)
    except BackendFailed:
        pass  # Temper is shutting down
    finally:
        await client.close()


async def _backend_state(client: "BackendClient") -> str:
    readiness = await client.fetch("/readyz", within=30.0)
    return str(as_object(json.parse(readiness.body)).get("status"))
