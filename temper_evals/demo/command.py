"""`temper demo`: prints the table of responses, then serves until a signal ends it."""

from collections.abc import Coroutine
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.text import Text

from proxy.cli.commands import print_json
from proxy.cli.running import Flags, load, run
from proxy.cli.safe_console import SafeConsole
from proxy.cli.status_line import open_status_line
from proxy.cli.usage import Command
from proxy.errors import InvalidConfiguration
from proxy.observability.logs import configure_logging

if TYPE_CHECKING:
    from temper_evals.demo.demonstration import CallsCompared, Opening


@click.command(cls=Command)
@click.option("--model", type=click.Path(path_type=Path), help="A GGUF file to start a server for.")
@click.option("--backend-url", help="A running server, such as http://127.0.0.1:8080.")
@click.option("--backend-model", default="", help="The model to use, if the server has several.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8367,
    show_default=True,
    help="Port to serve on; a free one if it is taken.",
)
@click.option("--once", is_flag=True, help="Show the table and end, without serving on.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")
def demo(
    model: Path | None,
    backend_url: str | None,
    backend_model: str,
    port: int,
    *,
    once: bool,
    as_json: bool,
) -> None:
    """Show tool calls of a model with and without Temper.

    By default the model is handwritten and makes six known errors. With --model or --backend-url it
    is your model, with the settings of `temper serve`.
    """
    configure_logging("text", "warning")
    console = SafeConsole(stderr=as_json)
    opening, introduction = _choose(model, backend_url, backend_model)
    console.print(introduction, soft_wrap=True)
    run(_compare_calls(console, port, opening, once=once, as_json=as_json))


def _choose(
    model: Path | None, backend_url: str | None, backend_model: str
) -> tuple["Opening", str]:
    """Return a function that starts the chosen model, and the introduction.

    Raises InvalidConfiguration for conflicting flags. Modules are imported here, before the
    event loop exists, because Ctrl-C then ends the process at once.
    """
    if model is not None and backend_url is not None:
        raise InvalidConfiguration("--model", "starts a server for a file: remove --backend-url")
    if backend_model and backend_url is None:
        raise InvalidConfiguration("--backend-model", "requires --backend-url")
    from proxy.settings import Settings
    from temper_evals.demo import own_model, scenarios
    from temper_evals.demo.demonstration import model_opening, open_scripted, running_opening

    if model is None and backend_url is None:
        return open_scripted, scenarios.INTRODUCTION
    flags: Flags = {"model": {"path": model}, "backend": {"url": backend_url}}
    named = load(None, flags, level="warning")
    # The other settings keep their defaults, which the demonstration shows. In particular, its
    # requests need no API key.
    settings = Settings(
        backend=named.backend, model=named.model, profile=named.profile, context=named.context
    )
    opening = model_opening(settings) if model else running_opening(settings, backend_model)
    return opening, own_model.INTRODUCTION


def _compare_calls(
    console: Console, port: int, opening: "Opening", *, once: bool, as_json: bool
) -> Coroutine[None, None, bool]:
    """Compare the responses; a terminal shows the current step and its seconds."""
    from temper_evals.demo import show
    from temper_evals.demo.demonstration import demonstrate

    async def work() -> bool:
        with open_status_line() as status:

            def show_result(result: "CallsCompared") -> None:
                status.end()
                if as_json:
                    print_json(show.document(result.comparisons, result.url, result.shown.model))
                    return
                console.print(show.table(result.comparisons, console.width, result.shown.heading))
                if not once:
                    _show_examples(console, result, port)

            return await demonstrate(
                opening, status.begin, show_result, port=port, keeps_serving=not once
            )

    return work()


def _show_examples(console: Console, result: "CallsCompared", port: int) -> None:
    """Print commands to paste; `soft_wrap` keeps each command on one line."""
    from temper_evals.demo.show import commands

    if result.port_was_taken:
        console.print(f"\nPort {port} is not available; using another port.")
    console.print(f"\nTemper serves on {result.url}/v1 until Ctrl-C. Try it:", style="bold")
    for title, command in commands(result.shown, result.url):
        console.print(f"\n{title}:", style="dim")
        console.print(Text(command), soft_wrap=True)
