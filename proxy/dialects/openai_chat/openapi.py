"""Chat completions as JSON schemas, for the OpenAPI document; requests as `schema` checks them."""

from proxy.conversation.json import JsonObject
from proxy.dialects.front import Schemas
from proxy.dialects.json_schemas import TEXT, object_schema, request_schema
from proxy.dialects.openai_chat.schema import ChatCompletionRequest

_TEXT_OR_NULL: JsonObject = {"type": ["string", "null"]}


def chat_schemas() -> Schemas:
    """Describe a request, an answer, a count and an error."""
    answer = {"title": "ChatCompletion", **_completion()}
    return Schemas(request_schema(ChatCompletionRequest), answer, count_schema(), error_schema())


def count_schema() -> JsonObject:
    """Describe a count of tokens, in all of OpenAI's languages."""
    kind: JsonObject = {"const": "response.input_tokens"}
    return {"title": "InputTokens", **object_schema(object=kind, input_tokens={"type": "integer"})}


def error_schema() -> JsonObject:
    """Describe an error, in all of OpenAI's languages."""
    error = object_schema(message=TEXT, type=TEXT, param=_TEXT_OR_NULL, code=_TEXT_OR_NULL)
    return {"title": "Error", **object_schema(error=error)}


def _completion() -> JsonObject:
    function = object_schema(name=TEXT, arguments=TEXT)
    call = object_schema(id=TEXT, type={"const": "function"}, function=function)
    calls: JsonObject = {"type": "array", "items": call}
    message = object_schema(role={"const": "assistant"}, content=_TEXT_OR_NULL, tool_calls=calls)
    message["required"] = ["role", "content"]
    choice = object_schema(index={"const": 0}, message=message, finish_reason=TEXT)
    return object_schema(
        id=TEXT,
        object={"const": "chat.completion"},
        created={"type": "integer"},
        model=TEXT,
        choices={"type": "array", "items": choice},
        usage={"type": ["object", "null"]},
    )
