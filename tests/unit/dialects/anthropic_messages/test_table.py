"""Compares the tables with the types of Anthropic's SDK; each name of the SDK must have a row."""

import re
import typing
from collections.abc import Iterator
from pathlib import Path

import anthropic.types as plain
import anthropic.types.beta as beta
import pytest
from anthropic.types import message_count_tokens_params, message_create_params
from anthropic.types.beta import message_count_tokens_params as beta_count_params
from anthropic.types.beta import message_create_params as beta_create_params

from proxy.dialects.anthropic_messages.table import BLOCKS, FIELDS, TOOLS, family_of
from proxy.dialects.field_table import FieldTable, Handling
from tests.unit.dialects.anthropic_messages.names import CHOICES, EVENTS, STOP_REASONS, TOOL_MEMBERS

GUIDE = Path(__file__).parents[4] / "docs" / "guides" / "messages-api.md"


def members(union: object) -> Iterator[type]:
    """Yield the classes of a union, which may contain unions and annotations."""
    for member in typing.get_args(union):
        if isinstance(member, type):
            yield member
        else:
            yield from members(member)


def types_in(*unions: object) -> set[str]:
    """Return the possible values of `type` in the classes of unions."""
    types: set[str] = set()
    for union in unions:
        for member in members(union):
            literal = re.search(r"Literal\[([^]]*)\]", f"{member.__annotations__['type']}")
            assert literal is not None, member
            types |= set(re.findall(r"'([^']*)'", literal[1]))
    return types


def test_the_table_has_every_field_of_the_sdk() -> None:
    kinds = (
        message_create_params.MessageCreateParamsBase,
        message_create_params.MessageCreateParamsStreaming,
        message_count_tokens_params.MessageCountTokensParams,
        beta_create_params.MessageCreateParamsBase,
        beta_create_params.MessageCreateParamsStreaming,
        beta_count_params.MessageCountTokensParams,
    )
    known = {name for kind in kinds for name in kind.__annotations__}
    assert known - FIELDS.keys() == set()
    # Temper's field, and fields that clients send although the newest types do not have them
    older = {"temperature", "top_p", "top_k", "output_format", "tags", "safeguards", "temper"}
    assert FIELDS.keys() - known == older


def test_the_table_has_every_block_of_the_sdk() -> None:
    known = types_in(
        plain.ContentBlockParam,
        plain.ContentBlock,
        plain.tool_result_block_param.Content,
        plain.SystemMessageParam.__annotations__["content"],
        beta.BetaContentBlockParam,
        beta.BetaContentBlock,
        beta.beta_tool_result_block_param.Content,
        beta.beta_system_message_param.ContentBlock,
    )
    assert known == BLOCKS.keys()


def test_the_table_has_every_tool_of_the_sdk() -> None:
    known = types_in(plain.ToolUnionParam, beta.BetaToolUnionParam)
    assert {family_of(name) for name in known} == TOOLS.keys()
    assert set(plain.ToolParam.__annotations__) == TOOL_MEMBERS.keys()
    assert set(beta.BetaToolParam.__annotations__) == TOOL_MEMBERS.keys()
    assert types_in(plain.ToolChoiceParam, beta.BetaToolChoiceParam) == CHOICES.keys()


def test_the_listed_events_and_stop_reasons_are_those_of_the_sdk() -> None:
    known = types_in(
        plain.RawMessageStreamEvent,
        plain.RawContentBlockDelta,
        beta.BetaRawMessageStreamEvent,
        beta.BetaRawContentBlockDelta,
    )
    assert known == EVENTS.keys()
    reasons = {*typing.get_args(plain.StopReason), *typing.get_args(beta.BetaStopReason)}
    assert reasons == STOP_REASONS.keys()


def test_every_refused_field_has_a_remedy() -> None:
    for table in (FIELDS, TOOLS):
        refused = [name for name, row in table.items() if row.handling is Handling.REFUSED]
        assert refused
        assert all(table.remedy(name) for name in refused)


@pytest.mark.parametrize(
    ("name", "family"),
    [("bash_20250124", "bash"), ("custom", "custom"), ("web_search_2025", "web_search_2025")],
)
def test_the_family_of_a_tool_is_its_name_without_the_date(name: str, family: str) -> None:
    assert family_of(name) == family


@pytest.mark.parametrize(
    ("title", "table"),
    [
        ("Fields", FIELDS),
        ("Blocks", BLOCKS),
        ("Tools", TOOLS),
        ("Members of a tool", TOOL_MEMBERS),
        ("Choices", CHOICES),
    ],
)
def test_the_guide_documents_every_row_of_the_table(title: str, table: FieldTable) -> None:
    section = GUIDE.read_text(encoding="utf-8").split(f"\n### {title}\n")[1].split("\n##")[0]
    rows = re.findall(r"^\| (`[^|]+`) \| (\w+) \|", section, re.MULTILINE)
    handlings = {
        name: handling for names, handling in rows for name in re.findall(r"`([^`]+)`", names)
    }
    assert handlings == {name: row.handling.value for name, row in table.items()}
