from pathlib import Path

from benchmarks.evals.proxies import peer_arms, versions
from benchmarks.evals.publishing import COMMITS, SIZES, note_commit, parts_of
from temper_evals.evaluation import arms_of, scenarios_of


def test_what_is_not_installed_is_no_arm(tmp_path: Path) -> None:
    assert peer_arms(tmp_path) == {}
    assert versions(tmp_path) == {}


def test_every_part_has_direct_beside_what_it_measures(tmp_path: Path) -> None:
    for size in SIZES.values():
        parts = parts_of(tmp_path, size)
        assert len({one.name for one in parts}) == len(parts)
        for part in parts:
            names = [one.name for one in arms_of(part.choice)]
            assert {"direct", "temper"} <= {*names}
            assert len(scenarios_of(part.choice)) >= 25


def test_there_are_enough_traps(tmp_path: Path) -> None:
    for size in SIZES.values():
        traps = next(one for one in parts_of(tmp_path, size) if one.name == "traps").choice
        assert len(scenarios_of(traps)) * traps.seeds >= 2_000


def test_the_commit_of_the_runs_is_noted_once(tmp_path: Path) -> None:
    for _ in range(2):
        note_commit(tmp_path / "out")
    (line,) = (tmp_path / "out" / COMMITS).read_text("utf-8").splitlines()
    assert line
