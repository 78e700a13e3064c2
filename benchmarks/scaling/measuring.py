"""Measures `temper serve` beside Ray Serve with two replicas, in front of the same mock engine.

Unlike `run` nothing is tied to a core: two replicas, a proxy, the generator of the load and the
engine share what there is. Ratios are what can be read; `load` tells who else used the machine.
"""

import asyncio
import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import median

from benchmarks.load.candidates import Launch
from benchmarks.load.client import Target
from benchmarks.load.figures import Figures, percentile
from benchmarks.load.generator import Effort, send
from benchmarks.load.processes import free_port
from benchmarks.load.replies import Behaviour
from benchmarks.load.subjects import launched, mock_backend
from benchmarks.load.workloads import Workload
from benchmarks.scaling import departures
from benchmarks.scaling.cluster import REPOSITORY, Cluster, Ingress, cluster
from temper_evals.report.markdown import markdown_table

PLAIN = "plain"
NAMES: Mapping[str, str] = {
    PLAIN: "`temper serve`",
    "python": "Serve, Python proxy",
    "haproxy": "Serve, HAProxy",
}
_INGRESSES: tuple[Ingress, ...] = ("python", "haproxy")
_MS = 1000
_KEY = "nobody"  # as the client of the load says
_SETTINGS = '[backend]\nurl = "{engine}"\nkind = "llama-server"\n'
_LEFT = f"{_SETTINGS}[server]\nkeep_alive_seconds = {departures.KEEP_ALIVE_SECONDS}\n"
_TIMES_LEFT = 10
_TIMES_KILLED = 3


def measure(rounds: int, seconds: float) -> dict[str, Figures]:
    """Measure all three, round after round; returns medians."""
    seen: dict[str, list[Figures]] = {name: [] for name in NAMES}
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        engine = stack.enter_context(mock_backend(folder))
        targets = {PLAIN: stack.enter_context(_plain(_SETTINGS.format(engine=engine), folder))}
        clusters: dict[str, Cluster] = {
            ingress: stack.enter_context(cluster(ingress, key=_KEY)) for ingress in _INGRESSES
        }
        for name, one in clusters.items():
            targets[name] = _deployed(one, _SETTINGS.format(engine=engine))
        for _ in range(rounds):
            for name, target in targets.items():
                seen[name].append(asyncio.run(_measured(target, seconds)))
        left = _departed(clusters, folder)
    return {name: {**_medians(found), **left[name]} for name, found in seen.items()}


def _departed(clusters: Mapping[str, Cluster], folder: Path) -> dict[str, Figures]:
    """Measure what follows when clients leave, and when a replica is killed."""
    with departures.engine() as engine:
        settings = _LEFT.format(engine=engine.url)
        with _plain(settings, folder) as target:
            found = {PLAIN: departures.of_clients(target, engine, _TIMES_LEFT)}
        for name, one in clusters.items():
            target = _deployed(one, settings)
            found[name] = departures.of_clients(target, engine, _TIMES_LEFT)
            found[name]["replaced"] = max(
                departures.of_a_replica(one) for _ in range(_TIMES_KILLED)
            )
    return found


async def _measured(target: Target, seconds: float) -> Figures:
    """Ask for calls, one at a time and sixteen, and for streams, one and eight."""
    call = Workload(Behaviour("call"), is_streamed=False)
    await send(target, call, Effort(requests=100, at_once=16))
    alone = await send(target, call, Effort(seconds=seconds))
    many = await send(target, call, Effort(seconds=seconds, at_once=16))
    figures = {
        "p50": _MS * percentile((one.total for one in alone.answers), 50),
        "requests_per_second": len(many.answers) / many.seconds,
        "errors": float(len(alone.problems) + len(many.problems)),
        "load": os.getloadavg()[0],
    }
    prose = Workload(Behaviour("prose", 100, 20))
    for number in (1, 8):
        batch = await send(target, prose, Effort(2 * number, at_once=number, ramp=0.05))
        delays = [delay for one in batch.answers for delay in one.delays]
        figures[f"first_byte_{number}"] = _MS * percentile(
            (one.first_byte for one in batch.answers), 50
        )
        figures[f"delay_{number}"] = _MS * percentile(delays, 50)
        figures["errors"] += len(batch.problems)
    return figures


