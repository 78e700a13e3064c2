"""What the checks have measured of a model: kept, and shown by `temper models --tried`."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import cast

from rich.table import Table

from proxy.conversation.json import JsonObject
from proxy.doctor.finding import Examined, Status
from proxy.doctor.target import Target
from proxy.state.tried_models import Figure, TriedModel, digest

NOTHING = "No model was tried here yet: 'temper doctor' tries one, and keeps the figures."

_COLUMNS = ("model", "server", "tried", "calls", "window", "reads/s", "writes/s", "failed")
_DAY = len("2026-01-01")


def tried_model(target: Target, found: Sequence[Examined], temper: str) -> TriedModel:
    """Put together what was measured of a model, now."""
    known = target.known
    measured: dict[str, Figure] = {"capabilities": [*known.capabilities]}
    if known.engine:
        measured |= {"engine": known.engine, "engine_lacks": [*known.lacks]}
    for one in found:
        measured |= one.finding.measured
    said = {one.title: one.finding.said for one in found}
    return TriedModel(
        name=target.settings.model.alias or target.model,
        identity=known.identity or target.model,
        template=digest(known.evidence.template),
        server=said.get("version", ""),
        tried_at=datetime.now(UTC).isoformat(timespec="seconds"),
        temper=temper,
        measured=measured,
        failed=tuple(one.title for one in found if one.finding.status is Status.FAIL),
    )


def table(tried: Sequence[TriedModel]) -> Table:
    """Show models with the figures that matter for a choice, one a line."""
    shown = Table(box=None, pad_edge=False)
    for number, column in enumerate(_COLUMNS):
        shown.add_column(column, overflow="fold", justify="right" if 4 <= number <= 6 else "left")
    for one in tried:
        figures = [_figure(one.measured.get(name)) for name in _FIGURES]
        failed = ", ".join(one.failed) or "-"
        shown.add_row(one.name, one.server, one.tried_at[:_DAY], *figures, failed)
    return shown


_FIGURES = ("calls", "window", "reads_per_second", "writes_per_second")


def _figure(value: Figure) -> str:
    if value is None:
        return "-"
    return f"{value:.0f}" if isinstance(value, int | float) else str(value)


def document(tried: Sequence[TriedModel]) -> JsonObject:
    """Describe the same for programs, with everything that was measured."""
    return {
        "models": [
            {
                "id": one.name,
                "identity": one.identity,
                "template": one.template,
                "server": one.server,
                "tried_at": one.tried_at,
                "temper": one.temper,
                "measured": cast("JsonObject", one.measured),
                "failed": [*one.failed],
            }
            for one in tried
        ]
    }
