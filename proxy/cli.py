"""The command line: `temper serve | demo | models | doctor | check | version`.

It reads flags, prints, and turns errors into one sentence and an exit code; it decides nothing.
"""

# What a command needs is imported when it runs: the web framework takes most of a second, and
# nobody wants to wait for it in order to read a version or a wrong setting.

import asyncio
import contextlib
import logging
import signal
import sys
from collections.abc import Coroutine, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TypeAlias

import click
from rich.console import Console
from rich.text import Text

from proxy.api.loop import loop_factory, settle
from proxy.conversation import json
from proxy.conversation.json import JsonObject
from proxy.errors import TemperError
from proxy.observability.logs import configure_logging
from proxy.settings import Settings, load_settings

if TYPE_CHECKING:
    from proxy.api.reloading import Reload
    from proxy.api.server import Address
    from proxy.demo.demonstration import Seen
    from proxy.doctor.finding import Examined
    from proxy.processes.llama_server import Stage

logger = logging.getLogger(__name__)

Flags: TypeAlias = dict[str, dict[str, object]]

_FAILED = 1
_READINESS_SECONDS = 30.0
_BACKEND_PROBLEM = "the backend %s is %s: requests fail; start it or correct its address"
_BACKEND_LOADS = "the backend %s is loading its model: requests wait for it"
_INTERRUPTED = 130  # what a shell reports for Ctrl-C

_CONFIG = click.option(
    "--config",
    type=click.Path(path_type=Path),
    help="Settings file; default: temper.toml in this folder, if there is one.",
)
_OLLAMA = click.option(
    "--ollama", help="A model of the Ollama that runs here, or where OLLAMA_HOST says."
)
_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")


def _version() -> str:
    try:
        return version("temper-proxy")
    except PackageNotFoundError:
        return "unknown (not installed)"


@click.group(
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="New here? Try: temper demo",
)
@click.version_option(_version(), message="temper %(version)s")
def main() -> None:
    """Temper makes tool calling with local models reliable."""


@main.command()
@click.option(
    "--backend-url",
    "backend_urls",
    multiple=True,
    help="A running server, e.g. http://127.0.0.1:9931; several of the same model are a pool.",
)
@click.option("--model", type=click.Path(path_type=Path), help="A GGUF file to start one for.")
@_OLLAMA
@click.option("--host", help="Address to listen on.")
@click.option("--port", type=int, help="Port to listen on; 0 takes a free one.")
@click.option("--context-tokens", type=int, help="Window, with --model or --ollama.")
@click.option("--slots", type=int, help="Requests served at once, with --model.")
@click.option("--budget", help="Whose window: backend, manual, full (all that fits) or fast.")
@click.option("--workers", type=int, help="Processes that serve; one is usually enough.")
@click.option("--text-policy", help="What prose is worth: respond, accept or require.")
@click.option("--strict", is_flag=True, default=None, help="502 when no attempt gave a valid call.")
@click.option("--log-format", help="text or json.")
@_CONFIG
@_JSON
@click.option("--look-at", multiple=True, hidden=True, help="Where to look for a running server.")
def serve(
    config: Path | None,
    *,
    as_json: bool,
    backend_urls: tuple[str, ...],
    look_at: tuple[str, ...],
    **flags: str | int | bool | Path | None,
) -> None:
    """Serve an OpenAI-compatible API in front of a model."""
    given: Flags = {
        **_served({**flags, "backend_url": None}),
        "server": {name: flags[name] for name in ("host", "port", "workers")},
        "context": {"budget": flags["budget"]},
        "guardrails": {"text_policy": flags["text_policy"], "strict": flags["strict"]},
        "logging": {"format": flags["log_format"]},
    }
    urls = [*backend_urls]
    given["backend"] |= {"urls": urls} if urls[1:] else {"url": "".join(urls) or None}
    given["ollama" if flags["ollama"] else "model"]["context_tokens"] = flags["context_tokens"]
    given["model"]["slots"] = flags["slots"]
    settings = _load(config, given, as_json=as_json)
    configure_logging(settings.logging.format, settings.logging.level)
    serving = _serve(settings, lambda: load_settings(config, given), look_at, as_json=as_json)
    _run(serving, as_json=as_json)


@main.command()
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8367,
    show_default=True,
    help="Port to serve on; a free one if it is taken.",
)
@click.option("--once", is_flag=True, help="Show the table and end, without serving on.")
@_JSON
def demo(port: int, *, once: bool, as_json: bool) -> None:
    """Show broken tool calls with and without Temper."""
    configure_logging("text", "warning")
    console = Console(stderr=as_json, highlight=False)
    _run(_demonstrate(console, port, once=once, as_json=as_json), as_json=as_json)


