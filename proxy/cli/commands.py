"""What the commands do and print; flags and exit codes are the business of `cli`."""

# As in `cli`, what a command needs is imported when it runs, and before there is an event loop:
# until then a signal ends the process at once (`signals`), and in it once the import has ended.

import asyncio
import contextlib
import logging
import re
from collections.abc import Coroutine, Sequence
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as version_of
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import click
from rich.console import Console

from proxy.api.event_loop import hurry, import_libraries, settle
from proxy.conversation import json
from proxy.conversation.json import JsonObject
from proxy.errors import InvalidConfiguration
from proxy.settings import Settings

if TYPE_CHECKING:
    from proxy.api.reloading import ReadSettings
    from proxy.api.server import Address
    from proxy.doctor.checks import Keep
    from proxy.doctor.finding import Examined
    from proxy.doctor.target import Target

logger = logging.getLogger(__name__)

Work: TypeAlias = Coroutine[None, None, bool]
"""What a command does in the event loop; reports whether it was done."""

_READINESS_SECONDS = 30.0
_BACKEND_PROBLEM = "the backend %s is %s: requests fail; start it or correct its address"
_BACKEND_LOADS = "the backend %s is loading its model: requests wait for it"


def serve(
    settings: Settings, reload: "ReadSettings", places: tuple[str, ...], *, as_json: bool
) -> Work:
    """Serve until a signal ends it; where nothing is named, a server is looked for at `places`."""
    hurry()
    import_libraries()
    from proxy.api.server import run
    from proxy.api.workers import run_workers
    from proxy.cli.terminal import Terminal
    from proxy.serving.opening import find_backend, with_backend

    looking: set[asyncio.Task[None]] = set()
    is_ours = settings.model.source is not None
    terminal = Terminal(
        Console(stderr=True, highlight=False), logs_events=settings.logging.format != "text"
    )

    def show_address(address: "Address") -> None:
        if as_json:
            print_json({"url": address.url, "backend": address.backend})
        else:
            terminal.serve(address, awaits_model=is_ours)
            if settings.ui.enabled:
                terminal.say(f"Watch it at {address.url}/ui")
        settle()
        if not is_ours:
            looking.add(asyncio.create_task(_warn_if_unreachable(address)))

    async def work() -> bool:
        found = await find_backend(settings, places)
        if found is not None:
            terminal.say(f"Found a server at {found.url} ({found.kind.value}).")
        serve_all = run if settings.server.workers == 1 else run_workers
        named, again = with_backend(settings, found), lambda: with_backend(reload(), found)
        with terminal:
            await serve_all(named, terminal.follow, show_address, reload=again)
        return True

    return work()


def watch(url: str, key_file: Path | None) -> Work:
    """Show on the terminal what a Temper does, until `q` or a signal ends it."""
    from proxy.cli.top import watch_feed

    async def work() -> bool:
        return await watch_feed(url, read_key(key_file) if key_file is not None else "")

    return work()


def read_key(file: Path) -> str:
    """Read a key from a file; raises `InvalidConfiguration` where it holds none."""
    try:
        key = file.read_text(encoding="utf-8").strip()
    except OSError as error:
        problem = f"{file} cannot be read: {error.strerror}"
        raise InvalidConfiguration("--key-file", problem) from error
    except UnicodeDecodeError as error:
        raise InvalidConfiguration("--key-file", f"{file} is not a text file") from error
    if not re.fullmatch(r"[!-~]+", key):
        raise InvalidConfiguration("--key-file", f"{file} has to hold one key and nothing else")
    return key


def show_models(settings: Settings, *, known: bool, as_json: bool) -> Work:
    """Print what was recognised of each model, or of every profile that is known."""
    from proxy.serving.inventory import list_models, list_profiles

    async def work() -> bool:
        found = list_profiles(settings) if known else await list_models(settings)
        if as_json:
            print_json({"models": [one.document() for one in found]})
            return True
        for one in found:
            click.echo(click.style(one.name, bold=True))
            for word, line in one.summary().items():
                click.echo(f"  {word:9} {line}")
        return True

    return work()


def show_cached_models(*, as_json: bool) -> None:
    from proxy.cli import getting_models

    found = getting_models.find_models()
    if as_json:
        print_json({"models": [], **getting_models.document(found)})
    else:
        getting_models.show(found)


def examine_servers(
    settings: Settings,
    bundle: Path | None,
    places: tuple[str, ...],
    *,
    client: str | None,
    temper: str,
    as_json: bool,
) -> Work:
    """Print each finding as it is made; reports whether none is a failure.

    Where nothing is named, a server is looked for. With a `client`, it is examined for it too. What
    was measured is kept, as by this version of `temper`.
    """
    from proxy.doctor import report
    from proxy.doctor.checks import examine
    from proxy.doctor.clients import CLIENTS
    from proxy.doctor.report import write_bundle
    from proxy.serving.opening import find_backend, with_backend

    async def work() -> bool:
        examined_settings = with_backend(settings, await find_backend(settings, places, "doctor"))
        console = Console(highlight=False)
        examined: list[Examined] = []
        one_client = CLIENTS[client] if client is not None else None
        examining = examine(examined_settings, client=one_client, keep=_keep_figures(temper))
        async with contextlib.aclosing(examining) as findings:
            async for one in findings:
                if not as_json:
                    console.print(report.line(one, examined), soft_wrap=True)
                examined.append(one)
        if as_json:
            print_json(report.document(examined))
        else:
            console.print(f"\n{report.summary(examined)}")
        if bundle is not None:
            write_bundle(bundle, examined_settings, examined)
            _say(f"Written: {bundle} (look into it before you send it).")
        return report.is_well(examined)

    return work()


def _keep_figures(temper: str) -> "Keep":
    """Return what keeps the figures of a model."""
    from proxy.doctor.report import build_tried_model
    from proxy.state.tried_models import TriedModels, cache_folder

    tried = TriedModels(cache_folder())

    def keep(target: "Target", found: "Sequence[Examined]") -> None:
        tried.remember(build_tried_model(target, found, temper))

    return keep


def show_tried(*, as_json: bool) -> None:
    """Print what was measured of the models that were tried on this machine."""
    from proxy.doctor.report import NOTHING_TRIED, build_tried_document, build_tried_table
    from proxy.state.tried_models import TriedModels, cache_folder

    tried = TriedModels(cache_folder()).all()
    if as_json:
        print_json(build_tried_document(tried))
    elif tried:
        Console(highlight=False).print(build_tried_table(tried))
    else:
        click.echo(NOTHING_TRIED)


async def _warn_if_unreachable(address: "Address") -> None:
    """Warn an operator whose backend is not there; clients are told with every request."""
    import ssl

    import httpx

    # without certificates: they take longer to load than the rest, and this is our own address
    plain = httpx.AsyncHTTPTransport(verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
    async with httpx.AsyncClient(timeout=_READINESS_SECONDS, transport=plain) as client:
        with contextlib.suppress(httpx.TransportError):  # Temper ends already
            answer = await client.get(f"{address.url}/readyz")
            state = answer.json()["status"]
            if state == "unreachable":
                logger.warning(_BACKEND_PROBLEM, address.backend, state)
            elif state == "loading":
                logger.info(_BACKEND_LOADS, address.backend)


def version() -> str:
    try:
        return version_of("temper-proxy")
    except PackageNotFoundError:
        return "unknown (not installed)"


def _say(sentence: str) -> None:
    """Tell the operator something; standard output is for results."""
    click.echo(sentence, err=True)


def print_json(value: JsonObject) -> None:
    click.echo(json.dump_text(value))
