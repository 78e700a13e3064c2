from pathlib import Path

import pytest
from msgspec.structs import replace

from proxy.errors import InvalidConfiguration
from temper_evals.records import (
    RUNS,
    Records,
    RunRecord,
    protocol_hash,
    read_protocol,
    read_runs,
    read_transcript,
)

RUN = RunRecord("n-8b", "direct", "chain-1", 0, "chain", right=True, ending="answered", digest="d")
PROTOCOL = {"hash": "abc"}


def test_add_writes_a_run_to_the_disk_at_once(tmp_path: Path) -> None:
    records = Records(tmp_path, {**PROTOCOL})
    records.add(RUN)
    assert [*read_runs(tmp_path)] == [RUN]
    records.close()


def test_a_run_that_is_added_again_is_recorded_once(tmp_path: Path) -> None:
    for _ in range(2):
        records = Records(tmp_path, {**PROTOCOL})
        records.add(RUN)
        records.add(replace(RUN, seed=1))
        assert records.has(RUN.key)
        records.close()
    assert len([*read_runs(tmp_path)]) == 2


@pytest.mark.parametrize("length", [1, 20, 60])
def test_a_truncated_last_line_is_skipped_and_overwritten(tmp_path: Path, length: int) -> None:
    records = Records(tmp_path, {**PROTOCOL})
    records.add(RUN)
    records.close()
    path = tmp_path / RUNS
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:length])
    assert [*read_runs(tmp_path)] == [RUN]
    reopened = Records(tmp_path, {**PROTOCOL})
    reopened.add(replace(RUN, seed=1))
    reopened.close()
    assert len([*read_runs(tmp_path)]) == 2


def test_a_folder_with_runs_of_another_protocol_is_refused(tmp_path: Path) -> None:
    records = Records(tmp_path, {**PROTOCOL})
    records.add(RUN)
    records.close()
    assert read_protocol(tmp_path) == PROTOCOL
    with pytest.raises(InvalidConfiguration, match="another folder"):
        Records(tmp_path, {"hash": "other"})


def test_a_folder_without_runs_accepts_another_protocol(tmp_path: Path) -> None:
    Records(tmp_path, {**PROTOCOL}).close()
    Records(tmp_path, {"hash": "other"}).close()
    assert read_protocol(tmp_path) == {"hash": "other"}


def test_reading_a_missing_protocol_or_a_damaged_line_raises_invalid_configuration(
    tmp_path: Path,
) -> None:
    with pytest.raises(InvalidConfiguration, match="no evaluation"):
        read_protocol(tmp_path)
    (tmp_path / RUNS).write_text("{}\n")
    with pytest.raises(InvalidConfiguration, match="line 1"):
        [*read_runs(tmp_path)]


def test_read_transcript_returns_the_transcript_of_the_run_or_nothing(tmp_path: Path) -> None:
    records = Records(tmp_path, {**PROTOCOL})
    records.keep_transcript(RUN, [{"role": "user", "content": "é"}])
    records.close()
    assert read_transcript(tmp_path, RUN) == [{"role": "user", "content": "é"}]
    assert read_transcript(tmp_path, replace(RUN, seed=9)) == []


def test_the_protocol_hash_has_sixteen_characters() -> None:
    assert protocol_hash() == protocol_hash()
    assert len(protocol_hash()) == 16
