"""The command from one end to the other, with a handwritten model in a real llama-server."""

import argparse
from pathlib import Path

import pytest

from benchmarks.real import command
from proxy.conversation import json
from tests.fakes.llama import build_model


def test_arms_are_measured_and_an_absent_one_is_skipped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = build_model(tmp_path / "scripted.gguf")
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    out = tmp_path / "out.json"
    words = ("--only", "direct", "temper", "forge", "--tasks", "8,16", "--json", str(out))
    chosen = parser.parse_args(["--model", str(model), *words, "--peers", str(tmp_path)])
    assert chosen.command(chosen) == 0
    table, progress = capsys.readouterr()
    assert "| scripted: direct | scripted: temper |" in table
    assert "forge: skipped: not installed" in progress
    reports = json.parse(out.read_bytes())
    assert isinstance(reports, list)
    for report in reports:
        assert isinstance(report, dict)
        runs, tokens = report["runs"], report["tokens"]
        assert isinstance(runs, list)
        assert [run["problem"] for run in runs if isinstance(run, dict)] == ["", ""]
        assert report["generations"] is not None
        assert report["identical"] is not None
        assert isinstance(tokens, dict)
        assert tokens["generated"] != 0
