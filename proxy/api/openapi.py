"""Documents the chat endpoint, which FastAPI does not see because it is a plain ASGI endpoint."""

from fastapi import FastAPI

from proxy.conversation.json import JsonObject
from proxy.dialects.openai_chat.schema import ChatCompletionRequest

_REFERENCE = "#/components/schemas/{model}"


def describe_chat(app: FastAPI, path: str) -> None:
    """Add the chat endpoint at `path` to the application's OpenAPI document."""
    generate = app.openapi

    def openapi() -> JsonObject:
        document: JsonObject = generate()
        paths = document.setdefault("paths", {})
        if isinstance(paths, dict) and path not in paths:
            components = document.setdefault("components", {})
            _add_chat(paths, components if isinstance(components, dict) else {}, path)
        return document

    app.openapi = openapi  # type: ignore[method-assign]


def _add_chat(paths: JsonObject, components: JsonObject, path: str) -> None:
    schema: JsonObject = ChatCompletionRequest.model_json_schema(ref_template=_REFERENCE)
    shared = schema.pop("$defs", {})
    schemas = components.setdefault("schemas", {})
    if isinstance(schemas, dict) and isinstance(shared, dict):
        schemas.update(shared)
        schemas[ChatCompletionRequest.__name__] = schema
    reference = _REFERENCE.format(model=ChatCompletionRequest.__name__)
    operation: JsonObject = {
        "summary": "Chat",
        "description": "Answer a conversation; streams server-sent events with `stream: true`.",
        "operationId": "chat_completions",
        "tags": ["chat"],
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": {"$ref": reference}}},
        },
        "responses": {
            "200": {"description": "A chat.completion, or a stream of its chunks"},
            "4XX": {"description": 'The request is at fault: `{"error": {...}}`'},
            "5XX": {"description": 'The backend is at fault: `{"error": {...}}`'},
        },
    }
    paths[path] = {"post": operation}
