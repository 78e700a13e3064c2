"""The stored table of instruction counts."""

import pytest

from benchmarks.instructions import figures

TABLE = {"3.12.1, x86_64, GCC 12.2.0": {"start": 5_000_000}, "3.11.7": {"calls": 12, "start": 7}}


def test_a_written_table_is_read_unchanged() -> None:
    text = figures.write(TABLE)
    assert figures.read(text) == TABLE
    assert "start = 5_000_000" in text
    assert text.startswith("# ")
    assert figures.read("") == {}


@pytest.mark.parametrize("text", ['start = 7\n["3.11"]\n', '["3.11"]\nstart = "many"\n', "["])
def test_invalid_table_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match=r"must be integers|Expected|Invalid"):
        figures.read(text)


def test_growth_is_computed_relative_to_the_stored_counts() -> None:
    measured = {"start": 103, "calls": 50, "new": 9}
    assert dict(figures.compare({"start": 100, "calls": 100, "gone": 7}, measured)) == {
        "start": pytest.approx(0.03),
        "calls": -0.5,
    }


def test_exact_versions_are_read_from_a_constraints_file() -> None:
    text = "# a note\nanyio==4.16.0\nuvloop==0.23.0; sys_platform != 'win32'\nhttpx>=0.28\n"
    assert figures.pins(text) == {"anyio": "4.16.0", "uvloop": "0.23.0"}
