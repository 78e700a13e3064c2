from pathlib import Path

import pytest

from proxy.errors import InvalidConfiguration
from temper_evals.records import Records
from temper_evals.report.comparison import compare_folders
from tests.unit.temper_evals.test_results import runs_of


def folder(path: Path, pattern: str, protocol: str = "abc") -> Path:
    records = Records(path, {"hash": protocol})
    for run in [*runs_of("temper", pattern), *runs_of("direct", "+")]:
        records.add(run)
    records.close()
    return path


def test_only_an_arm_that_is_significantly_worse_counts_as_worse(tmp_path: Path) -> None:
    before = folder(tmp_path / "a", "+" * 12)
    worse = compare_folders(before, folder(tmp_path / "b", "-" * 8 + "+" * 4))
    assert [comparison.is_worse for comparison in worse] == [True, False]
    assert "WORSE" in worse[0].sentence()
    assert worse[0].document()["harmed"] == 8
    luck = compare_folders(before, folder(tmp_path / "c", "-" + "+" * 11))
    assert [comparison.is_worse for comparison in luck] == [False, False]
    better = compare_folders(folder(tmp_path / "d", "-" * 12), before)
    assert not better[0].is_worse
    assert "not worse" in better[0].sentence()


def test_folders_without_an_arm_in_common_cannot_be_compared(tmp_path: Path) -> None:
    before, after = folder(tmp_path / "a", "+"), folder(tmp_path / "b", "+")
    runs = after / "runs.jsonl"
    runs.write_bytes(runs.read_bytes().replace(b'"bed":"bed"', b'"bed":"other"'))
    with pytest.raises(InvalidConfiguration, match="no bed and arm in common"):
        compare_folders(before, after)


def test_folders_with_different_protocols_cannot_be_compared(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfiguration, match="different protocols"):
        compare_folders(folder(tmp_path / "a", "+"), folder(tmp_path / "b", "+", "other"))
