"""A card refuses free texts, paths, addresses, keys and names of machines."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import ValidationError

from proxy.backends.engines import ENGINES
from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.errors import InvalidConfiguration
from temper_evals.arms import usual_arms
from temper_evals.benchmarks.gold_calls import syntax_templates
from temper_evals.benchmarks.registry import NAMES
from temper_evals.cards.card import (
    Card,
    check_new_file,
    read_card,
    to_bytes,
    write_card,
)
from temper_evals.scenarios.suite import FAMILIES
from tests.unit.temper_evals.cards.cards import make_arm, make_card

SECRETS = (
    "/home/ada/models/qwen.gguf",
    r"C:\Users\Ada\qwen.gguf",
    "http://10.0.0.7:8080/v1",
    "10.0.0.7",
    "10.0.0.7:8080",
    "ada@example.com",
    "sk-proj-4Nb82kqPz71LmVt93XcRw5Yd",
    "hf_AbCdEfGhIjKlMnOpQrStUvWxYz012345",
    "Ada's workstation",
    "Please cancel order R-2071.",
    '{"name": "cancel_order"}',
    "two\nlines",
    "x" * 200,
)


def paths_of_strings(
    document: JsonValue, path: tuple[str | int, ...] = ()
) -> list[tuple[str | int, ...]]:
    """List the paths of all strings: {"a": ["b", {"c": "d"}]} -> [("a", 0), ("a", 1, "c")]."""
    match document:
        case dict():
            return [
                member
                for key, value in document.items()
                for member in paths_of_strings(value, (*path, key))
            ]
        case list():
            return [
                member
                for index, value in enumerate(document)
                for member in paths_of_strings(value, (*path, index))
            ]
        case str():
            return [path]
        case _:
            return []


def with_value(document: JsonObject, path: tuple[str | int, ...], value: str) -> JsonObject:
    """Return a copy with another value at a path."""
    copy = json.parse(json.dump(document))
    assert isinstance(copy, dict)
    target: JsonValue = copy
    for key in path[:-1]:
        target = target[key]  # type: ignore[index]
    target[path[-1]] = value  # type: ignore[index]
    return copy


DOCUMENT = json.parse(to_bytes(make_card()))
assert isinstance(DOCUMENT, dict)


@pytest.mark.parametrize("path", paths_of_strings(DOCUMENT), ids=str)
@pytest.mark.parametrize("secret", SECRETS, ids=range(len(SECRETS)))
def test_a_path_or_address_or_key_or_text_is_refused_in_every_string_of_a_card(
    path: tuple[str | int, ...], secret: str
) -> None:
    assert isinstance(DOCUMENT, dict)
    Card.model_validate_json(json.dump(DOCUMENT))
    with pytest.raises(ValidationError):
        Card.model_validate_json(json.dump(with_value(DOCUMENT, path, secret)))


@pytest.mark.parametrize("secret", SECRETS, ids=range(len(SECRETS)))
def test_a_path_or_address_or_key_or_text_is_refused_as_the_name_of_a_json_member(
    secret: str,
) -> None:
    with pytest.raises(ValidationError):
        make_arm("temper", {secret: (1, 2)})
    assert isinstance(DOCUMENT, dict)
    with pytest.raises(ValidationError):
        Card.model_validate_json(json.dump({**DOCUMENT, secret: 1}))


def test_a_count_that_is_negative_too_large_or_not_an_integer_is_refused() -> None:
    assert isinstance(DOCUMENT, dict)
    for value in (-1, 1.5, True, 10**15, "1"):
        with pytest.raises(ValidationError):
            Card.model_validate_json(json.dump({**DOCUMENT, "tasks": value}))


@pytest.mark.parametrize(
    "made", ["2026-11-29T15:00:00+05:30", "2026-11-29T09:30:07Z", "2026-11-29T09:30:00"]
)
def test_a_time_with_seconds_or_outside_utc_is_refused(made: str) -> None:
    assert isinstance(DOCUMENT, dict)
    with pytest.raises(ValidationError):
        Card.model_validate_json(json.dump({**DOCUMENT, "made": made}))


def test_counts_that_contradict_each_other_are_refused() -> None:
    for families in ({"chain": (3, 2)}, {"chain": (1, 2), "single": (1, 1)}):
        with pytest.raises(ValidationError, match="add up"):
            make_arm("temper", families, right=1, runs=2)
    with pytest.raises(ValidationError, match="more runs"):
        make_arm("temper", {"chain": (1, 2)}, harmed=3)
    with pytest.raises(ValidationError, match="occurs twice"):
        make_card(arms=(make_arm("temper"), make_arm("temper")))
    with pytest.raises(ValidationError, match="every task"):
        make_card(arms=(make_arm("temper", {"chain": (1, 3)}),))


def test_a_card_may_name_every_arm_engine_suite_and_family_of_this_version() -> None:
    for arm in usual_arms():
        make_arm(arm)
    for engine in ENGINES:
        make_card(engine=engine.name)
    for suite in (
        "quick",
        "full",
        "real",
        "bfcl:live_multiple",
        *(f"benchmark:{n}" for n in NAMES),
    ):
        make_card(suite=suite)
    make_card(suite="benchmark:bfcl:multi_turn_base")
    others = ("bfcl:live_multiple", "agentdojo:banking", "tool-eval-bench:A")
    make_arm("temper", dict.fromkeys((*FAMILIES, *others, *syntax_templates()), (0, 1)))


def test_read_card_returns_the_card_that_write_card_wrote(tmp_path: Path) -> None:
    path = tmp_path / "card.json"
    write_card(make_card(), path)
    assert read_card(path) == make_card()
    assert make_card().file_name == "qwen3-8b-q4-quick-2026-11-29-93e43b1f.json"
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    assert read_card(path) == make_card()
    assert make_card(suite="full").file_name != make_card().file_name


def test_write_card_does_not_overwrite_an_existing_file(tmp_path: Path) -> None:
    path = tmp_path / "card.json"
    path.write_text("mine")
    with pytest.raises(InvalidConfiguration, match="already exists: pass another name"):
        write_card(make_card(), path)
    assert path.read_text() == "mine"


def test_a_path_that_cannot_be_written_is_refused_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfiguration, match=r"there is no folder .*: create it"):
        check_new_file(tmp_path / "none" / "card.json")
    with pytest.raises(InvalidConfiguration, match=r"cannot be written .*: pass another name"):
        write_card(make_card(), tmp_path / f"{'x' * 300}.json")


def edited(change: Callable[[str], str]) -> str:
    return change(to_bytes(make_card()).decode())


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "is not valid JSON: write it again"),
        ("[]", "is not a card of version 1: write it again"),
        (edited(lambda text: text.replace('"version": 1', '"version": 2')), "update Temper"),
        (edited(lambda text: text.replace('"version": 1', '"version": 0')), "write it again"),
        (edited(lambda text: text.replace('"quick"', '"slow"')), "suite: String should match"),
        (
            edited(lambda text: text.replace('"right"', '"wrong"')),
            r"arms\.0\.right: Field required",
        ),
        (edited(lambda text: text + " "), "was edited: write it again"),
        (
            edited(lambda text: text.replace("{", '{"suite": "Ada was here",', 1)),
            "is not valid JSON: write it again",
        ),
    ],
)
def test_the_error_for_an_invalid_card_file_says_what_is_wrong(
    tmp_path: Path, text: str, problem: str
) -> None:
    path = tmp_path / "card.json"
    path.write_text(text)
    with pytest.raises(InvalidConfiguration, match=problem):
        read_card(path)


def test_a_missing_card_file_raises_invalid_configuration(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfiguration, match="cannot be read: No such file"):
        read_card(tmp_path / "none.json")
