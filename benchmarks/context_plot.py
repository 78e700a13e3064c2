"""The picture of `benchmarks.context_run`: prompt, cached part and cuts for each strategy."""

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.context_results import Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_INCHES = (9.0, 2.4)  # of one strategy
_CACHED, _READ, _CUT = "#9ecae1", "#e6550d", "#555555"


class MissingLibrary(Exception):
    """The picture cannot be drawn."""


def check_library() -> None:
    """Raise MissingLibrary if there is no matplotlib."""
    if importlib.util.find_spec("matplotlib") is None:
        raise MissingLibrary(
            "the picture needs matplotlib; install it by: pip install 'matplotlib>=3.9'"
        )


def draw(runs: Sequence[Run], window: int, path: Path) -> None:
    """Draw one row for each strategy that counted, and write it to `path`."""
    check_library()
    from matplotlib.figure import Figure

    shown = [run for run in runs if run.strategy != "off"]
    width, height = _INCHES
    figure = Figure(figsize=(width, height * len(shown)), layout="constrained")
    rows = figure.subplots(len(shown), 1, sharex=True, squeeze=False)
    for run, axes in zip(shown, rows[:, 0], strict=True):
        _draw_run(axes, run, window)
    rows[0, 0].legend(loc="upper left", fontsize="small")
    rows[-1, 0].set_xlabel("turn")
    figure.savefig(path, dpi=110)


def _draw_run(axes: "Axes", run: Run, window: int) -> None:
    steps = [turn.step for turn in run.turns]
    cached = [turn.cached for turn in run.turns]
    read = [turn.prompt - turn.cached for turn in run.turns]
    axes.bar(steps, cached, width=1.0, color=_CACHED, label="from cache")
    axes.bar(steps, read, width=1.0, bottom=cached, color=_READ, label="read again")
    axes.axhline(window, color=_CUT, linewidth=0.8, label="window")
    broken = [turn.step for turn in run.turns if turn.is_broken]
    axes.plot(
        broken, [-0.03 * window] * len(broken), "^", color=_CUT, markersize=4, label="prefix broke"
    )
    axes.set_title(
        f"{run.strategy}: {run.cached:.1%} from cache, {run.breaks} breaks", fontsize="medium"
    )
    axes.set_ylabel("tokens")
    axes.margins(x=0.01)
