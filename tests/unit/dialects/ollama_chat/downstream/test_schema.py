"""Fields of Ollama clients, compared with the OpenAPI document and the types of ollama-python.

The tests fail if a field of these types has no row in a table.
"""

import re
from collections.abc import Iterable
from pathlib import Path

import pytest
from ollama import _types as types
from pydantic import BaseModel

from proxy.dialects.field_table import FieldTable, Handling
from proxy.dialects.lenient_json import as_object
from proxy.dialects.ollama_chat.downstream.schema import (
    FIELDS,
    OPTIONS,
    OllamaChatRequest,
    OllamaGenerateRequest,
    Options,
    ollama_schemas,
)
from tests.unit.dialects.ollama_chat.downstream import names

GUIDE = Path(__file__).parents[5] / "docs" / "guides" / "ollama.md"
PARAMETERS = types.Tool.Function.Parameters

TABLES: dict[str, tuple[FieldTable, tuple[type[BaseModel], ...]]] = {
    "Fields": (FIELDS, (types.ChatRequest, types.GenerateRequest)),
    "Options": (OPTIONS, (types.Options,)),
    "Messages": (
        names.MESSAGES,
        (types.Message, types.Message.ToolCall, types.Message.ToolCall.Function),
    ),
    "Tools": (names.TOOLS, (types.Tool, types.Tool.Function, PARAMETERS, PARAMETERS.Property)),
    "Requests for vectors": (names.VECTORS, (types.EmbedRequest, types.EmbeddingsRequest)),
    "Requests about models": (
        names.MANAGEMENT,
        (
            types.PullRequest,
            types.PushRequest,
            types.CreateRequest,
            types.DeleteRequest,
            types.CopyRequest,
            types.ShowRequest,
        ),
    ),
    "Answers": (
        names.ANSWERS,
        (
            types.ChatResponse,
            types.GenerateResponse,
            types.TokenLogprob,
            types.Logprob,
            types.EmbedResponse,
            types.EmbeddingsResponse,
        ),
    ),
    "Answers about models": (
        names.MODELS,
        (
            types.ModelDetails,
            types.ListResponse,
            types.ListResponse.Model,
            types.ShowResponse,
            types.ProcessResponse,
            types.ProcessResponse.Model,
            types.StatusResponse,
            types.ProgressResponse,
        ),
    ),
}
# fields that clients send although the types of ollama-python do not have them
MORE = {"Fields": {"temper"}, "Options": {"min_p"}, "Messages": {"id", "tool_call_id"}}
NOT_SERVED = re.compile("Web|SystemOne")  # types of endpoints that Temper does not have


def fields_of(kinds: Iterable[type[BaseModel]]) -> set[str]:
    return {name for kind in kinds for name in kind.model_fields}


@pytest.mark.parametrize("title", TABLES)
def test_the_table_has_every_field_of_the_types_of_ollama_python(title: str) -> None:
    table, kinds = TABLES[title]
    known = fields_of(kinds)
    assert known - table.keys() == set()
    assert table.keys() - known == MORE.get(title, set())


def test_every_served_type_of_the_client_library_is_in_a_table() -> None:
    covered = {kind for _, kinds in TABLES.values() for kind in kinds}
    bases = {parent for kind in covered for parent in kind.__mro__}
    all_types = {
        type_
        for type_ in vars(types).values()
        if isinstance(type_, type)
        and issubclass(type_, BaseModel)
        and type_.__module__ == types.__name__
    }
    served = {type_ for type_ in all_types if not NOT_SERVED.match(type_.__name__)}
    assert served - covered - bases == {types.Image}  # sent as a base64 string


def test_the_table_has_every_option_of_the_schema() -> None:
    assert Options.model_fields.keys() <= OPTIONS.keys()
    carried = {name for name, row in OPTIONS.items() if row.handling is Handling.CARRIED}
    assert carried == Options.model_fields.keys()


@pytest.mark.parametrize(("title", "table"), [(title, row[0]) for title, row in TABLES.items()])
def test_the_guide_documents_every_row_of_the_table(title: str, table: FieldTable) -> None:
    section = GUIDE.read_text(encoding="utf-8").split(f"\n### {title}\n")[1].split("\n##")[0]
    handlings = {
        name: handling
        for listed, handling in re.findall(r"^\| (`[^|]+`) \| (\w+) \|", section, re.MULTILINE)
        for name in re.findall(r"`([^`]+)`", listed)
    }
    assert handlings == {name: row.handling.value for name, row in table.items()}


def test_every_refused_field_has_a_remedy() -> None:
    refused = [name for name, row in FIELDS.items() if row.handling is Handling.REFUSED]
    assert refused
    assert all(FIELDS.remedy(name) for name in refused)


@pytest.mark.parametrize(
    ("kind", "answer"),
    [(OllamaChatRequest, types.ChatResponse), (OllamaGenerateRequest, types.GenerateResponse)],
)
def test_the_schemas_of_chat_and_generate_requests_have_titles(
    kind: type[OllamaChatRequest] | type[OllamaGenerateRequest], answer: type[types.ChatResponse]
) -> None:
    schemas = ollama_schemas(kind)
    assert schemas.request["title"] == kind.__name__
    assert schemas.answer["title"] == f"Ollama{answer.__name__}"
    assert as_object(schemas.answer["properties"]).keys() <= answer.model_fields.keys()
    assert "OllamaOptions" in as_object(schemas.request["$defs"])