@contextlib.contextmanager
def _plain(settings: str, folder: Path) -> Iterator[Target]:
    port = free_port()
    (folder / "temper.toml").write_text(settings)
    command = (sys.executable, "-m", "proxy", "serve", "--port", str(port), "--json")
    launch = Launch(command, {"PYTHONPATH": str(REPOSITORY)}, folder)
    # a core that there is not leaves the choice to the kernel
    with launched(launch, port, folder / "plain.log", core=os.cpu_count() or 1) as subject:
        yield subject.target


def _deployed(one: Cluster, settings: str) -> Target:
    # a revision of its own, or Serve would go on with what it has read before
    one.deploy({"config": str(one.written(settings)), "replicas": 2, "revision": settings})
    return Target(one.url)


def _medians(found: list[Figures]) -> Figures:
    return {name: median(one[name] for one in found) for name in found[0]}


_ROWS = (
    ("requests_per_second", "calls, 16 at once: requests/s", "{:,.0f}"),
    ("p50", "one call alone: p50, ms", "{:.1f}"),
    ("first_byte_1", "first byte of a stream: p50, ms", "{:.1f}"),
    ("first_byte_8", "the same, 8 at once", "{:.1f}"),
    ("delay_1", "delay per token, one stream: p50, ms", "{:.2f}"),
    ("delay_8", "the same, 8 streams", "{:.2f}"),
    ("errors", "errors", "{:.0f}"),
    ("load", "load of the machine meanwhile", "{:.1f}"),
    ("left_amid", "a client leaves amid a stream: the engine knows after, ms", "{:.0f}"),
    ("left_amid_most", f"the same, most of {_TIMES_LEFT}", "{:.0f}"),
    ("left_before", "it leaves before the first byte of one, ms", "{:.0f}"),
    ("left_before_most", f"the same, most of {_TIMES_LEFT}", "{:.0f}"),
    ("replaced", f"a killed replica has a successor after, s, most of {_TIMES_KILLED}", "{:.1f}"),
)
_NOTHING = "-"


def table(found: Mapping[str, Figures]) -> str:
    """Show what was measured as Markdown, and what of it was a goal."""
    rows: list[tuple[str, ...]] = []
    for figure, title, form in _ROWS:
        figures = (found[name].get(figure) for name in NAMES)
        rows.append((title, *(_NOTHING if one is None else form.format(one) for one in figures)))
    measured = markdown_table(("", *NAMES.values()), rows)
    return f"{measured}\n{markdown_table(('goal', '', 'measured', 'met'), _goals(found))}"


def _goals(found: Mapping[str, Figures]) -> Iterator[tuple[str, ...]]:
    plain, python, haproxy = (found[name] for name in NAMES)
    rate, first, delay = "requests_per_second", "first_byte_1", "delay_8"
    for goal, least, value in (
        ("HAProxy: share of plain's requests/s", 0.6, haproxy[rate] / plain[rate]),
        ("Python proxy: share of plain's requests/s", 0.12, python[rate] / plain[rate]),
    ):
        yield _goal(goal, f">= {least}", value, is_met=value >= least)
    bound = 2 * _MS * departures.KEEP_ALIVE_SECONDS + _MS / 2
    for goal, most, unit, value in (
        ("HAProxy: first byte, added", 3, "ms", haproxy[first] - plain[first]),
        ("HAProxy: delay per token, added", 0.5, "ms", haproxy[delay] - plain[delay]),
        ("Python proxy: first byte, added", 25, "ms", python[first] - plain[first]),
        ("HAProxy: a client leaves amid a stream", 200, "ms", haproxy["left_amid_most"]),
        ("Python proxy: the same", 200, "ms", python["left_amid_most"]),
        ("HAProxy: it leaves before the first byte", bound, "ms", haproxy["left_before_most"]),
        ("Python proxy: the same", 200, "ms", python["left_before_most"]),
        ("HAProxy: a killed replica is replaced", 10, "s", haproxy["replaced"]),
        ("Python proxy: the same", 10, "s", python["replaced"]),
    ):
        yield _goal(goal, f"<= {most:g} {unit}", value, is_met=value <= most)


def _goal(goal: str, limit: str, value: float, *, is_met: bool) -> tuple[str, ...]:
    return goal, limit, f"{value:.2f}", "yes" if is_met else "**no**"
