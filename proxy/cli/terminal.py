"""Output of `temper serve`: progress while a model loads, and the address when it is ready.

A terminal shows a progress bar. If standard error is not a terminal, each stage is written as a
plain line, or as a log line if logs are JSON. The JSON output for programs is not printed here.
"""

import logging
import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from proxy.cli.output import echo
from proxy.processes.start_progress import StartProgress, StartStage

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID

    from proxy.api.server import PublicAddress

logger = logging.getLogger(__name__)

_WIDE = 70  # minimum columns for a full-length progress bar
_OTHER_COLUMNS = 16  # columns of the spinner, percentage, seconds and gaps
# environment variables with which rich treats any output as a terminal
_FORCED = frozenset(("FORCE_COLOR", "TTY_COMPATIBLE"))


class Terminal:
    """Shows the progress of a start; as a context manager, it removes the progress bar on exit.

    `console` is None if standard error is not a terminal. In this case, plain lines are written,
    or log lines if `logs_events` is True. The lines of `next_steps` are printed only on a terminal.
    `clock` returns seconds.
    """

    def __init__(
        self,
        console: "Console | None",
        *,
        logs_events: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._console, self._logs_events, self._clock = console, logs_events, clock
        self.next_steps: Sequence[str] = ()
        self.task = "llama-server"  # prefix of plain lines, as in "llama-server: loading"
        self._begun: dict[str, float] = {}
        self._stages: dict[str, StartStage] = {}
        self._tasks: dict[str, TaskID] = {}
        self._bar = _bar(console) if console is not None and console.is_terminal else None
        self._address: PublicAddress | None = None

    def __enter__(self) -> "Terminal":
        return self

    def __exit__(self, *_raised: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def write(self, sentence: str) -> None:
        if self._logs_events and self._bar is None:
            logger.info("%s", sentence)
        elif self._console is None:
            echo(sentence, err=True)
        else:
            self._console.print(sentence, markup=False, soft_wrap=True)

    def serve(self, address: "PublicAddress", *, awaits_model: bool) -> None:
        """Print the address for clients as soon as the model is loaded."""
        if awaits_model and "ready" not in self._stages.values():
            self._address = address
        else:
            self._announce(address, address.backend)

    def listen(self, address: "PublicAddress") -> None:
        """Print the address of a server whose backend may not be ready yet."""
        self.write(f"listening at {address.url}/v1")

    def follow(self, progress: StartProgress) -> None:
        is_new = self._stages.get(progress.name) != progress.stage
        self._stages[progress.name] = progress.stage
        if progress.stage == "starting":
            self._begun[progress.name] = self._clock()
        if self._bar is not None:
            self._draw(self._bar, progress)
        elif is_new:
            self.write(f"{self.task}: {progress.stage}")
        if progress.stage == "ready":
            self._finish(progress.name)

    def _draw(self, bar: "Progress", progress: StartProgress) -> None:
        name = progress.name
        if progress.stage in ("ready", "failed"):
            if (task := self._tasks.pop(name, None)) is not None:
                bar.remove_task(task)
            if not self._tasks:
                bar.stop()
            return
        text, columns = f"{progress.stage} {name}", bar.console.width
        room = columns - _length_of_bar(columns) - _OTHER_COLUMNS
        text = text if len(text) <= room else text[: room - 3] + "..."
        if name not in self._tasks:
            self._tasks[name] = bar.add_task(text, total=None, share="")
            bar.start()
        share = progress.share
        bar.update(
            self._tasks[name],
            description=text,
            total=None if share is None else 1.0,
            completed=share or 0.0,
            share="" if share is None else f"{share:.0%}",
        )

    def _finish(self, name: str) -> None:
        seconds = self._clock() - self._begun.get(name, self._clock())
        text = f"{name}, loaded in {seconds:.1f} s"
        address, self._address = self._address, None
        if address is not None:
            self._announce(address, text)
        elif self._bar is not None:
            self.write(text)

    def _announce(self, address: "PublicAddress", backend: str) -> None:
        self.write(f"ready at {address.url}/v1 ({backend})")
        if address.ollama_url:
            self.write(f"ready for Ollama clients at {address.ollama_url}")
        for line in self.next_steps if self._bar is not None else ():
            self.write(line)


def open_terminal(*, logs_events: bool) -> Terminal:
    """Return a `Terminal` on standard error; rich (2 MB) is imported only if it is a terminal."""
    if not (sys.stderr.isatty() or _FORCED.intersection(os.environ)):
        return Terminal(None, logs_events=logs_events)
    from proxy.cli.safe_console import SafeConsole

    return Terminal(SafeConsole(stderr=True), logs_events=logs_events)


def _bar(console: "Console") -> "Progress":
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn
    from rich.table import Column

    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True)),
        BarColumn(bar_width=_length_of_bar(console.width)),
        TextColumn("{task.fields[share]}"),
        TextColumn("{task.elapsed:.0f} s", table_column=Column(no_wrap=True)),
        console=console,
        transient=True,
        refresh_per_second=5,  # low, because the CPU is busy loading the model
    )


def _length_of_bar(columns: int) -> int:
    return 30 if columns >= _WIDE else 8
