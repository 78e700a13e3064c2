"""What the commands do and print; flags and exit codes are the business of `cli`."""

# As in `cli`, what a command needs is imported when it runs, and before there is an event loop:
# until then a signal ends the process at once (`signals`), and in it once the import has ended.

import asyncio
import contextlib
import logging
import re
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import click

from proxy import version
from proxy.api.event_loop import hurry, import_libraries, settle
from proxy.conversation import json
from proxy.conversation.json import JsonObject
from proxy.errors import BackendFailed, InvalidConfiguration
from proxy.settings import Settings

if TYPE_CHECKING:
    from proxy.api.reloading import ReadSettings
    from proxy.api.server import PublicAddress
    from proxy.doctor.finding import Examined
    from proxy.doctor.target import Target

logger = logging.getLogger(__name__)

Work: TypeAlias = Coroutine[None, None, bool]
"""What a command does in the event loop; reports whether it was done."""

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
    from proxy.cli.terminal import open_terminal
    from proxy.serving.opening import find_backend, with_backend

    looking: set[asyncio.Task[None]] = set()
    is_ours = settings.model.source is not None
    terminal = open_terminal(logs_events=settings.logging.format != "text")

    def show_address(address: "PublicAddress") -> None:
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
            terminal.say(f"Found a server at {found.url} ({found.kind}).")
        serve_all = run if settings.server.workers == 1 else run_workers
        named, again = with_backend(settings, found), lambda: with_backend(reload(), found)
        with terminal:
            await serve_all(named, terminal.follow, show_address, reload=again)
        return True

    return work()


def watch(url: str, key_file: Path | None) -> Work:
    """Show on the terminal what a Temper does, until `q` or a signal ends it."""
    from proxy.cli.top import watch_feed

    return watch_feed(url, read_key(key_file) if key_file is not None else "")


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


def examine_servers(
    settings: Settings,
    bundle: Path | None,
    places: tuple[str, ...],
    *,
    client: str | None,
    as_json: bool,
) -> Work:
    """Print each finding as it is made; reports whether none is a failure.

    Where nothing is named, a server is looked for. With a `client`, it is examined for it too.
    """
    from rich.console import Console

    from proxy.doctor import report
    from proxy.doctor.checks import examine
    from proxy.doctor.clients import CLIENTS
    from proxy.serving.opening import find_backend, with_backend
    from proxy.state.tried_models import TriedModels, cache_folder

    tried = TriedModels(cache_folder())

    def keep(target: "Target", found: "Sequence[Examined]") -> None:
        tried.remember(report.build_tried_model(target, found, version()))

    async def work() -> bool:
        examined_settings = with_backend(settings, await find_backend(settings, places, "doctor"))
        console = Console(highlight=False)
        examined: list[Examined] = []
        examining = examine(examined_settings, client=CLIENTS.get(client or ""), keep=keep)
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
            report.write_bundle(bundle, examined_settings, examined)
            click.echo(f"Written: {bundle} (look into it before you send it).", err=True)
        return report.is_well(examined)

    return work()


def show_tried(*, as_json: bool) -> None:
    from rich.console import Console

    from proxy.doctor.report import NOTHING_TRIED, build_tried_document, build_tried_table
    from proxy.state.tried_models import TriedModels, cache_folder

    tried = TriedModels(cache_folder()).all()
    if as_json:
        print_json(build_tried_document(tried))
    elif tried:
        Console(highlight=False).print(build_tried_table(tried))
    else:
        click.echo(NOTHING_TRIED)


def show_tools(settings: Settings, *, as_json: bool) -> Work:
    """Print the tool servers with their tools; reports whether all are ready."""
    from proxy.serving.tool_inventory import inspect_servers

    async def work() -> bool:
        found = await inspect_servers(settings)
        if as_json:
            print_json({"servers": [one.document() for one in found]})
        for one in () if as_json else found:
            click.echo(click.style(one.spec.name, bold=True) + f"  {one.state} {one.protocol}")
            for tool in one.definitions:
                mark = one.offer_of(tool.name)
                said = tool.description.partition("\n")[0][:70]
                click.echo(f"  {tool.name}  ({mark})  {said}")
            for warning in (one.problem, *one.warnings):
                if warning:
                    click.echo(f"  ! it {warning}")
            if one.definitions:
                click.echo(f"  digest = {json.dump_text(one.digest)}")
        return all(one.state == "ready" for one in found)

    return work()


def call_tool(settings: Settings, target: str, arguments: JsonObject, *, as_json: bool) -> Work:
    """Call a tool once and print its result; reports whether it succeeded."""
    from proxy.serving.tool_inventory import call_once

    async def work() -> bool:
        text, is_done = await call_once(settings, target, arguments)
        if as_json:
            print_json({"ok": is_done, "result": text})
        else:
            click.echo(text)
        return is_done

    return work()


async def _warn_if_unreachable(address: "PublicAddress") -> None:
    """Warn an operator whose backend is not there; clients are told with every request."""
    from proxy.backends.transport import BackendClient
    from proxy.dialects.lenient_json import as_object

    own = BackendClient(address.url)
    with contextlib.suppress(BackendFailed):  # Temper ends already
        readiness = await own.get("/readyz", patience=30.0)
        state = as_object(json.parse(readiness.body)).get("status")
        if state == "unreachable":
            logger.warning(_BACKEND_PROBLEM, address.backend, state)
        elif state == "loading":
            logger.info(_BACKEND_LOADS, address.backend)
    await own.close()


def print_json(value: JsonObject) -> None:
    click.echo(json.dump_text(value))
