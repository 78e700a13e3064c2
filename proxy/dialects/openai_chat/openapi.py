"""Chat completions as JSON schemas, for the OpenAPI document; requests as `schema` checks them."""

from proxy.conversation.json import JsonObject
from proxy.dialects.front import Schemas
from proxy.dialects.openai_chat.schema import ChatCompletionRequest

REFERENCE = "#/components/schemas/{model}"
_TEXT: JsonObject = {"type": "string"}
_TEXT_OR_NULL: JsonObject = {"type": ["string", "null"]}


def chat_schemas() -> Schemas:
    """Describe a request, an answer and a count."""
    kind: JsonObject = {"const": "response.input_tokens"}
    return Schemas(
        ChatCompletionRequest.model_json_schema(ref_template=REFERENCE),
        {"title": "ChatCompletion", **_completion()},
        {"title": "InputTokens", **_object(object=kind, input_tokens={"type": "integer"})},
        {"title": "Error", **_object(error=_error())},
    )


def _completion() -> JsonObject:
    function = _object(name=_TEXT, arguments=_TEXT)
    call = _object(id=_TEXT, type={"const": "function"}, function=function)
    calls: JsonObject = {"type": "array", "items": call}
    message = _object(role={"const": "assistant"}, content=_TEXT_OR_NULL, tool_calls=calls)
    message["required"] = ["role", "content"]
    choice = _object(index={"const": 0}, message=message, finish_reason=_TEXT)
    return _object(
        id=_TEXT,
        object={"const": "chat.completion"},
        created={"type": "integer"},
        model=_TEXT,
        choices={"type": "array", "items": choice},
        usage={"type": ["object", "null"]},
    )


def _error() -> JsonObject:
    return _object(message=_TEXT, type=_TEXT, param=_TEXT_OR_NULL, code=_TEXT_OR_NULL)


def _object(**members: JsonObject) -> JsonObject:
    """Describe an object that has at least these members."""
    return {"type": "object", "properties": {**members}, "required": [*members]}
