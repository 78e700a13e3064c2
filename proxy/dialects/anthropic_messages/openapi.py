"""Messages as JSON schemas, for the OpenAPI document; requests as `schema` checks them."""

from proxy.conversation.json import JsonObject
from proxy.dialects.anthropic_messages.schema import MessagesRequest
from proxy.dialects.front import Schemas

# other languages have parts of the same names
_REFERENCE = "#/components/schemas/Messages{model}"
_TEXT: JsonObject = {"type": "string"}


def messages_schemas() -> Schemas:
    """Describe a request, an answer and a count."""
    described = MessagesRequest.model_json_schema(ref_template=_REFERENCE)
    parts = {f"Messages{name}": part for name, part in described["$defs"].items()}
    request: JsonObject = {**described, "$defs": parts}
    error = _object("MessagesErrorDetails", type=_TEXT, message=_TEXT)
    return Schemas(
        request,
        _object(
            "Message",
            id=_TEXT,
            type={"const": "message"},
            role={"const": "assistant"},
            model=_TEXT,
            content={"type": "array", "items": {"type": "object"}},
            stop_reason=_TEXT,
            usage={"type": "object"},
        ),
        _object("MessagesCount", input_tokens={"type": "integer"}),
        _object("MessagesError", type={"const": "error"}, error=error, request_id=_TEXT),
    )


def _object(title: str, **members: JsonObject) -> JsonObject:
    """Describe an object that has at least these members."""
    return {"title": title, "type": "object", "properties": {**members}, "required": [*members]}
