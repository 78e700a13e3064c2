"""Draws the results as SVG; requires matplotlib from the extra `evals`."""

import base64
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TypeAlias

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from temper_evals.arms import CEILING, DIRECT, TEMPER
from temper_evals.results import ArmResult
from temper_evals.simulated.profiles import Level
from temper_evals.statistics import Interval, wilson

_WIDTH, _ROW = 9.5, 0.24  # in inches, like all sizes of figures
_MARGIN = 0.9  # for the title and the labels of the axis
_COLORS = ("#888888", "#2a6fdb", "#e08a1e", "#8a4fd3", "#2a9d5c", "#d1495b")
_GOOD, _BAD = "#2a9d5c", "#d1495b"
# text stays searchable, and a fixed salt makes the bytes reproducible
_STYLE = {"svg.fonttype": "none", "svg.hashsalt": "temper"}
_NO_METADATA = dict.fromkeys(("Creator", "Date", "Format", "Type"))
_NEAR_X, _NEAR_Y = 0.25, 0.04  # shares of the axes within which two labels would overlap

Point: TypeAlias = tuple[float, float]
Row: TypeAlias = tuple[str, Interval, str, str]
"""A row of intervals: its name, the interval, the text after it, and its color."""


@dataclass(frozen=True, slots=True)
class ResultPicture:
    """An image as SVG, with its title."""

    title: str
    svg: str

    @property
    def url(self) -> str:
        """The picture as a `data:` URL, so that the page is a single file."""
        return f"data:image/svg+xml;base64,{base64.b64encode(self.svg.encode()).decode()}"


def _axes(title: str, rows: float) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(_WIDTH, _MARGIN + _ROW * rows), layout="constrained")
    axes = figure.add_subplot()
    axes.set_title(title, loc="left", fontweight="bold", fontsize=10)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    return figure, axes


def _draw(figure: Figure, axes: Axes) -> ResultPicture:
    """Render the figure as SVG with text elements; equal figures have equal bytes."""
    svg = io.StringIO()
    with mpl.rc_context(_STYLE):
        figure.savefig(svg, format="svg", metadata=_NO_METADATA)
    return ResultPicture(axes.get_title(loc="left"), svg.getvalue())


def _draw_rows(axes: Axes, names: Sequence[str], endings: Sequence[str]) -> None:
    """Label the rows from top to bottom, and write the ending to the right of each."""
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.4, -0.6)
    for index, ending in enumerate(endings):
        axes.text(1.01, index, ending, transform=axes.get_yaxis_transform(), va="center")


def _draw_intervals(axes: Axes, rows: Sequence[Row]) -> None:
    for index, (_, interval, _, color) in enumerate(rows):
        errors = [[interval.estimate - interval.low], [interval.high - interval.estimate]]
        axes.errorbar([interval.estimate], [index], xerr=errors, fmt="o", ms=4, color=color)
    _draw_rows(axes, [row[0] for row in rows], [row[2] for row in rows])


def forest(results: Sequence[ArmResult], bed: str) -> ResultPicture:
    """Draw the success of direct, Temper and the ceiling in each family, with intervals."""
    arms = [
        result
        for result in results
        if result.bed == bed and result.arm in (DIRECT, TEMPER, CEILING)
    ]
    families = dict.fromkeys(name for arm in arms for name in arm.families)
    rows: list[Row] = []
    for family, (number, arm) in product(families, enumerate(arms)):
        if family in arm.families:
            right, of = arm.families[family]
            name = f"{family}   {arm.arm}"
            rows.append((name, wilson(right, of), f"{right}/{of}", _COLORS[number % 6]))
    figure, axes = _axes(f"{bed}: success by family, 95 % intervals", len(rows))
    _draw_intervals(axes, rows)
    axes.set_xlim(0, 1)
    return _draw(figure, axes)


