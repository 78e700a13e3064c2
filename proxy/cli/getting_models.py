"""How a model comes to this machine (`temper pull`), and which ones are there (`temper models`)."""

import os
import sys
from pathlib import Path

import click

from proxy.cli.commands import print_json
from proxy.conversation.json import JsonObject
from proxy.hardware.summary import amount
from proxy.observability.sentences import escape
from proxy.processes.model_caches import CachedModel, list_cached_models
from proxy.settings import Settings


async def pull(settings: Settings, repository: str, *, as_json: bool) -> bool:
    """Have a model downloaded, and say where it lies; raises `LaunchFailed`."""
    from proxy.cli.terminal import open_terminal
    from proxy.processes.launch import find_program
    from proxy.processes.llama_server import download

    program = find_program(settings.model.server)
    with open_terminal(logs_events=settings.logging.format != "text") as terminal:
        path = await download(program, repository, terminal.follow)
    if as_json:
        print_json({"ok": True, "model": repository, "path": str(path)})
    else:
        click.echo(f"{repository} lies in {path}")
        click.echo(f"Serve it: temper serve --hf {repository}")
    return True


def show_cached(*, as_json: bool) -> None:
    """Print what lies on this machine, and how it is served."""
    models = list_cached_models(os.environ, Path.home(), sys.platform)
    if as_json:
        print_json({"models": [], "cached": [*map(_document, models)]})
        return
    for one in models:
        click.echo(click.style(escape(one.name), bold=True))
        told = (one.quantisation, amount(one.size), one.owner)
        click.echo(f"  {', '.join(filter(None, told))}")
        click.echo(f"  {escape(str(one.path))}")
        if one.problem:
            click.echo(f"  {click.style('unusable:', fg='yellow')} {one.problem}")
    if not all(one.problem for one in models):
        click.echo("\nServe one: temper serve --model PATH")
    elif not models:
        click.echo(
            "No model was found in the caches of llama.cpp, Hugging Face, Ollama and LM Studio.\n"
            "Get one: temper pull owner/name:Q4_K_M, or try temper demo, which needs none."
        )


def _document(model: CachedModel) -> JsonObject:
    return {
        "name": model.name,
        "from": model.owner,
        "path": str(model.path),
        "bytes": model.size,
        "quantisation": model.quantisation or None,
        "problem": model.problem or None,
    }
