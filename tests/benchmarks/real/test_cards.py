"""A measurement of a real model is published as a card, with the counts of its table."""

import argparse
from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks.real import command
from benchmarks.real.cards import cards_of
from benchmarks.real.judging import APOLOGY
from benchmarks.real.records import Record, Records
from proxy.errors import InvalidConfiguration
from temper_evals.cards.card import Engine, Environment, Family, Model, read_card
from temper_evals.cards.environment import note_environment
from tests.benchmarks.real.test_table import DIRECT, FORGE, TEMPER

ENVIRONMENT = Environment(model=Model(name="tiny"), engine=Engine(name="xllamacpp"))


def measured(folder: Path, listed: Sequence[Record]) -> Records:
    records = Records(folder, 0.0)
    records.note("temper", "0.2.0")
    records.note("guardrails", "1b92465c14338cb5")
    for record in listed:
        records.add(record)
    note_environment(folder, "tiny", ENVIRONMENT)
    return records


def test_a_card_has_the_counts_of_the_table(tmp_path: Path) -> None:
    (card,) = cards_of(measured(tmp_path, [*DIRECT, *TEMPER, *FORGE]))
    assert (card.suite, card.tasks, card.seeds) == ("real", 2, 1)
    assert card.environment == ENVIRONMENT
    direct, temper, forge = card.arms
    assert (direct.arm, direct.right, direct.helped, direct.harmed) == ("direct", 1, None, None)
    assert (temper.arm, temper.right, temper.helped, temper.harmed) == ("temper", 2, 1, 0)
    assert (forge.right, forge.harmed, forge.failed) == (0, 1, 1)
    assert forge.damage == 4  # two cancellations, and two calls for a greeting
    assert temper.families == {"single": Family(right=1, runs=1), "none": Family(right=1, runs=1)}
    assert (temper.prompt_tokens, temper.generated_tokens, temper.seconds) == (4000, 200, 4)


def test_a_card_excludes_an_arm_with_missing_tasks(tmp_path: Path) -> None:
    (card,) = cards_of(measured(tmp_path, [*DIRECT, *TEMPER, FORGE[0]]))
    assert [arm.arm for arm in card.arms] == ["direct", "temper"]


@pytest.mark.parametrize(
    ("listed", "problem"),
    [(TEMPER, "tiny has no runs of the arm direct: run it first"), (DIRECT, "several values")],
)
def test_records_without_the_direct_arm_or_with_two_versions_make_no_card(
    tmp_path: Path, listed: Sequence[Record], problem: str
) -> None:
    records = measured(tmp_path, listed)
    if listed is DIRECT:
        records.note("temper", "0.3.0")
    with pytest.raises(InvalidConfiguration, match=problem):
        list(cards_of(records))


def test_the_command_writes_a_card_for_each_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    measured(tmp_path / "out", [*DIRECT, *TEMPER])
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    chosen = parser.parse_args([str(tmp_path / "out"), "--card", str(tmp_path)])
    assert chosen.command(chosen) == 0
    (path,) = tmp_path.glob("*.json")
    assert path.name == read_card(path).file_name
    assert "temper: 2 of 2 right, 1 helped, 0 harmed" in capsys.readouterr().err
    assert APOLOGY not in path.read_text("utf-8")
    assert chosen.command(chosen) == 1
    assert "already exists" in capsys.readouterr().err