def lifts(results: Sequence[ArmResult]) -> ResultPicture:
    """Draw the lift of every arm over direct, with intervals."""
    rows: list[Row] = []
    for arm in results:
        if arm.against is not None:
            lift = Interval(*(100 * bound for bound in _bounds(arm.against.lift)))
            name, color = f"{arm.bed} {arm.arm}", _COLORS[arm.arm == TEMPER]
            rows.append((name, lift, f"{lift.estimate:+.1f}", color))
    figure, axes = _axes("Lift over direct in points, 95 % intervals", len(rows))
    _draw_intervals(axes, rows)
    axes.axvline(0, color="#888888", linestyle=":")
    reach = max([5.0, *(abs(edge) for row in rows for edge in (row[1].low, row[1].high))])
    axes.set_xlim(-reach, reach)
    return _draw(figure, axes)


def _bounds(interval: Interval) -> tuple[float, float, float]:
    return interval.estimate, interval.low, interval.high


def help_and_harm(results: Sequence[ArmResult]) -> ResultPicture:
    """Draw the number of runs that each arm helped, to the right, and harmed, to the left."""
    shown = [(result, result.against) for result in results if result.against is not None]
    figure, axes = _axes("Runs helped and harmed against direct", len(shown))
    positions = range(len(shown))
    axes.barh(positions, [paired.helped for _, paired in shown], height=0.6, color=_GOOD)
    axes.barh(positions, [-paired.harmed for _, paired in shown], height=0.6, color=_BAD)
    names = [f"{arm.bed} {arm.arm}" for arm, _ in shown]
    _draw_rows(axes, names, [f"+{paired.helped} / -{paired.harmed}" for _, paired in shown])
    most = max([1, *(max(paired.helped, paired.harmed) for _, paired in shown)])
    axes.set_xlim(-most, most)
    return _draw(figure, axes)


def cost_against_success(results: Sequence[ArmResult], bed: str) -> ResultPicture:
    """Draw generations per request against success."""
    arms = [result for result in results if result.bed == bed]
    figure, axes = _axes(f"{bed}: success (up) against generations per request", 12)
    most = max([1.5, *(arm.cost.generations_per_request for arm in arms)])
    named: dict[Point, list[str]] = {}
    for number, arm in enumerate(arms):
        point = (arm.cost.generations_per_request, arm.success.estimate)
        axes.plot(*point, "o", color=_COLORS[number % 6], clip_on=False)
        named.setdefault(_near(point, named, most - 0.9), []).append(arm.arm)
    for point, names in named.items():
        axes.annotate(
            ", ".join(names), point, xytext=(6, 0), textcoords="offset points", va="center"
        )
    axes.set_xlim(0.9, most)
    axes.set_ylim(0, 1)
    return _draw(figure, axes)


def _near(point: Point, others: Iterable[Point], width: float) -> Point:
    """Return an earlier point whose label would overlap the label of `point`, else `point`."""
    x, y = point
    close = (
        other
        for other in others
        if abs(other[0] - x) < _NEAR_X * width and abs(other[1] - y) < _NEAR_Y
    )
    return next(close, point)


def grid_map(results: Sequence[ArmResult], profile: str) -> ResultPicture:
    """Draw the lift in each cell of the grid; rows are rates, columns correction/constraint."""
    cells = {result.bed: result.against for result in results if result.arm == TEMPER}
    figure, axes = _axes(f"{profile}: lift in points by rates, correction/constraint", 6)
    levels = [level.value for level in Level]
    columns = [*product(levels, levels)]
    lift = np.full((len(levels), len(columns)), np.nan)
    for (row, rates), (column, others) in product(enumerate(levels), enumerate(columns)):
        name = "-".join((rates, *others))
        paired = cells.get(profile if name == "mid-mid-mid" else f"{profile}@{name}")
        if paired is not None:
            lift[row, column] = 100 * paired.lift.estimate
            axes.text(column, row, f"{lift[row, column]:+.1f}", ha="center", va="center")
    most = np.nanmax(np.abs(lift), initial=1.0)
    axes.imshow(lift, cmap="RdYlGn", vmin=-most, vmax=most, alpha=0.5, aspect="auto")
    axes.set_xticks(range(len(columns)), ["/".join(pair) for pair in columns])
    axes.set_yticks(range(len(levels)), [f"rates {level}" for level in levels])
    return _draw(figure, axes)
