"""The command `benchmarks real`, with a model whose replies are scripted, on a llama-server."""

import argparse
from pathlib import Path

import pytest

from benchmarks.real import command
from benchmarks.real.records import Records
from tests.fakes.llama import build_model


@pytest.mark.deep
def test_installed_arms_are_measured_and_a_missing_arm_is_skipped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = build_model(tmp_path / "scripted.gguf")
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    out = tmp_path / "out"
    words = ("--only", "direct", "temper", "forge", "--tasks", "8,28", "--peers", str(tmp_path))
    chosen = parser.parse_args([str(out), "--model", str(model), *words])
    assert chosen.command(chosen) == 0
    table, progress = capsys.readouterr()
    assert "| scripted | `direct` | `temper` |" in table
    assert "forge: skipped: not installed" in progress
    records = [*Records(out, 0.0)]
    assert [record.key[1:3] for record in records] == [
        *(("direct", 8), ("direct", 28), ("temper", 8), ("temper", 28)),
    ]
    for record in records:
        assert record.run.problem == ""
        assert record.generations >= 1
        assert record.identical is not None
        assert record.tokens.generated > 0
    # a second run of the command skips the measured runs
    assert chosen.command(chosen) == 0
    assert len([*Records(out, 0.0)]) == 4


def test_the_tables_replace_the_marked_block_of_a_page(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("A\n<!-- figures: real -->\nold\n<!-- end of figures -->\nB\n", "utf-8")
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    chosen = parser.parse_args([str(tmp_path / "out"), "--into", str(page)])
    assert chosen.command(chosen) == 0
    text = page.read_text("utf-8")
    assert "old" not in text
    assert "Models with their SHA-256" in text
