"""The OpenAPI document: the endpoints that FastAPI does not see, and what failures look like.

Those that answer in a front end's language and those that pass on are plain ASGI.
"""

from collections.abc import Iterable
from enum import Enum

from fastapi import FastAPI

from proxy.api.fronts import FrontRoute, Fronts
from proxy.conversation.json import JsonObject, JsonValue
from proxy.dialects.front import Schemas
from proxy.guardrails.offer import Mode, TextPolicy
from proxy.serving.context_fitting import FittingMode

_REFERENCE = "#/components/schemas/{model}"
_INVALID_PARAMETER = "422"  # FastAPI's guess: no route of ours has a parameter that can be invalid
_FRAMEWORKS_ERRORS = ("HTTPValidationError", "ValidationError")

_TEXT: JsonObject = {"type": "string"}
_TEXT_OR_NULL: JsonObject = {"type": ["string", "null"]}
_ERROR = "The request (4xx) or the backend (5xx) is at fault; `param` names a field"


def describe_posts(app: FastAPI, fronts: Fronts, passed_on: Iterable[str]) -> None:
    """Add these endpoints, and the errors of all, to the application's OpenAPI document.

    What is sent and answered at the paths of a front end is as the front end describes it.
    """
    generate = app.openapi

    def openapi() -> JsonObject:
        is_new = app.openapi_schema is None
        document: JsonObject = generate()
        if is_new:
            paths = _member(document, "paths")
            components = _member(document, "components")
            described = {route.front.name: route.front.schemas() for route in fronts}
            for route in fronts:
                schemas = described[route.front.name]
                paths |= _front_paths(route, schemas)
                _member(components, "schemas").update(_definitions(schemas))
                failure: JsonObject = {
                    "description": _ERROR,
                    "content": _json(_title(schemas.error)),
                }
                _member(components, "responses")[_title(schemas.error)] = failure
            paths |= {path: {"post": _describe_passthrough(path)} for path in passed_on}
            for path in paths:
                error = described[fronts.of(path).name].error
                _describe_failures(_member(paths, path), _title(error))
            for name in _FRAMEWORKS_ERRORS:
                _member(components, "schemas").pop(name, None)
        return document

    app.openapi = openapi  # type: ignore[method-assign]


def _member(document: JsonObject, name: str) -> JsonObject:
    """Return a member that is an object, and is made if there is none."""
    member = document.setdefault(name, {})
    return member if isinstance(member, dict) else {}


def _describe_failures(operations: JsonObject, error: str) -> None:
    for method in operations:
        responses = _member(_member(operations, method), "responses")
        responses.pop(_INVALID_PARAMETER, None)
        responses["default"] = {"$ref": f"#/components/responses/{error}"}


def _definitions(schemas: Schemas) -> JsonObject:
    """Return a language's schemas by name, with those that they refer to."""
    found: JsonObject = {}
    for schema in (schemas.request, schemas.answer, schemas.count, schemas.error):
        found |= _member(dict(schema), "$defs")
        found[_title(schema)] = {name: part for name, part in schema.items() if name != "$defs"}
    return found


def _title(schema: JsonObject) -> str:
    return str(schema["title"])


def _front_paths(route: FrontRoute, schemas: Schemas) -> JsonObject:
    """Describe the paths of one language."""
    name = route.front.name
    paths: JsonObject = {
        path: {"post": _answering(f"{name}_{number}" if number else name, name, schemas)}
        for number, path in enumerate(route.paths)
    }
    if route.count_path:
        paths[route.count_path] = {"post": _counting(name, schemas)}
    return paths


def _json(schema: str) -> JsonObject:
    return {"application/json": {"schema": {"$ref": _REFERENCE.format(model=schema)}}}


def _answering(operation: str, tag: str, schemas: Schemas) -> JsonObject:
    stream: JsonObject = {"text/event-stream": {"schema": _TEXT}}
    return {
        "summary": tag.capitalize(),
        "description": "Answer a conversation; streams server-sent events with `stream: true`.",
        "operationId": operation,
        **_asking(tag, schemas),
        "responses": {
            "200": {
                "description": "The answer, or a stream of its events",
                "content": {**_json(_title(schemas.answer)), **stream},
            }
        },
    }


def _counting(tag: str, schemas: Schemas) -> JsonObject:
    return {
        "summary": "Count",
        "description": "Count the tokens of a conversation as it would be sent to the model.",
        "operationId": f"count_{tag}",
        **_asking(tag, schemas),
        "responses": {
            "200": {"description": "The number of tokens", "content": _json(_title(schemas.count))}
        },
    }


def _describe_passthrough(path: str) -> JsonObject:
    name = path.rpartition("/")[2]
    anything: JsonObject = {"application/json": {"schema": {"type": "object"}}}
    model: JsonObject = {"type": "object", "properties": {"model": _TEXT_OR_NULL}}
    stream: JsonObject = {"text/event-stream": {"schema": _TEXT}}
    return {
        "summary": name.capitalize(),
        "description": "Passed on to the backend of the model without guardrails.",
        "operationId": name,
        "tags": ["passed on"],
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": model}},
        },
        "responses": {
            "200": {"description": "What the backend answers", "content": {**anything, **stream}}
        },
    }


def _asking(tag: str, schemas: Schemas) -> JsonObject:
    """Describe what a conversation is sent with."""
    return {
        "tags": [tag],
        "parameters": [
            _header("x-temper-text-policy", TextPolicy, "What prose is worth beside tools"),
            _header("x-temper-guardrails", Mode, "How much the guardrails may do"),
            _header("x-temper-compaction", FittingMode, "Whether a long conversation is cut"),
        ],
        "requestBody": {"required": True, "content": _json(_title(schemas.request))},
    }


def _header(name: str, choices: type[Enum], description: str) -> JsonValue:
    schema: JsonObject = {"type": "string", "enum": [str(one.value) for one in choices]}
    return {"name": name, "in": "header", "description": description, "schema": schema}
