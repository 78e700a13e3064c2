"""The records of a measurement whose process was killed in the middle of a line."""

from pathlib import Path

import pytest

from benchmarks.real.judging import TaskRun
from benchmarks.real.records import Record, Records


def record(number: int) -> Record:
    return Record("tiny", "direct", TaskRun(number, 1, (), (), 1.0))


@pytest.mark.parametrize("part", [b'{"model":"tiny","arm', b'{"model":"tiny","run":{}'])
def test_a_truncated_last_line_is_ignored_and_replaced(tmp_path: Path, part: bytes) -> None:
    Records(tmp_path, 0.0).add(record(1))
    with (tmp_path / "runs.jsonl").open("ab") as file:
        file.write(part)
    continued = Records(tmp_path, 0.0)
    assert [*continued] == [record(1)]
    continued.add(record(2))
    assert [*Records(tmp_path, 0.0)] == [record(1), record(2)]
