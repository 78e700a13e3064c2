"""The card of a folder of records."""

import os
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from msgspec import structs

from proxy.errors import InvalidConfiguration
from temper_evals.cards.card import Environment, Family, Model, to_bytes
from temper_evals.cards.environment import note_environment, sha256_of, simulated_environment
from temper_evals.cards.making import card_of, check_choice, digest_of, release_in
from temper_evals.evaluation import EvaluationChoice, protocol_of
from temper_evals.records import RUNS, Records, RunRecord
from temper_evals.scenarios.suite import suite
from tests.unit.temper_evals.test_results import RIGHT

CHOICE = EvaluationChoice(families=("single",), profiles=("healthy",), arms=("direct", "temper"))
NAMES = [task.name for task in suite("quick", ("single",))]


def runs_of(arm: str, marks: str, bed: str = "healthy") -> list[RunRecord]:
    """Make a run of each task of the family `single`; + is right, - is wrong, ! is damage."""
    return [
        structs.replace(
            RIGHT,
            bed=bed,
            arm=arm,
            scenario=name,
            family="single",
            right=mark == "+",
            damage=int(mark == "!"),
            why="" if mark == "+" else "missing call: cancel order R-2071 of Ada",
        )
        for name, mark in zip(NAMES, marks, strict=True)
    ]


def write(
    folder: Path,
    runs: Sequence[RunRecord],
    choice: EvaluationChoice = CHOICE,
    environment: Environment | None = None,
) -> Path:
    records = Records(folder, protocol_of(choice))
    for run in runs:
        records.add(run)
    records.close()
    note_environment(folder, runs[0].bed, environment or simulated_environment("healthy"))
    os.utime(folder / RUNS, (1_764_408_645, 1_764_408_645))
    return folder


BOTH = [*runs_of("direct", "+----!"), *runs_of("temper", "-+++--")]


def test_a_card_counts_the_right_helped_and_harmed_runs_of_the_records(tmp_path: Path) -> None:
    card = card_of(write(tmp_path, BOTH))
    assert (card.suite, card.tasks, card.seeds) == ("quick", 6, 1)
    assert card.made == datetime(2025, 11, 29, 9, 30, tzinfo=UTC)
    assert card.environment == simulated_environment("healthy")
    direct, temper = card.arms
    assert (direct.right, direct.helped, direct.harmed, direct.damage) == (1, None, None, 1)
    assert (temper.right, temper.helped, temper.harmed, temper.damage) == (3, 3, 1, 0)
    assert (temper.generations, temper.prompt_tokens, temper.generated_tokens) == (12, 600, 60)
    assert (temper.seconds, temper.failed) == (18, 0)
    assert temper.families == {"single": Family(right=3, runs=6)}


def test_a_card_contains_no_text_paths_or_task_names_of_the_records(tmp_path: Path) -> None:
    text = to_bytes(card_of(write(tmp_path, BOTH))).decode()
    assert "missing call" not in text
    assert "Ada" not in text
    assert NAMES[0] not in text
    assert str(tmp_path) not in text


def test_a_card_has_the_digest_of_a_model_file_but_not_its_folder(tmp_path: Path) -> None:
    model = tmp_path / "ada" / "tiny.gguf"
    model.parent.mkdir()
    model.write_bytes(b"GGUF")
    choice = replace(CHOICE, profiles=(), models=(model,))
    runs = [*runs_of("direct", "++++++", "tiny"), *runs_of("temper", "++++++", "tiny")]
    environment = Environment(model=Model(name="tiny"))
    card = card_of(write(tmp_path / "out", runs, choice, environment))
    assert card.environment.model == Model(name="tiny", sha256=sha256_of(model))
    assert b"ada" not in to_bytes(card)


def test_the_suite_of_a_card_on_a_benchmark_is_the_name_of_the_benchmark(tmp_path: Path) -> None:
    folder = write(tmp_path, BOTH)
    protocol = folder / "protocol.json"
    protocol.write_text(
        protocol.read_text().replace('"benchmark":""', '"benchmark":"tool-eval-bench:A"')
    )
    assert card_of(folder).suite == "benchmark:tool-eval-bench:A"


@pytest.mark.parametrize("runs", [BOTH[:7], []])
def test_a_card_of_an_unfinished_evaluation_is_refused(
    tmp_path: Path, runs: list[RunRecord]
) -> None:
    folder = write(tmp_path, runs or BOTH)
    if not runs:
        (folder / RUNS).write_bytes(b"")
    with pytest.raises(InvalidConfiguration, match="runs: continue with `temper eval --resume"):
        card_of(folder)


@pytest.mark.parametrize(
    ("choice", "problem"),
    [
        (EvaluationChoice(scenarios=Path("mine")), "published tasks: remove --scenarios"),
        (EvaluationChoice(forge_checkout=Path("mine")), "remove --forge-checkout"),
        (EvaluationChoice(replies=Path("mine")), "remove --replies"),
        (EvaluationChoice(bfcl=Path("mine")), "remove --bfcl"),
        (EvaluationChoice(suite="own tasks"), "a card cannot name own tasks: String should"),
        (EvaluationChoice(profiles=("n-8b", "q4")), r"one model \(got 2\): run the command once"),
        (EvaluationChoice(models=(Path("a"),), ollama=("b",)), r"\(got 2\)"),
        (EvaluationChoice(backend_urls=("u",), backend_model=("a", "b")), r"\(got 2\)"),
    ],
)
def test_a_card_for_unpublished_tasks_or_two_models_is_refused(
    choice: EvaluationChoice, problem: str
) -> None:
    with pytest.raises(InvalidConfiguration, match=problem):
        check_choice(choice)


@pytest.mark.parametrize(
    "choice",
    [
        EvaluationChoice(),
        EvaluationChoice(benchmark="bfcl"),
        EvaluationChoice(benchmark="gold"),
        EvaluationChoice(models=(Path("a"),)),
        EvaluationChoice(backend_urls=("u",)),
    ],
)
def test_a_card_for_published_tasks_and_one_model_is_accepted(choice: EvaluationChoice) -> None:
    check_choice(choice)


def test_the_digest_of_tasks_does_not_depend_on_their_order() -> None:
    pairs = [("a", 0), ("a", 1), ("b", 0)]
    assert digest_of(pairs) == digest_of([*reversed(pairs), *pairs])
    assert digest_of(pairs) != digest_of(pairs[:2])


def test_a_release_is_a_version_without_its_development_part() -> None:
    assert release_in("0.2.0.dev3+gada1234") == "0.2.0"
    assert release_in("1.0rc1") == "1.0rc1"
    assert release_in("unknown (not installed)") == "0.0"
