from enum import Enum
from itertools import product
from pathlib import Path

import pytest

from proxy.guardrails.rescue.provenance import (
    TABLE,
    Around,
    Content,
    Format,
    Origin,
    Standing,
    Treatment,
    Words,
    decide,
)

GUIDE = Path(__file__).parents[4] / "docs" / "guides" / "quoted-calls.md"
FACTS = (Origin, Around, Words, Words, Content, Format)
EVERYTHING = [Standing(*one) for one in product(*FACTS)]


def named(values: object, of: type[Enum]) -> str:
    """Name the values of a row; nothing where any fits."""
    assert isinstance(values, tuple)
    return "" if len(values) == len(of) else " or ".join(str(one.value) for one in values)


def lines() -> list[str]:
    """Write the table as the guide has it."""
    rows = []
    for row in TABLE:
        found = (row.origin, row.around, row.before, row.behind, row.content, row.format)
        cells = [named(values, of) for values, of in zip(found, FACTS, strict=True)]
        rows.append(
            f"| {' | '.join((*cells, f'**{row.treatment.value}**'))} |".replace("|  ", "| ")
        )
    return rows


def test_the_guide_shows_the_table_as_it_is() -> None:
    assert "\n".join(lines()) in GUIDE.read_text(encoding="utf-8")


def test_every_call_has_a_verdict_and_every_row_decides_about_some() -> None:
    first = {next(row for row in TABLE if row.fits(one)) for one in EVERYTHING}
    assert first == {*TABLE}


@pytest.mark.parametrize(
    "call", [one for one in EVERYTHING if decide(one) is Treatment.READ], ids=str
)
def test_what_is_read_is_the_models_own_and_nobody_shows_it(call: Standing) -> None:
    assert call.origin is Origin.MODEL
    assert call.around is Around.NOTHING
    assert Words.SHOWING not in (call.before, call.behind)
    assert call.content is Content.MARKED or call.behind is Words.NONE
