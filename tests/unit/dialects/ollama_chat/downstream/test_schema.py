"""What Ollama's clients send, held against what the OpenAPI document says of it."""

import pytest
from ollama import _types as types

from proxy.dialects.lenient_json import as_object
from proxy.dialects.ollama_chat.downstream.schema import (
    OllamaChatRequest,
    OllamaGenerateRequest,
    ollama_schemas,
)


@pytest.mark.parametrize(
    ("kind", "answer"),
    [(OllamaChatRequest, types.ChatResponse), (OllamaGenerateRequest, types.GenerateResponse)],
)
def test_both_kinds_of_requests_are_described(
    kind: type[OllamaChatRequest] | type[OllamaGenerateRequest], answer: type[types.ChatResponse]
) -> None:
    schemas = ollama_schemas(kind)
    assert schemas.request["title"] == kind.__name__
    assert schemas.answer["title"] == f"Ollama{answer.__name__}"
    assert as_object(schemas.answer["properties"]).keys() <= answer.model_fields.keys()
    assert "OllamaOptions" in as_object(schemas.request["$defs"])