@main.command()
@click.option("--backend-url", help="A running server, e.g. http://127.0.0.1:9931.")
@click.option("--model", type=click.Path(path_type=Path), help="A GGUF file; it is not started.")
@_OLLAMA
@click.option("--known", is_flag=True, help="List every profile instead.")
@_CONFIG
@_JSON
def models(config: Path | None, *, known: bool, as_json: bool, **flags: str | Path | None) -> None:
    """Show what was recognised of each model, and why."""
    settings = _load(config, _served(flags), as_json=as_json)
    configure_logging(settings.logging.format, "warning")
    _run(_show_models(settings, known=known, as_json=as_json), as_json=as_json)


@main.command()
@click.option("--backend-url", help="A running server, e.g. http://127.0.0.1:9931.")
@click.option("--model", type=click.Path(path_type=Path), help="A GGUF file to start one for.")
@_OLLAMA
@click.option("--bundle", type=click.Path(path_type=Path), help="Write a ZIP for a bug report.")
@_CONFIG
@_JSON
def doctor(
    config: Path | None, *, bundle: Path | None, as_json: bool, **flags: str | Path | None
) -> None:
    """Examine the machine and the server, and tell what to do."""
    settings = _load(config, _served(flags), as_json=as_json)
    configure_logging(settings.logging.format, "critical")  # findings say it all
    _run(_examine(settings, bundle, as_json=as_json), as_json=as_json)


@main.command()
@click.argument("file", type=click.Path(path_type=Path))
@_CONFIG
@_JSON
def replay(file: Path, config: Path | None, *, as_json: bool) -> None:
    """Judge a recording again; 1 if it changed.

    FILE is what recording.path was. Every exchange in it is judged again, offline, by the
    guardrails and profiles of this version, and what is not as it was is shown.
    """
    from proxy.api.replaying import document, replay_file, summary

    settings = _load(config, {}, as_json=as_json)
    configure_logging(settings.logging.format, "warning")
    try:
        replayed = replay_file(file, settings.profile.folder)
    except TemperError as error:
        _fail(error, as_json=as_json)
    if as_json:
        _print_json(document(replayed))
    else:
        click.echo("\n".join(summary(replayed)))
    sys.exit(_FAILED if any(one.changes for one in replayed) else 0)


@main.command()
@_CONFIG
@_JSON
def check(config: Path | None, *, as_json: bool) -> None:
    """Check the configuration without starting anything."""
    settings = _load(config, {}, as_json=as_json)
    if as_json:
        _print_json({"ok": True, "settings": json.parse(settings.model_dump_json())})
    else:
        click.echo("The configuration is valid.")


@main.command(name="version")
@_JSON
def show_version(*, as_json: bool) -> None:
    """Show the version."""
    if as_json:
        _print_json({"temper": _version()})
    else:
        click.echo(f"temper {_version()}")


def _served(flags: Mapping[str, object]) -> Flags:
    """Return the settings in which flags name what is to be served."""
    kind = "ollama" if flags["ollama"] else None
    return {
        "backend": {"url": flags["backend_url"], "kind": kind},
        "ollama": {"model": flags["ollama"]},
        "model": {"path": flags["model"]},
    }


async def _serve(
    settings: Settings, reload: "Reload", places: tuple[str, ...], *, as_json: bool
) -> bool:
    """Serve until a signal ends it; where nothing is named, a server is looked for at `places`."""
    from proxy.api.discovery import find_backend, with_backend
    from proxy.api.server import run
    from proxy.api.workers import run_workers

    found = await find_backend(settings, places)
    if found is not None:
        _say(f"Found a server at {found.url} ({found.kind.value}).")
    looking: set[asyncio.Task[None]] = set()

    def show_address(address: "Address") -> None:
        if as_json:
            _print_json({"url": address.url, "backend": address.backend})
        else:
            _say(f"Temper serves {address.url}/v1 (backend {address.backend}).")
        settle()
        looking.add(asyncio.create_task(_look_at_backend(address)))

    serve_all = run if settings.server.workers == 1 else run_workers
    named, again = with_backend(settings, found), lambda: with_backend(reload(), found)
    await serve_all(named, _show_stage, show_address, reload=again)
    return True


async def _show_models(settings: Settings, *, known: bool, as_json: bool) -> bool:
    from proxy.api.inventory import known_profiles, prospect_of, served_models
    from proxy.hardware import summary as memory
    from proxy.profiles.summary import document, summary

    found = known_profiles(settings) if known else await served_models(settings)
    prospect = None if known else prospect_of(settings)
    if as_json:
        fit: JsonObject = {"memory": memory.document(prospect)} if prospect else {}
        told = [{"id": one.model, **document(one.recognition, one.traits), **fit} for one in found]
        _print_json({"models": [*told]})
        return True
    for one in found:
        click.echo(click.style(one.model, bold=True))
        fitting = memory.summary(prospect) if prospect else {}
        for word, line in (summary(one.recognition, one.traits) | fitting).items():
            click.echo(f"  {word:9} {line}")
    return True


