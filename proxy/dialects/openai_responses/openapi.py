"""Responses as JSON schemas, for the OpenAPI document; requests as `schema` checks them."""

from proxy.conversation.json import JsonObject
from proxy.dialects.front import Schemas
from proxy.dialects.openai_chat.openapi import chat_schemas
from proxy.dialects.openai_responses.schema import ResponseRequest

# other languages have parts of the same names
_REFERENCE = "#/components/schemas/Response{model}"
_TEXT: JsonObject = {"type": "string"}


def responses_schemas() -> Schemas:
    """Describe a request, an answer, a count and an error; the last two are those of the chat."""
    described = ResponseRequest.model_json_schema(ref_template=_REFERENCE)
    parts = {f"Response{name}": part for name, part in described["$defs"].items()}
    request: JsonObject = {**described, "$defs": parts}
    members: dict[str, JsonObject] = {
        "id": _TEXT,
        "object": {"const": "response"},
        "created_at": {"type": "integer"},
        "status": {"enum": ["completed", "incomplete", "failed", "in_progress"]},
        "model": _TEXT,
        "output": {"type": "array", "items": {"type": "object"}},
    }
    answer: JsonObject = {
        "title": "Response",
        "type": "object",
        "properties": {**members},
        "required": [*members],
    }
    chat = chat_schemas()
    return Schemas(request, answer, chat.count, chat.error)
