"""Writes the generated parts about result cards: their JSON schema, and the table in the guide.

python -m tests.result_cards
"""

import json
from pathlib import Path

from benchmarks import pages
from temper_evals.cards.card import Card
from temper_evals.cards.published import FOLDER, SCHEMA, check_folder, table

_REPOSITORY = Path(__file__).parents[1]
CARDS = _REPOSITORY / FOLDER
PAGE = _REPOSITORY / "docs" / "guides" / "evaluating.md"


def schema() -> str:
    """Return the JSON schema of a card as it is published."""
    dialect = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    return json.dumps({**dialect, **Card.model_json_schema()}, indent=2) + "\n"


def page() -> str:
    """Return the guide with the table of the published cards."""
    figures = {"results": table(check_folder(CARDS).cards)}
    return pages.renew(PAGE.read_text("utf-8"), figures)


if __name__ == "__main__":
    (CARDS / SCHEMA).write_text(schema(), "utf-8")
    PAGE.write_text(page(), "utf-8")
