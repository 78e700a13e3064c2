"""`temper demo`: flags in, a table out; then it serves until a signal ends it."""

import contextlib
from collections.abc import Coroutine
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.text import Text

from proxy.cli.commands import print_json
from proxy.cli.running import run
from proxy.cli.safe_console import SafeConsole
from proxy.cli.usage import Command
from proxy.observability.logs import configure_logging

if TYPE_CHECKING:
    from temper_evals.demo.demonstration import CallsCompared


@click.command(cls=Command)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8367,
    show_default=True,
    help="Port to serve on; a free one if it is taken.",
)
@click.option("--once", is_flag=True, help="Show the table and end, without serving on.")
@click.option("--tiny", is_flag=True, help="Show a real, if tiny, language model.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")
def demo(port: int, *, once: bool, as_json: bool, tiny: bool) -> None:
    """Show broken tool calls with and without Temper."""
    configure_logging("text", "warning")
    console = SafeConsole(stderr=as_json)
    run(_compare_calls(console, port, once=once, as_json=as_json, tiny=tiny))


def _compare_calls(
    console: Console, port: int, *, once: bool, as_json: bool, tiny: bool
) -> Coroutine[None, None, bool]:
    """Show calls with and without Temper; the result is False if a signal came before that.

    Imports come before there is an event loop: until then a signal ends the process at once.
    """
    from temper_evals.demo import show
    from temper_evals.demo.scenarios import SCRIPTED
    from temper_evals.demo.tiny import demonstration

    shown = demonstration() if tiny else SCRIPTED
    console.print(shown.introduction, soft_wrap=True)
    from temper_evals.demo.demonstration import demonstrate

    async def work() -> bool:
        with contextlib.ExitStack() as progress:
            status = progress.enter_context(console.status("Starting ..."))

            def show_step(step: str) -> None:
                status.update(f"{step} ...")

            def show_seen(seen: "CallsCompared") -> None:
                progress.close()
                if as_json:
                    print_json(show.document(seen.comparisons, seen.url, shown.model))
                    return
                console.print(show.table(seen.comparisons, console.width, shown.heading))
                if not once:
                    _show_examples(console, seen, port, tiny=tiny)

            return await demonstrate(
                show_step, show_seen, port=port, keeps_serving=not once, shown=shown
            )

    return work()


def _show_examples(console: Console, seen: "CallsCompared", port: int, *, tiny: bool) -> None:
    """Print commands that can be pasted; `soft_wrap` keeps their lines in one piece."""
    from temper_evals.demo.show import examples, tiny_examples

    if seen.port_was_taken:
        console.print(f"\nPort {port} cannot be used, so another one was taken.")
    console.print(f"\nTemper serves on {seen.url}/v1 until Ctrl-C. Try it:", style="bold")
    for example in (tiny_examples if tiny else examples)(seen.url):
        console.print(f"\n{example.title}:", style="dim")
        console.print(Text(example.command), soft_wrap=True)
