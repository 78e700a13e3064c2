"""How a model comes to this machine (`temper pull`), and which ones are there (`temper models`)."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import click
from rich.console import Console

from proxy.conversation import json
from proxy.conversation.json import JsonObject
from proxy.processes.model_caches import CachedModel, list_cached_models
from proxy.settings import Settings

_NOTHING = (
    "No model was found in the caches of llama.cpp, Hugging Face, Ollama and LM Studio.\n"
    "Get one: temper pull owner/name:Q4_K_M, or try temper demo, which needs none."
)
_UNITS = ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))


async def pull(settings: Settings, repository: str, *, as_json: bool) -> bool:
    """Have a model downloaded, and say where it lies; raises `LaunchFailed`."""
    from proxy.cli.terminal import Terminal
    from proxy.processes.launch import find_program
    from proxy.processes.llama_server import download

    program = find_program(settings.model.server)
    shows_events = settings.logging.format != "text"
    with Terminal(Console(stderr=True, highlight=False), logs_events=shows_events) as terminal:
        path = await download(program, repository, terminal.follow)
    if as_json:
        click.echo(json.dump_text({"ok": True, "model": repository, "path": str(path)}))
    else:
        click.echo(f"{repository} lies in {path}")
        click.echo(f"Serve it: temper serve --hf {repository}")
    return True


def find_models() -> tuple[CachedModel, ...]:
    return list_cached_models(os.environ, Path.home(), sys.platform)


def document(models: Sequence[CachedModel]) -> JsonObject:
    listed: list[JsonObject] = [
        {
            "name": one.name,
            "from": one.owner,
            "path": str(one.path),
            "bytes": one.size,
            "quantisation": one.quantisation or None,
            "problem": one.problem or None,
        }
        for one in models
    ]
    return {"cached": [*listed]}


def show(models: Sequence[CachedModel]) -> None:
    """Print what lies on this machine, and how it is served."""
    for one in models:
        click.echo(click.style(_printable(one.name), bold=True))
        told = (one.quantisation, _size(one.size), one.owner)
        click.echo(f"  {', '.join(filter(None, told))}")
        click.echo(f"  {_printable(str(one.path))}")
        if one.problem:
            click.echo(f"  {click.style('unusable:', fg='yellow')} {one.problem}")
    usable = [one for one in models if not one.problem]
    if usable:
        click.echo("\nServe one: temper serve --model PATH")
    elif not models:
        click.echo(_NOTHING)


def _size(count: int) -> str:
    for unit, name in _UNITS:
        if count >= unit:
            return f"{count / unit:.1f} {name}"
    return f"{count} bytes"


def _printable(text: str) -> str:
    """Show what could steer a terminal: names of files may hold anything."""
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text)
