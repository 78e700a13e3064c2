"""The check of a folder of cards: a worse result is a problem until it is acknowledged."""

from datetime import timedelta
from pathlib import Path

import pytest

from proxy.errors import InvalidConfiguration
from temper_evals.cards.card import ArmCounts, Card, to_bytes
from temper_evals.cards.published import (
    ACKNOWLEDGED,
    SCHEMA,
    check_folder,
    describe,
    table,
    worse_rows,
)
from tests.unit.temper_evals.cards.cards import MADE, make_arm, make_card

LATER = MADE + timedelta(days=1)
DIRECT = make_arm("direct")


def arms(right: int = 1, harmed: int = 0, damage: int = 0) -> tuple[ArmCounts, ...]:
    families = {"chain": (right, 2)}
    return DIRECT, make_arm("temper", families, helped=0, harmed=harmed, damage=damage)


def publish(folder: Path, *cards: Card) -> Path:
    folder.mkdir(exist_ok=True)
    for card in cards:
        (folder / card.file_name).write_bytes(to_bytes(card))
    return folder


def acknowledge(folder: Path, card: Card, reason: str = "The engine has changed.") -> None:
    text = f'[[worse]]\ncard = "{card.file_name}"\narm = "temper"\nreason = "{reason}"\n'
    (folder / ACKNOWLEDGED).write_text(text)


@pytest.mark.parametrize(
    ("after", "changes"),
    [
        (arms(right=0), ("right 1 -> 0",)),
        (arms(harmed=1), ("harmed 0 -> 1",)),
        (arms(damage=3), ("damage 0 -> 3",)),
        (arms(right=0, harmed=1), ("right 1 -> 0", "harmed 0 -> 1")),
        (arms(), ()),
        (arms(right=2), ()),
        ((DIRECT,), ()),
    ],
)
def test_an_arm_with_fewer_right_or_more_harmed_or_damaging_runs_is_worse(
    after: tuple[ArmCounts, ...], changes: tuple[str, ...]
) -> None:
    cards = [make_card(made=LATER, arms=after), make_card(arms=arms())]
    assert [row.changes for row in worse_rows(cards)] == ([changes] if changes else [])


def test_only_cards_of_the_same_model_engine_and_suite_are_compared() -> None:
    worse = arms(right=0)
    for changed in (
        make_card(made=LATER, arms=worse, suite="full"),
        make_card(made=LATER, arms=worse, model="other"),
        make_card(made=LATER, arms=worse, engine="xllamacpp"),
    ):
        assert worse_rows([make_card(arms=arms()), changed]) == []
    assert worse_rows([make_card(arms=arms()), make_card(made=LATER, arms=worse, build="b12000")])


def test_each_card_is_compared_with_the_card_before_it() -> None:
    first, second, third = (
        make_card(made=MADE + timedelta(days=day), arms=arms(right=right))
        for day, right in enumerate((2, 1, 1))
    )
    assert [(row.card, row.before) for row in worse_rows([third, first, second])] == [
        (second, first)
    ]


def test_a_worse_card_is_a_problem_until_it_is_listed_in_acknowledged_toml(tmp_path: Path) -> None:
    worse = make_card(made=LATER, arms=arms(right=0))
    folder = publish(tmp_path, make_card(arms=arms()), worse)
    (problem,) = check_folder(folder).problems
    assert problem.startswith(f"{worse.file_name}: temper is worse than in ")
    assert problem.endswith("right 1 -> 0. Find the cause, or accept the row in acknowledged.toml.")
    acknowledge(folder, worse)
    assert check_folder(folder).problems == ()


def test_an_entry_in_acknowledged_toml_for_a_card_that_is_not_worse_is_a_problem(
    tmp_path: Path,
) -> None:
    card = make_card(arms=arms())
    acknowledge(publish(tmp_path, card), card)
    (problem,) = check_folder(tmp_path).problems
    assert (
        problem == f"acknowledged.toml: temper of {card.file_name} is not worse: remove the entry."
    )


def test_an_entry_in_acknowledged_toml_requires_a_reason_of_ten_characters(tmp_path: Path) -> None:
    worse = make_card(made=LATER, arms=arms(right=0))
    acknowledge(publish(tmp_path, make_card(arms=arms()), worse), worse, "chance")
    (problem,) = check_folder(tmp_path).problems
    assert "worse.0.reason: String should have at least 10 characters" in problem


def test_check_folder_lists_misnamed_cards_and_other_files(tmp_path: Path) -> None:
    publish(tmp_path, make_card()).joinpath("ada.json").write_bytes(to_bytes(make_card()))
    (tmp_path / "notes.txt").write_text("hello")
    (tmp_path / SCHEMA).write_text("{}")
    misnamed, unknown = check_folder(tmp_path).problems
    assert misnamed == f"ada.json: must be named {make_card().file_name}"
    assert "notes.txt: is not valid JSON" in unknown
    assert len(check_folder(tmp_path).cards) == 2


def test_check_folder_refuses_a_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(
        InvalidConfiguration, match="is not a folder: pass the folder with the cards"
    ):
        check_folder(tmp_path / "none")


def test_describe_returns_lines_for_the_environment_and_the_suite_and_each_arm() -> None:
    first, second, direct, temper = describe(make_card())
    assert first == (
        "model qwen3-8b-q4, Q4_K_M, SHA-256 000000000000...; engine llama.cpp b11669-2f0a35c; "
        "hardware Linux x86_64, AMD, 16 cores, 64 GiB, NVIDIA GeForce RTX 4090 16 GiB"
    )
    assert second.startswith("suite quick: 2 tasks, seeds: 1; protocol 689aee30de2525bd;")
    assert direct.startswith("direct: 1 of 2 right, 0 damaging calls")
    assert temper.startswith("temper: 1 of 2 right, 1 helped, 1 harmed, ")


def test_the_table_has_a_row_for_each_card() -> None:
    without = make_card(arms=(make_arm("temper"),))
    _, _, whole, part = table([make_card(), without]).splitlines()
    assert whole.startswith("| qwen3-8b-q4, Q4_K_M | quick, 2 tasks | Linux x86_64, AMD, 16 cores")
    assert whole.endswith("| 0.2.0, 2026-11-29 | 1 (9 to 91 %) | 1 (9 to 91 %) | 1 | 1 |")
    assert part.endswith("|  | 1 (9 to 91 %) |  |  |")
