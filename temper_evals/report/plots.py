"""Pictures as SVG that stand in a page: no library draws them, and no network is needed."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import TypeAlias

from temper_evals.arms import CEILING, DIRECT, TEMPER
from temper_evals.results import ArmResult
from temper_evals.statistics import Interval, wilson

_ROW, _LEFT, _WIDTH, _TOP = 22, 190, 760, 28
_GRID_SIDE, _LETTERS = 3, 12


@dataclass(frozen=True, slots=True)
class Axis:
    """A horizontal axis from `low` to `high`, in the units of what is drawn."""

    low: float
    high: float

    def place(self, value: float) -> float:
        """Return where a value is drawn."""
        share = (value - self.low) / (self.high - self.low)
        return round(_LEFT + min(max(share, 0.0), 1.0) * (_WIDTH - _LEFT - 60), 1)


def _svg(height: int, parts: Sequence[str], title: str) -> str:
    body = "".join(parts)
    return (
        f'<svg viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="{escape(title)}">'
        f'<text x="0" y="14" class="title">{escape(title)}</text>{body}</svg>'
    )


def _text(x: float, y: float, text: str, kind: str = "label") -> str:
    return f'<text x="{x}" y="{y}" class="{kind}">{escape(text)}</text>'


Point: TypeAlias = tuple[float, float]


def _line(start: Point, end: Point, kind: str) -> str:
    (x1, y1), (x2, y2) = start, end
    return f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" class="{kind}"/>'


def _dot(x: float, y: float, kind: str, title: str) -> str:
    return f'<circle cx="{x}" cy="{y}" r="4" class="{kind}"><title>{escape(title)}</title></circle>'


def forest(results: Sequence[ArmResult], bed: str) -> str:
    """Draw the success of direct, Temper and the ceiling in each family, with intervals."""
    arms = [one for one in results if one.bed == bed and one.arm in (DIRECT, TEMPER, CEILING)]
    families = list(dict.fromkeys(name for one in arms for name in one.families))
    axis, parts, y = Axis(0.0, 1.0), list[str](), _TOP
    for family in families:
        y += _ROW // 2
        parts.append(_text(0, y + 4, family, "strong"))
        for number, arm in enumerate(arms):
            if family in arm.families:
                right, of = arm.families[family]
                parts += _whisker(axis, y, wilson(right, of), (f"arm{number % 6}", arm.arm))
                parts.append(_text(_LEFT - 92, y + 4, arm.arm[:16]))
                parts.append(_text(_WIDTH - 52, y + 4, f"{right}/{of}"))
                y += _ROW - 6
    return _svg(y + 10, parts, f"{bed}: success by family, 95 % intervals")


def _whisker(axis: Axis, y: float, one: Interval, look: tuple[str, str]) -> list[str]:
    kind, title = look
    low, high = axis.place(one.low), axis.place(one.high)
    told = f"{title}: {one.estimate:.3f} [{one.low:.3f}, {one.high:.3f}]"
    return [_line((low, y), (high, y), kind), _dot(axis.place(one.estimate), y, kind, told)]


def lifts(results: Sequence[ArmResult]) -> str:
    """Draw the lift of every arm over direct, with intervals."""
    shown = [(one, one.against) for one in results if one.against is not None]
    bounds = [abs(edge) for _, one in shown for edge in (one.lift.low, one.lift.high)]
    reach = max([0.05, *bounds])
    axis, parts = Axis(-reach, reach), list[str]()
    middle = axis.place(0.0)
    for number, (arm, one) in enumerate(shown):
        y = _TOP + _ROW * (number + 1) - 8
        parts += _whisker(axis, y, one.lift, ("arm1" if arm.arm == TEMPER else "arm0", arm.arm))
        parts.append(_text(0, y + 4, f"{arm.bed} {arm.arm}"[:34]))
        parts.append(_text(_WIDTH - 52, y + 4, f"{100 * one.lift.estimate:+.1f}"))
    height = _TOP + _ROW * (len(shown) + 1)
    parts.append(_line((middle, _TOP), (middle, height - 10), "axis"))
    return _svg(height, parts, "Lift over direct in points, 95 % intervals")


def help_and_harm(results: Sequence[ArmResult]) -> str:
    """Draw how many runs each arm helped, to the right, and harmed, to the left."""
    shown = [(one, one.against) for one in results if one.against is not None]
    most = max([1, *(max(one.helped, one.harmed) for _, one in shown)])
    axis, parts = Axis(-most, most), list[str]()
    for number, (arm, one) in enumerate(shown):
        y = _TOP + _ROW * number
        parts.append(_text(0, y + 14, f"{arm.bed} {arm.arm}"[:34]))
        parts.append(_bar(axis, y, one.helped, "help"))
        parts.append(_bar(axis, y, -one.harmed, "harm"))
        parts.append(_text(_WIDTH - 56, y + 14, f"+{one.helped} / -{one.harmed}"))
    return _svg(_TOP + _ROW * (len(shown) + 1), parts, "Runs helped and harmed against direct")


def _bar(axis: Axis, y: float, value: float, kind: str) -> str:
    left, right = sorted((axis.place(0.0), axis.place(value)))
    place = f'x="{left}" y="{y + 4}" width="{round(right - left, 1)}" height="14"'
    return f'<rect {place} class="{kind}"/>'


def cost_against_success(results: Sequence[ArmResult], bed: str) -> str:
    """Draw generations a request against success."""
    arms = [one for one in results if one.bed == bed]
    most = max([1.5, *(one.cost.generations_per_request for one in arms)])
    axis, height, parts = Axis(0.9, most), 300, list[str]()
    named: dict[Point, list[str]] = {}
    for number, one in enumerate(arms):
        x = axis.place(one.cost.generations_per_request)
        y = round(height - 30 - one.success.estimate * (height - 80), 1)
        told = f"{one.arm}: {one.success.estimate:.3f}, {one.cost.generations_per_request:.2f}"
        parts.append(_dot(x, y, f"arm{number % 6}", told))
        named.setdefault(_near((x, y), named), []).append(one.arm)
    parts += [_text(x + 8, y + 4, ", ".join(names)) for (x, y), names in named.items()]
    parts.append(_text(_LEFT, height - 8, f"generations a request: 0.9 to {most:.2f}"))
    return _svg(height, parts, f"{bed}: success (up) against generations a request")


def _near(place: Point, others: Iterable[Point]) -> Point:
    """Return the other place whose name would be written over that of this one, else this one."""
    x, y = place
    close = (one for one in others if abs(one[0] - x) < _LEFT and abs(one[1] - y) < _LETTERS)
    return next(close, place)


def grid_map(results: Sequence[ArmResult], profile: str) -> str:
    """Draw the lift in each cell of the grid: rates down, correction across, constraint inside."""
    cells = {one.bed: one.against for one in results if one.arm == TEMPER}
    parts, levels = list[str](), ("low", "mid", "high")
    for row, rates in enumerate(levels):
        for column, correction in enumerate(levels):
            for place, constraint in enumerate(levels):
                name = f"{rates}-{correction}-{constraint}"
                one = cells.get(profile if name == "mid-mid-mid" else f"{profile}@{name}")
                x = 90 + column * 210 + place * 64
                y = _TOP + 18 + row * 44
                told = "" if one is None else f"{100 * one.lift.estimate:+.1f}"
                parts.append(_text(x, y + 16, told, "strong"))
                if row == _GRID_SIDE - 1:
                    parts.append(_text(x, y + 40, f"{correction}/{constraint}"))
        parts.append(_text(0, _TOP + 34 + row * 44, f"rates {rates}"))
    return _svg(_TOP + 190, parts, f"{profile}: lift in points by rates, correction/constraint")
