"""Messages as JSON schemas, for the OpenAPI document; requests as `schema` checks them."""

from proxy.conversation.json import JsonObject
from proxy.dialects.anthropic_messages.schema import MessagesRequest
from proxy.dialects.front import Schemas
from proxy.dialects.json_schemas import TEXT, object_schema, request_schema


def messages_schemas() -> Schemas:
    """Describe a request, an answer, a count and an error."""
    error = _object("MessagesErrorDetails", type=TEXT, message=TEXT)
    return Schemas(
        request_schema(MessagesRequest, "Messages"),
        _object(
            "Message",
            id=TEXT,
            type={"const": "message"},
            role={"const": "assistant"},
            model=TEXT,
            content={"type": "array", "items": {"type": "object"}},
            stop_reason=TEXT,
            usage={"type": "object"},
        ),
        _object("MessagesCount", input_tokens={"type": "integer"}),
        _object("MessagesError", type={"const": "error"}, error=error, request_id=TEXT),
    )


def _object(title: str, **members: JsonObject) -> JsonObject:
    """Describe an object by its name and the members that it has at least."""
    return {"title": title, **object_schema(**members)}
