"""Responses as JSON schemas, for the OpenAPI document; requests as `schema` checks them."""

from proxy.conversation.json import JsonObject
from proxy.dialects.front import Schemas
from proxy.dialects.json_schemas import TEXT, object_schema, request_schema
from proxy.dialects.openai_chat.openapi import count_schema, error_schema
from proxy.dialects.openai_responses.schema import ResponseRequest


def responses_schemas() -> Schemas:
    """Describe a request, an answer, a count and an error; the last two are those of the chat."""
    described = object_schema(
        id=TEXT,
        object={"const": "response"},
        created_at={"type": "integer"},
        status={"enum": ["completed", "incomplete", "failed", "in_progress"]},
        model=TEXT,
        output={"type": "array", "items": {"type": "object"}},
    )
    answer: JsonObject = {"title": "Response", **described}
    request = request_schema(ResponseRequest, "Response")
    return Schemas(request, answer, count_schema(), error_schema())
