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
    ("call", "treatment"),
    [
        (Standing(), Treatment.READ),
        (Standing(before=Words.OTHER, format=Format.OWN), Treatment.READ),
        (Standing(before=Words.OTHER, behind=Words.SHOWING, format=Format.OWN), Treatment.ASKED),
        (Standing(around=Around.SENTENCE), Treatment.ASKED),
        (Standing(around=Around.SENTENCE, before=Words.OTHER), Treatment.TEXT),
        (
            Standing(around=Around.SENTENCE, before=Words.OTHER, format=Format.OWN),
            Treatment.ASKED,
        ),
        (Standing(around=Around.QUOTATION), Treatment.TEXT),
        (Standing(around=Around.QUOTATION, origin=Origin.RESULT), Treatment.TEXT),
        (Standing(around=Around.QUOTATION, content=Content.PLACEHOLDERS), Treatment.TEXT),
        (Standing(around=Around.LAYOUT), Treatment.ASKED),
        (Standing(around=Around.LAYOUT, content=Content.PLAIN), Treatment.ASKED),
        (Standing(around=Around.LAYOUT, before=Words.OTHER, behind=Words.SHOWING), Treatment.TEXT),
        (Standing(origin=Origin.FORBIDDEN), Treatment.TEXT),
        (Standing(origin=Origin.USER), Treatment.TEXT),
        (Standing(origin=Origin.USER, content=Content.PLACEHOLDERS), Treatment.TEXT),
        (Standing(origin=Origin.RESULT), Treatment.ASKED),
        (Standing(origin=Origin.RESULT, content=Content.PLACEHOLDERS), Treatment.ASKED),
        (Standing(origin=Origin.RESULT, before=Words.OTHER, behind=Words.SHOWING), Treatment.ASKED),
        (Standing(content=Content.PLACEHOLDERS), Treatment.LEFT_OUT),
        (Standing(content=Content.PLACEHOLDERS, behind=Words.SHOWING), Treatment.LEFT_OUT),
        (Standing(before=Words.SHOWING), Treatment.TEXT),
        (Standing(before=Words.SHOWING, content=Content.PLACEHOLDERS), Treatment.TEXT),
        (Standing(before=Words.SHOWING, origin=Origin.RESULT), Treatment.TEXT),
        (Standing(before=Words.OTHER), Treatment.READ),
        (Standing(before=Words.ASKING), Treatment.ASKED),
        (Standing(before=Words.ASKING, behind=Words.ASKING), Treatment.ASKED),
        (
            Standing(before=Words.ASKING, behind=Words.ASKING, content=Content.PLAIN),
            Treatment.ASKED,
        ),
        (Standing(behind=Words.OTHER), Treatment.READ),
        (Standing(behind=Words.SHOWING), Treatment.ASKED),
        (Standing(before=Words.OTHER, behind=Words.SHOWING), Treatment.TEXT),
        (Standing(before=Words.ASKING, behind=Words.SHOWING), Treatment.TEXT),
        (Standing(behind=Words.ASKING), Treatment.ASKED),
        (Standing(content=Content.PLAIN), Treatment.READ),
        (Standing(content=Content.PLAIN, behind=Words.OTHER), Treatment.ASKED),
        (Standing(content=Content.PLAIN, behind=Words.ASKING), Treatment.TEXT),
    ],
    ids=str,
)
def test_facts_about_a_call_decide_what_becomes_of_it(call: Standing, treatment: Treatment) -> None:
    assert decide(call) is treatment


def test_what_is_read_is_the_models_own_and_nobody_shows_it() -> None:
    for call in EVERYTHING:
        if decide(call) is Treatment.READ:
            assert (call.origin, call.around) == (Origin.MODEL, Around.NOTHING)
            assert Words.SHOWING not in (call.before, call.behind)
            assert call.content is Content.MARKED or call.behind is Words.NONE
