"""What `temper serve` tells its operator: progress while a model loads, and one line at the end.

A terminal gets a line that moves; what is no terminal gets sentences, as log lines where logs are
JSON. Results for programs are not printed here.
"""

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn
from rich.table import Column

from proxy.processes.start_progress import StartProgress, StartStage

if TYPE_CHECKING:
    from proxy.api.server import PublicAddress

logger = logging.getLogger(__name__)

_WIDE = 70  # columns, from which on there is room for a bar as long as it should be
_BESIDES = 16  # columns that the moving mark, the percentage, the seconds and the gaps take
_FRAMES = 5  # a second; the processor is busy with the model


class Terminal:
    """Tells how far the start has come; to be left when nothing is to be told any longer.

    With `logs_events` what is no terminal gets log lines. `clock` tells seconds.
    """

    def __init__(
        self,
        console: Console,
        *,
        logs_events: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._console, self._logs_events, self._clock = console, logs_events, clock
        self._begun: dict[str, float] = {}
        self._stages: dict[str, StartStage] = {}
        self._tasks: dict[str, TaskID] = {}
        self._bar = _bar(console) if console.is_terminal else None
        self._address: PublicAddress | None = None

    def __enter__(self) -> "Terminal":
        return self

    def __exit__(self, *_raised: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def say(self, sentence: str) -> None:
        if self._logs_events and not self._console.is_terminal:
            logger.info("%s", sentence)
        else:
            self._console.print(escape(sentence), soft_wrap=True)

    def serve(self, address: "PublicAddress", *, awaits_model: bool) -> None:
        """Print the address for clients, once the model is loaded."""
        if awaits_model and "ready" not in self._stages.values():
            self._address = address
        else:
            self._announce(address, address.backend)

    def follow(self, progress: StartProgress) -> None:
        is_new = self._stages.get(progress.name) != progress.stage
        self._stages[progress.name] = progress.stage
        if progress.stage == "starting":
            self._begun[progress.name] = self._clock()
        if self._bar is not None:
            self._draw(self._bar, progress)
        elif is_new:
            self.say(f"llama-server: {progress.stage}")
        if progress.stage == "ready":
            self._finish(progress.name)

    def _draw(self, bar: Progress, progress: StartProgress) -> None:
        name = progress.name
        if progress.stage in ("ready", "failed"):
            if (task := self._tasks.pop(name, None)) is not None:
                bar.remove_task(task)
            if not self._tasks:
                bar.stop()
            return
        told = escape(self._shorten(f"{progress.stage} {name}"))
        if name not in self._tasks:
            self._tasks[name] = bar.add_task(told, total=None, share="")
            bar.start()
        share = progress.share
        bar.update(
            self._tasks[name],
            description=told,
            total=None if share is None else 1.0,
            completed=share or 0.0,
            share="" if share is None else f"{share:.0%}",
        )

    def _shorten(self, text: str) -> str:
        """Cut what has no room beside the bar, its percentage and the seconds."""
        room = self._console.width - _length_of_bar(self._console) - _BESIDES
        return text if len(text) <= room else text[: room - 3] + "..."

    def _finish(self, name: str) -> None:
        took = f"{name}, loaded in {self._clock() - self._begun.get(name, self._clock()):.1f} s"
        address, self._address = self._address, None
        if address is not None:
            self._announce(address, took)
        elif self._bar is not None:
            self.say(took)

    def _announce(self, address: "PublicAddress", behind: str) -> None:
        self.say(f"ready at {address.url}/v1 ({behind})")


def _bar(console: Console) -> Progress:
    """Return the progress bar; it is removed when it stops."""
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}", table_column=Column(no_wrap=True)),
        BarColumn(bar_width=_length_of_bar(console)),
        TextColumn("{task.fields[share]}"),
        TextColumn("{task.elapsed:.0f} s", table_column=Column(no_wrap=True)),
        console=console,
        transient=True,
        refresh_per_second=_FRAMES,
    )


def _length_of_bar(console: Console) -> int:
    return 30 if console.width >= _WIDE else 8