async def _examine(settings: Settings, bundle: Path | None, *, as_json: bool) -> bool:
    """Print each finding as it is made; ends with an exit code of its own if one is a failure."""
    from proxy.doctor import report
    from proxy.doctor.bundle import write_bundle
    from proxy.doctor.examination import examine

    console = Console(highlight=False)
    examined: list[Examined] = []
    async with contextlib.aclosing(examine(settings)) as findings:
        async for one in findings:
            if not as_json:
                console.print(report.line(one, examined), soft_wrap=True)
            examined.append(one)
    if as_json:
        _print_json(report.document(examined))
    else:
        console.print(f"\n{report.summary(examined)}")
    if bundle is not None:
        write_bundle(bundle, settings, examined)
        _say(f"Written: {bundle} (look into it before you send it).")
    if not report.is_well(examined):
        sys.exit(_FAILED)
    return True


async def _look_at_backend(address: "Address") -> None:
    """Warn an operator whose backend is not there; clients are told with every request."""
    import httpx

    async with httpx.AsyncClient(timeout=_READINESS_SECONDS, trust_env=False) as client:
        with contextlib.suppress(httpx.TransportError):  # Temper ends already
            answer = await client.get(f"{address.url}/readyz")
            state = answer.json()["status"]
            if state == "unreachable":
                logger.warning(_BACKEND_PROBLEM, address.backend, state)
            elif state == "loading":
                logger.info(_BACKEND_LOADS, address.backend)


async def _demonstrate(console: Console, port: int, *, once: bool, as_json: bool) -> bool:
    from proxy.demo import show

    console.print(show.INTRODUCTION, soft_wrap=True)
    from proxy.demo.demonstration import demonstrate

    with contextlib.ExitStack() as progress:
        status = progress.enter_context(console.status("Starting ..."))

        def show_step(step: str) -> None:
            status.update(f"{step} ...")

        def show_seen(seen: "Seen") -> None:
            progress.close()
            if as_json:
                _print_json(show.document(seen.comparisons, seen.url))
                return
            console.print(show.table(seen.comparisons, console.width))
            if not once:
                _show_examples(console, seen, port)

        return await demonstrate(show_step, show_seen, port=port, keeps_serving=not once)


def _run(work: Coroutine[None, None, bool], *, as_json: bool) -> None:
    """Run `work` to its end; False from it means that a signal came before that."""
    try:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            is_done = runner.run(_until_terminated(work))
    except TemperError as error:
        _fail(error, as_json=as_json)
    except (KeyboardInterrupt, asyncio.CancelledError):
        is_done = False
    if not is_done:
        sys.exit(_INTERRUPTED)


async def _until_terminated(work: Coroutine[None, None, bool]) -> bool:
    """Let SIGTERM cancel the work as Ctrl-C does, so that all that was started is stopped.

    A server that is ready takes the signals over.
    """
    task = asyncio.current_task()
    assert task is not None  # noqa: S101 - a coroutine runs in a task
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, task.cancel)
    try:
        return await work
    finally:
        loop.remove_signal_handler(signal.SIGTERM)


def _load(config: Path | None, flags: Flags, *, as_json: bool) -> Settings:
    try:
        return load_settings(config, flags)
    except TemperError as error:
        _fail(error, as_json=as_json)


def _show_stage(stage: "Stage") -> None:
    _say(f"llama-server: {stage.value}")


def _show_examples(console: Console, seen: "Seen", port: int) -> None:
    """Print commands that can be pasted; `soft_wrap` keeps their lines in one piece."""
    from proxy.demo.show import examples

    if seen.port_was_taken:
        console.print(f"\nPort {port} cannot be used, so another one was taken.")
    console.print(f"\nTemper serves on {seen.url}/v1 until Ctrl-C. Try it:", style="bold")
    for example in examples(seen.url):
        console.print(f"\n{example.title}:", style="dim")
        console.print(Text(example.command), soft_wrap=True)


def _say(sentence: str) -> None:
    """Tell the operator something; standard output is for results."""
    click.echo(sentence, err=True)


def _print_json(value: JsonObject) -> None:
    click.echo(json.dump_text(value))


def _fail(error: TemperError, *, as_json: bool) -> NoReturn:
    """End with one sentence on standard error, or with JSON on standard output."""
    if as_json:
        _print_json({"ok": False, "error": str(error)})
    else:
        click.echo(f"{click.style('temper:', fg='red', bold=True)} {error}", err=True)
    sys.exit(_FAILED)
