"""`python -m benchmarks`: speed, fault tolerance, help and harm of Temper and other proxies.

python -m benchmarks peers            install the other proxies, outside the repository
python -m benchmarks run call slow    measure these scenarios, or all
python -m benchmarks table FILE       print results as Markdown; --into PAGE updates a page
python -m benchmarks instructions     count instructions of calls, tokens and a start; --check them
python -m benchmarks mock --port N    serve the mock backend
python -m benchmarks faults           a soak of ten minutes with faults of backend and clients
python -m benchmarks kill             kill engines and workers while clients send requests
python -m benchmarks evidence OUT     measure help and harm; --page docs/evidence.md
python -m benchmarks replies FOLDER   play recorded replies of models to Temper and forge
python -m benchmarks bfcl RESULT OUT  convert the results of a BFCL checkout to recorded replies
python -m benchmarks ablation         measure the effect of each heuristic about calls in text
python -m benchmarks real OUT         run 60 tasks in a closed loop with real models (GGUF files)
"""

import argparse
import asyncio
import contextlib
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import uvloop

from benchmarks import ablation, pages
from benchmarks.evals import evidence, proxies, publishing
from benchmarks.evals import replies as recorded
from benchmarks.faults import backend as faulty
from benchmarks.faults import findings, kill, soak
from benchmarks.faults.findings import Findings
from benchmarks.instructions import command as instructions
from benchmarks.load import backend, peers, results, runs, table
from benchmarks.load.candidates import CANDIDATES, REPOSITORY, kind_of
from benchmarks.load.results import Results
from benchmarks.load.scenarios import FULL, QUICK, SCENARIOS
from benchmarks.real import command as real
from temper_evals.bfcl import installed_data


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return the exit code."""
    chosen = _parser().parse_args(arguments)
    command: Callable[[argparse.Namespace], int] = chosen.command
    return command(chosen)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(required=True)
    _add_run(commands.add_parser("run", help="measure"))
    table_command = commands.add_parser("table", help="show the results of a run")
    table_command.add_argument("file", type=Path)
    table_command.add_argument("--into", type=Path, nargs="+", default=(), help="pages to update")
    table_command.set_defaults(command=_table)
    peers_command = commands.add_parser("peers", help="install other proxies")
    _add_peers(peers_command)
    peers_command.set_defaults(command=_peers)
    instructions.add_arguments(
        commands.add_parser("instructions", help="count instructions under valgrind")
    )
    _add_mock(commands.add_parser("mock", help="serve the mock backend"))
    _add_evidence(commands.add_parser("evidence", help="measure help and harm"))
    _add_replies(commands.add_parser("replies", help="play recorded replies"))
    bfcl_command = commands.add_parser("bfcl", help="convert BFCL results to recorded replies")
    bfcl_command.add_argument("results", type=Path, help="folder with a subfolder for each model")
    bfcl_command.add_argument("output", type=Path)
    bfcl_command.add_argument("--data", type=Path, help="default: that of bfcl-eval, if installed")
    bfcl_command.set_defaults(command=_bfcl)
    ablation.add_arguments(
        commands.add_parser("ablation", help="turn off each heuristic about calls in text")
    )
    real.add_arguments(commands.add_parser("real", help="measure real models in a closed loop"))
    _add_faults(
        commands.add_parser("faults", help="soak Temper with faults of backend and clients")
    )
    kill.add_arguments(commands.add_parser("kill", help="kill engines and workers under load"))
    return parser


def _add_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", help=", ".join(SCENARIOS))
    parser.add_argument("--rounds", type=int, help="default: 5, or 1 with --quick")
    parser.add_argument(
        "--only",
        nargs="+",
        type=_candidate,
        metavar="CANDIDATE",
        default=CANDIDATES,
        help=f"{', '.join(CANDIDATES)}, or temper@PATH: the Temper of another checkout",
    )
    parser.add_argument("--output", type=Path, default=Path("benchmark.json"))
    parser.add_argument("--date", default=results.today())
    parser.add_argument("--quick", action="store_true", help="a quick check, not for publication")
    parser.add_argument(
        "--temper", type=Path, default=REPOSITORY, help="the checkout of Temper to measure"
    )
    _add_peers(parser)
    parser.set_defaults(command=_run)


def _add_faults(parser: argparse.ArgumentParser) -> None:
    defaults = soak.Effort()
    parser.add_argument("--requests", type=int, default=defaults.requests)
    parser.add_argument("--seconds", type=float, default=defaults.seconds)
    parser.add_argument("--seed", type=int, default=defaults.seed)
    parser.add_argument(
        "--rest", type=float, default=defaults.rest, help="idle seconds before and after"
    )
    parser.add_argument(
        "--only", type=int, nargs="+", metavar="NUMBER", help="send only these requests"
    )
    parser.add_argument("--output", type=Path, default=Path("benchmark.json"))
    parser.add_argument("--page", type=Path, help="update the figures of this page")
    parser.add_argument("--date", default=results.today())
    parser.set_defaults(command=_faults)


def _add_mock(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--port", type=int, default=9931)
    parser.add_argument(
        "--faults", type=int, metavar="SEED", help="play the faults of `faults` with this seed"
    )
    parser.set_defaults(command=_mock)


def _add_peers(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--peers", type=Path, default=peers.default_folder())


def _add_evidence(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=Path, help="folder of the records")
    parser.add_argument("--size", choices=publishing.SIZES, default="small")
    parser.add_argument("--part", nargs="+", help="make only these parts")
    parser.add_argument("--page", type=Path, help="write the page to this file")
    parser.add_argument("--no-runs", action="store_true", help="write only the page")
    _add_peers(parser)
    parser.set_defaults(command=_evidence)


def _add_replies(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=Path)
    parser.add_argument("--output", type=Path, required=True, help="folder of the records")
    parser.add_argument("--most", type=int, help="limit of replies per model and category")
    _add_peers(parser)
    parser.set_defaults(command=_replies)


def _candidate(name: str) -> str:
    if kind_of(name) not in CANDIDATES:
        raise argparse.ArgumentTypeError(f"unknown candidate: {name}")
    return name


def _run(chosen: argparse.Namespace) -> int:
    unknown = [name for name in chosen.scenarios if name not in SCENARIOS]
    if unknown:
        sys.stderr.write(f"unknown scenario: {', '.join(unknown)}; known: {', '.join(SCENARIOS)}\n")
        return 2
    plan = runs.Plan(
        scenarios=chosen.scenarios or tuple(SCENARIOS),
        peers=chosen.peers.resolve(),
        candidates=chosen.only,
        rounds=chosen.rounds or (1 if chosen.quick else 5),
        size=QUICK if chosen.quick else FULL,
        temper=chosen.temper.resolve(),
    )
    measured = Results(chosen.date, results.this_machine(), is_quick=chosen.quick)
    with contextlib.suppress(KeyboardInterrupt):  # partial results are saved
        runs.run(plan, measured, _report)
    results.save(measured, chosen.output)
    sys.stdout.write(f"\n{table.markdown(measured)}\nAll figures: {chosen.output}\n")
    return 0


def _table(chosen: argparse.Namespace) -> int:
    try:
        measured = results.load(chosen.file)
    except (OSError, ValueError) as error:
        sys.stderr.write(f"{chosen.file} cannot be read: {error}\n")
        return 1
    figures = table.figures_of(measured)
    for page in chosen.into:
        try:
            page.write_text(pages.renew(page.read_text("utf-8"), figures), "utf-8")
        except (OSError, ValueError) as error:
            sys.stderr.write(f"{page} cannot be updated: {error}\n")
            return 1
    if not chosen.into:
        sys.stdout.write(table.markdown(measured))
    return 0


def _peers(chosen: argparse.Namespace) -> int:
    for name, result in peers.install(chosen.peers.resolve()).items():
        sys.stdout.write(f"{name:9} {result}\n")
    return 0


def _mock(chosen: argparse.Namespace) -> int:
    with contextlib.suppress(KeyboardInterrupt):
        if chosen.faults is None:
            uvloop.run(backend.serve(chosen.port))
        else:
            asyncio.run(faulty.serve(chosen.port, chosen.faults))
    return 0


def _faults(chosen: argparse.Namespace) -> int:
    only = tuple(chosen.only or ())
    effort = soak.Effort(chosen.requests, chosen.seconds, chosen.seed, only=only, rest=chosen.rest)
    outcome = Findings(chosen.date, results.this_machine(), chosen.seed)
    soak.run(effort, outcome, _report)
    findings.save(outcome, chosen.output)
    section = findings.section(outcome)
    if chosen.page is not None:
        page = pages.renew(chosen.page.read_text("utf-8"), {"soak": section})
        chosen.page.write_text(page, encoding="utf-8")
    sys.stdout.write(f"{section}\nAll figures: {chosen.output}\n")
    return 0 if outcome.is_good else 1


def _evidence(chosen: argparse.Namespace) -> int:
    folder, installed = chosen.folder.resolve(), chosen.peers.resolve()
    for part in publishing.parts_of(installed, publishing.SIZES[chosen.size]):
        if not chosen.no_runs and (chosen.part is None or part.name in chosen.part):
            publishing.publish(part, folder, _report)
    if chosen.page is not None:
        before = chosen.page.read_text("utf-8") if chosen.page.exists() else ""
        page = evidence.page(folder, proxies.versions(installed), before)
        chosen.page.write_text(page, encoding="utf-8")
    return 0


def _replies(chosen: argparse.Namespace) -> int:
    recorded.measure(chosen.folder, chosen.output, chosen.most, chosen.peers.resolve())
    return 0


def _bfcl(chosen: argparse.Namespace) -> int:
    data = chosen.data or installed_data()
    for model, count in recorded.convert(chosen.results, data, chosen.output).items():
        sys.stdout.write(f"{model}: {count} replies\n")
    return 0


def _report(line: str) -> None:
    sys.stderr.write(f"{line}\n")


if __name__ == "__main__":
    sys.exit(main())
