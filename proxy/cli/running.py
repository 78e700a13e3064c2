"""Execution of a command: settings, event loop, signals and exit code."""

import asyncio
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import NoReturn, TypeAlias

from proxy.api.event_loop import loop_factory
from proxy.cli.commands import print_json
from proxy.cli.output import echo
from proxy.cli.signals import INTERRUPTED, ending_signals, keep_handlers
from proxy.conversation.json import JsonObject
from proxy.errors import TemperError
from proxy.observability.logs import configure_logging
from proxy.settings import Settings, load_settings
from proxy.systems import handle_signals

Flags: TypeAlias = dict[str, dict[str, object]]

FAILED = 1  # exit code of a command that failed


def run(work: Coroutine[None, None, bool], otherwise: int = INTERRUPTED) -> None:
    """Run `work`; if it returns False, exit with code `otherwise` (default: as after Ctrl-C)."""
    try:
        with keep_handlers(), asyncio.Runner(loop_factory=loop_factory()) as runner:
            is_done = runner.run(_until_signalled(work))
    except (KeyboardInterrupt, asyncio.CancelledError):
        sys.exit(INTERRUPTED)
    if not is_done:
        sys.exit(otherwise)


async def _until_signalled(work: Coroutine[None, None, bool]) -> bool:
    """Run `work`; the first signal cancels it and lets it clean up. A second signal aborts it.

    `temper serve` installs its own handlers as soon as it is ready.
    """
    task = asyncio.current_task()
    assert task is not None  # noqa: S101 - a coroutine runs in a task

    def on_signal(_number: int) -> None:
        if task.cancelling():
            raise KeyboardInterrupt
        task.cancel()

    with handle_signals(ending_signals(), on_signal):
        return await work


def load(config: Path | None, flags: Flags | None = None, *, level: str = "") -> Settings:
    """Load the settings and configure logging; `level` overrides logging.level."""
    settings = load_settings(config, flags or {})
    configure_logging(settings.logging.format, level or settings.logging.level)
    return settings


def fail(error: TemperError, *, as_json: bool, details: JsonObject | None = None) -> NoReturn:
    """Exit with a message on standard error, or with JSON on standard output."""
    if as_json:
        print_json({"ok": False, "error": str(error), **(details or {})})
    else:
        echo("temper:", err=True, nl=False, fg="red", bold=True)
        echo(f" {error}", err=True, has_lines=True)
    sys.exit(FAILED)
