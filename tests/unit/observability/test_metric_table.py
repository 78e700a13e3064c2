"""The table of metrics: Prometheus' conventions, bounded labels, and a guide that agrees."""

import re
from pathlib import Path

import pytest

from proxy.observability.metric_table import (
    METRICS,
    STATE_ERRORS,
    STATE_UP,
    TOOL_CALLS,
    TOOL_DURATION,
    TOOL_SERVER_UP,
    UNSTORED,
    Metric,
)

GUIDE = Path(__file__).parents[3] / "docs" / "guides" / "observability.md"
UNITS = ("_seconds", "_tokens", "_ratio")
BOUNDED = {
    "defect",
    "kind",
    "model",
    "outcome",
    "phase",
    "reason",
    "server",
    "result",
    "cause",
    "client",
    "dialect",
    "operation",
    "status",
    "syntax",
    "tier",
    "type",
    "what",
}


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_names_follow_the_conventions_of_prometheus(metric: Metric) -> None:
    assert re.fullmatch(r"temper_[a-z_]+", metric.name)
    assert metric.name.endswith("_total") == (metric.kind == "counter")
    assert metric.name.endswith(UNITS) or metric.kind != "histogram"
    assert bool(metric.buckets) == (metric.kind == "histogram")
    assert list(metric.buckets) == sorted(set(metric.buckets))


def test_no_label_can_grow_with_what_clients_and_models_write() -> None:
    assert {label for metric in METRICS for label in metric.labels} == BOUNDED
    by_server = {TOOL_CALLS, TOOL_DURATION, TOOL_SERVER_UP, STATE_UP}
    of_no_model = {one for one in METRICS if one.labels[0] != "model"}
    others = of_no_model - by_server - {UNSTORED, STATE_ERRORS}
    assert {one.labels[0] for one in others} == {"client"}
    assert len({metric.name for metric in METRICS}) == len(METRICS)


def test_the_guide_shows_this_table() -> None:
    rows = re.findall(
        r"^\| `(temper_\w+)` \| (\w+) \| ([^|]*) \| ([^|]*) \|$",
        GUIDE.read_text(encoding="utf-8"),
        re.MULTILINE,
    )
    assert rows == [
        (
            metric.name,
            metric.kind,
            ", ".join(f"`{label}`" for label in metric.labels),
            metric.meaning,
        )
        for metric in METRICS
    ]
