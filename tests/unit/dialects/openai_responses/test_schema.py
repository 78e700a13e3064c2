"""Checks that the tables have all names of the installed SDK, and the guide all table rows."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, get_args, get_origin, get_type_hints

import pytest
from openai.types.responses import (
    Response,
    ResponseStreamEvent,
    ResponseTextConfig,
    response_input_content,
)
from openai.types.responses.input_token_count_params import InputTokenCountParams
from openai.types.responses.response_create_params import ResponseCreateParamsStreaming
from openai.types.responses.response_input_item_param import ResponseInputItemParam
from openai.types.responses.response_output_item import ResponseOutputItem
from openai.types.responses.tool_param import ToolParam
from pydantic import BaseModel

from proxy.dialects.field_table import FieldTable, Handling
from proxy.dialects.openai_responses.client_tools import KINDS
from proxy.dialects.openai_responses.schema import (
    FIELDS,
    ITEMS,
    TOOLS,
    ResponseRequest,
    responses_schemas,
)
from tests.unit.dialects.openai_responses.names import PARTS, SENT_EVENTS, UNSENT_EVENTS


def test_every_schema_has_a_unique_name() -> None:
    schemas = responses_schemas()
    titles = [schema["title"] for schema in (schemas.request, schemas.answer, schemas.count)]
    assert titles == ["ResponseRequest", "Response", "InputTokens"]
    parts = schemas.request["$defs"]
    assert isinstance(parts, dict)
    assert all(name.startswith("Response") for name in parts)


def test_a_response_has_the_fields_that_the_sdk_expects() -> None:
    required = responses_schemas().answer["required"]
    assert isinstance(required, list)
    assert set(required) <= set(Response.model_fields)


GUIDE = Path(__file__).parents[4] / "docs" / "guides" / "responses-api.md"


def classes_in(kind: object) -> Iterator[object]:
    """Yield the members of a union and of the unions nested in it."""
    if get_origin(kind) is Annotated:
        yield from classes_in(get_args(kind)[0])
    elif (parts := get_args(kind)) and get_origin(kind) is not None:
        for part in parts:
            yield from classes_in(part)
    else:
        yield kind


def words_in(kind: object) -> Iterator[str]:
    """Yield the values of each `Literal` in a type, at any depth."""
    if isinstance(kind, str):
        yield kind
    for part in get_args(kind):
        yield from words_in(part)


def types_in(union: object) -> set[str]:
    """Return the possible values of the field `type` in the members of a union."""
    return {
        word for union_member in classes_in(union) for word in words_in(type_member(union_member))
    }


def type_member(kind: object) -> object:
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return kind.model_fields["type"].annotation
    return get_type_hints(kind)["type"]


def test_the_table_has_every_request_field_of_the_sdk() -> None:
    fields = get_type_hints(ResponseCreateParamsStreaming).keys()
    assert fields <= FIELDS.keys()
    assert get_type_hints(InputTokenCountParams).keys() - {"personality"} <= FIELDS.keys()
    assert ResponseRequest.model_fields.keys() <= FIELDS.keys()


def test_the_table_has_every_item_type_of_the_sdk() -> None:
    assert types_in(ResponseInputItemParam) == ITEMS.keys()
    assert types_in(ResponseOutputItem) <= ITEMS.keys()


def test_the_table_has_every_tool_type_of_the_sdk() -> None:
    assert types_in(ToolParam) == TOOLS.keys()
    carried = {name for name, row in TOOLS.items() if row.handling is Handling.CARRIED}
    assert carried == KINDS | {"namespace"}


def test_the_table_has_every_content_type_of_the_sdk() -> None:
    assert types_in(response_input_content.ResponseInputContent) <= PARTS.keys()


def test_every_event_of_the_sdk_is_listed_as_sent_or_unsent() -> None:
    assert types_in(ResponseStreamEvent) == SENT_EVENTS | UNSENT_EVENTS
    assert not SENT_EVENTS & UNSENT_EVENTS


def test_the_text_options_of_the_sdk_have_a_format() -> None:
    assert "format" in ResponseTextConfig.model_fields


def test_every_refused_field_has_a_remedy() -> None:
    for table in (FIELDS, TOOLS):
        refused = [name for name, row in table.items() if row.handling is Handling.REFUSED]
        assert refused
        assert all(table.remedy(name) for name in refused)
    assert FIELDS.remedy("model") is None
    assert FIELDS.remedy("no_such_field") is None


def test_a_hosted_tool_is_dropped_but_an_unknown_tool_is_not() -> None:
    assert TOOLS.drops("web_search")
    assert not TOOLS.drops("function")
    assert not TOOLS.drops("no_such_tool")


def lines_of(table: FieldTable) -> list[str]:
    return [f"| `{name}` | {row.handling.value} | {row.note} |" for name, row in table.items()]


@pytest.mark.parametrize("table", [FIELDS, ITEMS, PARTS, TOOLS])
def test_the_guide_documents_every_row_of_the_table(table: FieldTable) -> None:
    guide = GUIDE.read_text(encoding="utf-8")
    assert "\n".join(lines_of(table)) in guide
