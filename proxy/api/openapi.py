"""Documents what FastAPI does not see: the chat and what is passed on are plain ASGI endpoints."""

from collections.abc import Iterable

from fastapi import FastAPI

from proxy.conversation.json import JsonObject
from proxy.dialects.openai_chat.schema import ChatCompletionRequest

_REFERENCE = "#/components/schemas/{model}"


def describe_posts(app: FastAPI, chat: str, passed_on: Iterable[str] = ()) -> None:
    """Add the chat endpoint and those that are passed on to the application's OpenAPI document."""
    generate = app.openapi

    def openapi() -> JsonObject:
        document: JsonObject = generate()
        paths = document.setdefault("paths", {})
        if isinstance(paths, dict) and chat not in paths:
            components = document.setdefault("components", {})
            _add_chat(paths, components if isinstance(components, dict) else {}, chat)
            paths |= {path: {"post": _passed_on(path)} for path in passed_on}
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
        **_exchange({"$ref": reference}, "A chat.completion, or a stream of its chunks"),
    }
    paths[path] = {"post": operation}


def _passed_on(path: str) -> JsonObject:
    name = path.rpartition("/")[2]
    return {
        "summary": name.capitalize(),
        "description": "Passed on to the backend of the model without guardrails.",
        "operationId": name,
        "tags": ["passed on"],
        **_exchange({"type": "object"}, "What the backend answers"),
    }


def _exchange(schema: JsonObject, answer: str) -> JsonObject:
    content: JsonObject = {"application/json": {"schema": schema}}
    return {
        "requestBody": {"required": True, "content": content},
        "responses": {
            "200": {"description": answer},
            "4XX": {"description": 'The request is at fault: `{"error": {...}}`'},
            "5XX": {"description": 'The backend is at fault: `{"error": {...}}`'},
        },
    }
