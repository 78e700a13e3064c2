"""The command line: `temper serve | demo | check | version`; `--json` is for programs.

It reads flags, prints, and turns errors into one sentence and an exit code; it decides nothing.
"""

import asyncio
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NoReturn

import click
from rich.console import Console

from proxy.api.server import Address, run
from proxy.conversation import json
from proxy.conversation.json import JsonObject
from proxy.demo.show import demonstrate
from proxy.errors import TemperError
from proxy.observability.logs import configure_logging
from proxy.processes.llama_server import Stage
from proxy.settings import Settings, load_settings

_FAILED = 1
_console = Console(stderr=True, highlight=False)

_CONFIG = click.option(
    "--config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Settings file; default: temper.toml in this folder, if there is one.",
)
_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Temper makes tool calling with local models reliable."""


@main.command()
@click.option("--backend-url", help="A running llama-server, e.g. http://127.0.0.1:9931.")
@click.option("--model", type=click.Path(path_type=Path), help="A GGUF file to start one for.")
@click.option("--host", help="Address to listen on.")
@click.option("--port", type=int, help="Port to listen on; 0 takes a free one.")
@click.option("--context-tokens", type=int, help="Window of one slot, with --model.")
@click.option("--slots", type=int, help="Requests served at once, with --model.")
@click.option("--text-policy", help="What prose is worth: respond, accept or require.")
@click.option("--strict", is_flag=True, default=None, help="502 when no attempt gave a valid call.")
@click.option("--log-format", help="text or json.")
@_CONFIG
@_JSON
def serve(config: Path | None, *, as_json: bool, **flags: str | int | bool | Path | None) -> None:
    """Serve an OpenAI-compatible API in front of a model."""
    settings = _settings(config, flags)
    configure_logging(settings.logging.format, settings.logging.level)
    try:
        asyncio.run(run(settings, _show_stage, lambda address: _show_address(address, as_json)))
    except TemperError as error:
        _fail(error, as_json=as_json)
    except KeyboardInterrupt:
        sys.exit(130)


@main.command()
@click.option("--port", type=int, default=8367, show_default=True, help="Port to serve on after.")
@click.option("--once", is_flag=True, help="Show the table and end, without serving on.")
def demo(port: int, *, once: bool) -> None:
    """Show what Temper does, with a small model whose answers are written by hand."""
    configure_logging("text", "warning")
    try:
        asyncio.run(demonstrate(Console(highlight=False), port=port, keeps_serving=not once))
    except TemperError as error:
        _fail(error, as_json=False)
    except KeyboardInterrupt:
        sys.exit(130)


@main.command()
@_CONFIG
@_JSON
def check(config: Path | None, *, as_json: bool) -> None:
    """Check the configuration without starting anything."""
    try:
        settings = load_settings(config)
    except TemperError as error:
        _fail(error, as_json=as_json)
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


def _settings(config: Path | None, flags: dict[str, str | int | bool | Path | None]) -> Settings:
    """Combine the flags with every other source; a flag that is None was not given."""
    given: dict[str, dict[str, object]] = {
        "backend": {"url": flags["backend_url"]},
        "model": {
            "path": flags["model"],
            "context_tokens": flags["context_tokens"],
            "slots": flags["slots"],
        },
        "server": {"host": flags["host"], "port": flags["port"]},
        "guardrails": {"text_policy": flags["text_policy"], "strict": flags["strict"]},
        "logging": {"format": flags["log_format"]},
    }
    try:
        return load_settings(config, given)
    except TemperError as error:
        _fail(error, as_json=False)


def _show_stage(stage: Stage) -> None:
    sentences = {
        Stage.STARTING: "Starting llama-server ...",
        Stage.LOADING: "Loading the model ...",
        Stage.READY: "The model is ready.",
    }
    _console.print(sentences[stage])


def _show_address(address: Address, as_json: bool) -> None:  # noqa: FBT001 - made for a callback
    if as_json:
        _print_json({"url": address.url, "backend": address.backend})
        return
    _console.print(f"Temper serves [bold]{address.url}/v1[/bold] (backend {address.backend}).")


def _print_json(value: JsonObject) -> None:
    click.echo(json.dump_text(value))


def _fail(error: TemperError, *, as_json: bool) -> NoReturn:
    """End with one sentence on standard error."""
    if as_json:
        _print_json({"ok": False, "error": str(error)})
    else:
        _console.print(f"[bold red]temper:[/bold red] {error}", markup=True, soft_wrap=True)
    sys.exit(_FAILED)


def _version() -> str:
    try:
        return version("temper-proxy")
    except PackageNotFoundError:
        return "unknown (not installed)"
