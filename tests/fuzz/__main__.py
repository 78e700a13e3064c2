"""Fuzzes everything that takes foreign input: `python -m tests.fuzz --minutes 2`.

Hypothesis generates inputs for every target. If Atheris is installed (the extra `fuzz`, on Linux),
it gets half of the time, and mutates inputs guided by their coverage. Findings are written to
`tests/fuzz/corpus`, whose files are test cases. The exit status is 1 if there are any findings.
"""

import argparse
import logging
import random
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.fuzz import guidance
from tests.fuzz.campaign import HEADER, Judging, Tally, corpus_of, folder_of, search
from tests.fuzz.catalogue import targets
from tests.fuzz.targets import Target

_MINUTE = 60.0


def _say(*lines: object) -> None:
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    options = _options(arguments)
    known, missing = targets()
    chosen = [target for target in known if target.name in (options.target or [target.name])]
    if options.again:
        tallies = {file.name: _again(known, file) for file in options.again}
    else:
        first = random.randrange(2**32) if options.seed is None else options.seed
        _say(f"seed {first}, {options.minutes:g} minutes\n{HEADER}")
        tallies = _search(chosen, options.minutes * _MINUTE, first, missing)
    findings = [finding for tally in tallies.values() for finding in tally.findings.values()]
    _say(*missing, *findings)
    failed = sum(bool(tally.findings) for tally in tallies.values())
    _say(f"{len(tallies) - failed} passed, {failed} failed")
    return 1 if failed else 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m tests.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=2.0, help="how long, for all targets")
    parser.add_argument("--target", action="append", help="only this one; may be repeated")
    parser.add_argument("--seed", type=int, help="of the first round, for the same inputs again")
    parser.add_argument("--again", nargs="+", type=Path, help="judge inputs of the corpus again")
    return parser.parse_args(arguments)


def _search(
    chosen: Sequence[Target], seconds: float, first: int, missing: list[str]
) -> dict[str, Tally]:
    tallies: dict[str, Tally] = {}
    share = 0.5 if guidance.is_possible() else 1.0
    for target in chosen:
        judging = Judging(target)
        for file in corpus_of(target):
            judging.judge(file.read_bytes())
        search(judging, share * seconds / len(chosen), first)
        _tell(target.name, judging.tally, tallies)
    guided = [target for target in chosen if target.is_guided]
    if not guidance.is_possible():
        missing.append("coverage: left out, as atheris is not installed (the extra `fuzz`)")
    elif guided:
        for name, tally in guidance.guide(guided, (1 - share) * seconds, first).items():
            _tell(f"{name} *", tally, tallies)
        missing.append("* by coverage, each step of which takes several times as long")
    return tallies


def _tell(name: str, tally: Tally, tallies: dict[str, Tally]) -> None:
    _say(tally.line(name))
    tallies[name] = tally


def _again(known: Sequence[Target], file: Path) -> Tally:
    by_folder = {folder_of(target).name: target for target in known}
    judging = Judging(by_folder[file.absolute().parent.name])
    judging.judge(file.read_bytes())
    return judging.tally


if __name__ == "__main__":
    logging.disable()  # logs about broken input are expected here
    sys.exit(main())
