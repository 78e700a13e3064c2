"""The page docs/evidence.md, written from the records of a run."""

import re
from pathlib import Path

from msgspec import structs

from benchmarks import pages
from benchmarks.evals.evidence import page
from benchmarks.evals.publishing import SIZES, parts_of
from temper_evals.records import Records, RunRecord
from tests.benchmarks.evals.test_thresholds import ALL, DIRECT, HALF, arm

WITHOUT = [*DIRECT, *arm("temper", ALL), *arm("temper-without-nudge", HALF)]
CELL = [structs.replace(run, bed="p-small@low-low-low") for run in WITHOUT]
MAIN = [*DIRECT, *arm("temper", HALF[::-1]), *arm("ceiling", ALL)]
PARTS = {"main": MAIN, "without": WITHOUT, "grid": CELL}


def folder(path: Path, parts: dict[str, list[RunRecord]]) -> Path:
    for name, runs in parts.items():
        records = Records(path / name, {"hash": "abc", "temper": "1.0"})
        for run in runs:
            records.add(run)
        records.close()
    return path


def test_the_page_has_promises_protocol_and_results(tmp_path: Path) -> None:
    text = page(folder(tmp_path, PARTS), {"forge": "0.10.0"})
    for word in ("Protocol `abc`", "forge 0.10.0", "**missed**", "not shown", "The effect"):
        assert word in text
    assert f"{sum(map(len, PARTS.values()))} runs" in text
    assert "| temper-without-nudge | -25.0" in text


def test_results_of_held_out_families_are_shown_separately(tmp_path: Path) -> None:
    held_out_runs = [
        structs.replace(run, family="travel", scenario=run.scenario.replace("chain", "travel"))
        for run in MAIN
    ]
    assert "## Held out" not in page(folder(tmp_path / "without", {"main": MAIN}), {})
    text = page(folder(tmp_path / "with", {"main": [*MAIN, *held_out_runs]}), {})
    _, _, held_out = text.partition("## Held out")
    rows = [line.split(" | ") for line in held_out.splitlines() if line.startswith("| p-small")]
    assert [row[1] for row in rows] == ["direct", "temper"]
    assert all(row[2] == row[5] for row in rows)
    assert rows[1][2].startswith(f"{HALF.count('+')}/")


def test_runs_harmed_by_the_defaults_are_counted(tmp_path: Path) -> None:
    before = arm("direct", ALL)
    text = page(folder(tmp_path, {"main": [*before, *arm("temper", HALF)]}), {})
    table = text.partition("## Runs that the defaults harmed")[2]
    counts = re.findall(r"^\| main \| .* \| (\d+) \|$", table, re.MULTILINE)
    assert sum(map(int, counts)) == HALF.count("-") > 0
    unharmed = page(folder(tmp_path / "other", {"main": DIRECT}), {})
    assert "None in any part." in unharmed


def test_small_models_are_measured_and_shown_as_a_separate_part(tmp_path: Path) -> None:
    parts = {part.name: part.choice for part in parts_of(tmp_path, SIZES["small"])}
    assert parts["small-models"].profiles == ("coder-0.5b", "coder-1.5b")
    assert not {*parts["small-models"].profiles} & {*parts["main"].profiles}
    title = "## Small models that repeat calls and echo results"
    assert title not in page(folder(tmp_path / "without", {"main": MAIN}), {})
    small = [structs.replace(run, bed="coder-0.5b") for run in MAIN]
    text = page(folder(tmp_path / "with", {"main": MAIN, "small-models": small}), {})
    assert "| coder-0.5b | temper |" in text.partition(title)[2]


def test_renewing_the_page_keeps_the_block_of_real_models(tmp_path: Path) -> None:
    records = folder(tmp_path, {"main": MAIN})
    filled = pages.renew(page(records, {}), {"real": "| model | right |"})
    assert "| model | right |" in filled
    assert page(records, {}, filled) == filled


def test_goals_have_a_column_for_each_simulated_model(tmp_path: Path) -> None:
    """40 runs of each arm are too few to show harm: both columns say "not shown"."""
    both = [*MAIN, *(structs.replace(run, bed="n-8b") for run in MAIN)]
    text = page(folder(tmp_path, {"main": both}), {}).partition("## Promises")[2]
    assert "| endpoint | threshold | p-small | n-8b |" in text
    row = next(line for line in text.splitlines() if line.startswith("| harm |"))
    assert row.count("not shown") == 2
