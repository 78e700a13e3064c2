from enum import Enum
from itertools import product
from pathlib import Path

import pytest

from proxy.guardrails.rescue.provenance import (
    TABLE,
    CallFacts,
    Content,
    Context,
    Decision,
    Format,
    Origin,
    Words,
    decide,
)

GUIDE = Path(__file__).parents[4] / "docs" / "guides" / "quoted-calls.md"
FACTS = (Origin, Context, Words, Words, Content, Format)
EVERYTHING = [CallFacts(*values) for values in product(*FACTS)]


def column_text(values: object, of: type[Enum]) -> str:
    """Return the values of a column as text; "" if the column matches every value."""
    assert isinstance(values, tuple)
    return "" if len(values) == len(of) else " or ".join(str(value.value) for value in values)


def table_rows() -> list[str]:
    """Write the table in the format of the guide."""
    rows = []
    for row in TABLE:
        columns = (row.origin, row.context, row.before, row.after, row.content, row.format)
        cells = [column_text(values, of) for values, of in zip(columns, FACTS, strict=True)]
        rows.append(f"| {' | '.join((*cells, f'**{row.decision.value}**'))} |".replace("|  ", "| "))
    return rows


def test_the_guide_documents_the_decision_table() -> None:
    assert "\n".join(table_rows()) in GUIDE.read_text(encoding="utf-8")


def test_every_combination_of_facts_matches_a_row_and_every_row_is_used() -> None:
    used_rows = {
        next(row for row in TABLE if row.matches(combination)) for combination in EVERYTHING
    }
    assert used_rows == {*TABLE}


@pytest.mark.parametrize(
    ("call", "decision"),
    [
        (CallFacts(), Decision.CALL),
        (CallFacts(before=Words.OTHER, format=Format.OWN), Decision.CALL),
        (CallFacts(before=Words.OTHER, after=Words.SHOWING, format=Format.OWN), Decision.AMBIGUOUS),
        (CallFacts(context=Context.SENTENCE), Decision.AMBIGUOUS),
        (CallFacts(context=Context.SENTENCE, before=Words.OTHER), Decision.TEXT),
        (
            CallFacts(context=Context.SENTENCE, before=Words.OTHER, format=Format.OWN),
            Decision.AMBIGUOUS,
        ),
        (CallFacts(context=Context.QUOTATION), Decision.TEXT),
        (CallFacts(context=Context.QUOTATION, origin=Origin.RESULT), Decision.TEXT),
        (CallFacts(context=Context.QUOTATION, content=Content.PLACEHOLDERS), Decision.TEXT),
        (CallFacts(context=Context.LAYOUT), Decision.AMBIGUOUS),
        (CallFacts(context=Context.LAYOUT, content=Content.PLAIN), Decision.AMBIGUOUS),
        (CallFacts(context=Context.LAYOUT, before=Words.OTHER, after=Words.SHOWING), Decision.TEXT),
        (CallFacts(origin=Origin.FORBIDDEN), Decision.TEXT),
        (CallFacts(origin=Origin.USER), Decision.TEXT),
        (CallFacts(origin=Origin.USER, content=Content.PLACEHOLDERS), Decision.TEXT),
        (CallFacts(origin=Origin.RESULT), Decision.AMBIGUOUS),
        (CallFacts(origin=Origin.RESULT, content=Content.PLACEHOLDERS), Decision.AMBIGUOUS),
        (
            CallFacts(origin=Origin.RESULT, before=Words.OTHER, after=Words.SHOWING),
            Decision.AMBIGUOUS,
        ),
        (CallFacts(content=Content.PLACEHOLDERS), Decision.DROPPED),
        (CallFacts(content=Content.PLACEHOLDERS, after=Words.SHOWING), Decision.DROPPED),
        (CallFacts(before=Words.SHOWING), Decision.TEXT),
        (CallFacts(before=Words.SHOWING, content=Content.PLACEHOLDERS), Decision.TEXT),
        (CallFacts(before=Words.SHOWING, origin=Origin.RESULT), Decision.TEXT),
        (CallFacts(before=Words.OTHER), Decision.CALL),
        (CallFacts(before=Words.ASKING), Decision.AMBIGUOUS),
        (CallFacts(before=Words.ASKING, after=Words.ASKING), Decision.AMBIGUOUS),
        (
            CallFacts(before=Words.ASKING, after=Words.ASKING, content=Content.PLAIN),
            Decision.AMBIGUOUS,
        ),
        (CallFacts(after=Words.OTHER), Decision.CALL),
        (CallFacts(after=Words.SHOWING), Decision.AMBIGUOUS),
        (CallFacts(before=Words.OTHER, after=Words.SHOWING), Decision.TEXT),
        (CallFacts(before=Words.ASKING, after=Words.SHOWING), Decision.TEXT),
        (CallFacts(after=Words.ASKING), Decision.AMBIGUOUS),
        (CallFacts(content=Content.PLAIN), Decision.CALL),
        (CallFacts(content=Content.PLAIN, after=Words.OTHER), Decision.AMBIGUOUS),
        (CallFacts(content=Content.PLAIN, after=Words.ASKING), Decision.TEXT),
    ],
    ids=str,
)
def test_each_combination_of_facts_about_a_call_has_the_expected_decision(
    call: CallFacts, decision: Decision
) -> None:
    assert decide(call) is decision


def test_no_copied_or_quoted_call_is_accepted() -> None:
    for call in EVERYTHING:
        if decide(call) is Decision.CALL:
            assert (call.origin, call.context) == (Origin.MODEL, Context.NONE)
            assert Words.SHOWING not in (call.before, call.after)
            assert call.content is Content.MARKED or call.after is Words.NONE
