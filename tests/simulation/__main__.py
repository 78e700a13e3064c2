"""Command line of the simulation: run, trace or shrink seeds, or plant defects."""

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.simulation import clock
from tests.simulation.planted import FAULTS

_ROOT = Path(__file__).parent.parent.parent
_perf_counter = time.perf_counter  # real time


def main() -> int:
    if os.environ.get("PYTHONHASHSEED") != "0":  # the order of sets must not vary
        os.execve(  # noqa: S606 - restarts this program
            sys.executable,
            [sys.executable, "-m", "tests.simulation", *sys.argv[1:]],
            {**os.environ, "PYTHONHASHSEED": "0"},
        )
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=200, help="number of seeds (200)")
    parser.add_argument("--first", type=int, default=0, help="first seed (0)")
    parser.add_argument(
        "--seed", type=int, help="run only this seed, twice: both traces must be equal"
    )
    parser.add_argument("--trace", action="store_true", help="print the events of the network")
    parser.add_argument(
        "--shrink", action="store_true", help="remove requests and events while the seed fails"
    )
    parser.add_argument(
        "--until-failure", action="store_true", help="stop after the first seed that fails"
    )
    parser.add_argument(
        "--planted", nargs="*", metavar="NAME", help="plant these defects (default: all)"
    )
    parser.add_argument("--proxy", help="the folder that contains the package `proxy`")
    choice = parser.parse_args()
    if choice.planted is not None:
        return _plant(choice.planted or [*FAULTS], choice.seeds)
    if choice.proxy:
        sys.path.insert(0, choice.proxy)
    clock.install()
    sys.unraisablehook = _report_unraisable
    if choice.seed is not None:
        return _examine(choice.seed, is_traced=choice.trace, is_shrunk=choice.shrink)
    return _run(range(choice.first, choice.first + choice.seeds), stops=choice.until_failure)


def _report_unraisable(unraisable: "sys.UnraisableHookArgs") -> None:
    """Report exceptions in `finally` blocks, but not those of a killed process.

    Python runs the `finally` blocks of its coroutines when it frees them; in a real kill they would
    not run.
    """
    if f"{unraisable.exc_value}" != "Event loop is closed":
        sys.__unraisablehook__(unraisable)


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _run(seeds: range, *, stops: bool) -> int:
    from tests.simulation.scenario import scenario_of
    from tests.simulation.world import OCCURRENCES, simulate

    begun, requests, failed = _perf_counter(), 0, list[int]()
    done, skipped, occurrences, seeds_with = 0, 0, Counter[str](), Counter[str]()
    for seed in seeds:
        done += 1
        verdict = simulate(scenario_of(seed))
        skipped += verdict.is_skipped
        requests += verdict.requests
        occurrences += verdict.occurrences
        seeds_with.update((+verdict.occurrences).keys())
        for problem in verdict.problems:
            _say(f"seed {seed}: {problem}")
        if verdict.problems:
            failed.append(seed)
            if stops:
                break
    seconds = _perf_counter() - begun
    _say(f"{'occurred':24}{'times':>8}{'seeds':>8}")
    for name in OCCURRENCES:
        _say(f"{name:24}{occurrences[name]:8}{seeds_with[name]:8}")
    note = f"; {skipped} were skipped without the extra `state`" if skipped else ""
    _say(f"{done} seeds, {requests} requests, {len(failed)} failed ({seconds:.0f} s){note}")
    if failed:
        _say(f"Examine a failure with: python -m tests.simulation --seed {failed[0]} --shrink")
    return bool(failed)


def _examine(seed: int, *, is_traced: bool, is_shrunk: bool) -> int:
    from tests.simulation.scenario import scenario_of
    from tests.simulation.world import digest, shrink, simulate

    scenario = scenario_of(seed)
    first, again = simulate(scenario), simulate(scenario)
    for problem in first.problems:
        _say(problem)
    if is_traced:
        for moment, event, endpoint, size in first.trace:
            _say(f"{moment:10.4f} {event:6} {endpoint} {size or ''}")
    names = [hashlib.sha256(digest(run)).hexdigest()[:16] for run in (first, again)]
    _say(f"trace {names[0]}" + ("" if names[0] == names[1] else f", and then {names[1]}"))
    if is_shrunk and first.problems:
        small = shrink(scenario)
        _say(f"still fails: {small}")
        _say("\n".join(simulate(small).problems))
    return bool(first.problems) or names[0] != names[1]


def _plant(names: list[str], seeds: int) -> int:
    """Plant each defect in a copy of `proxy`; return True if a defect was not found."""
    missed = 0
    for name in names:
        fault = FAULTS[name]
        with tempfile.TemporaryDirectory() as folder:
            shutil.copytree(_ROOT / "proxy", Path(folder) / "proxy")
            (Path(folder) / "config").symlink_to(_ROOT / "config")  # the profiles of models
            path = Path(folder) / fault.file
            text = path.read_text("utf-8")
            assert text.count(fault.old) == 1, f"{name}: the code has changed"
            path.write_text(text.replace(fault.old, fault.new), "utf-8")
            command = [sys.executable, "-m", "tests.simulation", "--until-failure"]
            command += ["--seeds", f"{seeds}", "--proxy", folder]
            ended = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=False)
        failures = [line for line in ended.stdout.splitlines() if line.startswith("seed ")]
        missed += not failures
        reason = failures[0] if failures else ended.stderr[-200:]
        _say(f"{'found' if failures else 'MISSED'}  {name}: {reason:.160}")
    return bool(missed)


if __name__ == "__main__":
    sys.exit(main())
