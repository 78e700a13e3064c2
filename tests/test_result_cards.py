"""The published result cards are valid, and the table in the guide is up to date.

A worse result than in the previous card must have a reason in `acknowledged.toml`.
"""

import json
from pathlib import Path

import jsonschema
import pytest

from temper_evals.cards.published import SCHEMA, check_folder
from tests import result_cards

CARDS = [path for path in sorted(result_cards.CARDS.glob("*.json")) if path.name != SCHEMA]


def test_the_cards_are_valid_and_no_row_is_worse_without_a_reason() -> None:
    assert list(check_folder(result_cards.CARDS).problems) == []


def test_the_stored_schema_of_result_cards_is_current() -> None:
    """After a change, run `python -m tests.result_cards`."""
    assert (result_cards.CARDS / SCHEMA).read_text("utf-8") == result_cards.schema()


def test_the_table_of_the_guide_is_current() -> None:
    """After a change, run `python -m tests.result_cards`."""
    assert result_cards.PAGE.read_text("utf-8") == result_cards.page()


@pytest.mark.parametrize("path", CARDS, ids=lambda path: path.name)
def test_each_card_satisfies_the_schema(path: Path) -> None:
    jsonschema.validate(json.loads(path.read_bytes()), json.loads(result_cards.schema()))
