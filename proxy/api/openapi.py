"""The OpenAPI document: the endpoints that FastAPI does not see, and the error responses.

The endpoints of the dialects and the passthrough endpoints are plain ASGI, see `edge`. Schemathesis
tests the server with this document.
"""

import re
from collections.abc import Iterable
from enum import Enum

from fastapi import FastAPI

from proxy.api.dialects import DialectRoute, Dialects
from proxy.conversation.json import JsonObject, JsonValue
from proxy.dialects.dialect import Schemas
from proxy.dialects.lenient_json import as_object
from proxy.guardrails.offer import Mode, TextPolicy
from proxy.serving.admission import Priority
from proxy.serving.context_fitting import FittingMode

_REFERENCE = "#/components/schemas/{model}"
_PARAMETER_OF_PATH = re.compile(r"\{(\w+)\}")

_TEXT: JsonObject = {"type": "string"}
_TEXT_OR_NULL: JsonObject = {"type": ["string", "null"]}
_STREAM: JsonObject = {"text/event-stream": {"schema": _TEXT}}
_ANSWERING = (
    "Generate a response to a conversation; streams server-sent events with `stream: true`."
)
_COUNTING = "Count the tokens of a conversation as it would be sent to the model."
_PASSING_ON = "Passed through to the backend of the model without guardrails."
_ERROR = "The request is invalid (4xx) or the server failed (5xx); `param` names the invalid field"


def describe_posts(app: FastAPI, dialects: Dialects, passthrough_paths: Iterable[str]) -> None:
    """Add the POST endpoints, and all errors, to the application's OpenAPI document.

    The dialects describe requests and responses at their paths.
    """
    generate = app.openapi

    def openapi() -> JsonObject:
        # FastAPI creates the document in the first call, and returns the same object in later
        # calls. So this function must complete the document only in the first call.
        is_new = app.openapi_schema is None
        document: JsonObject = generate()
        if is_new:
            paths = _member(document, "paths")
            components = _member(document, "components")
            described: set[str] = set()
            for route in dialects:
                schemas = route.dialect.schemas()
                paths |= _dialect_paths(
                    route, schemas, is_first=route.dialect.name not in described
                )
                described.add(route.dialect.name)
                _member(components, "schemas").update(_definitions(schemas))
                failure = _title(schemas.error)
                response: JsonObject = {"description": _ERROR, "content": _json(failure)}
                _member(components, "responses")[failure] = response
            paths |= {path: _describe_passthrough(path) for path in passthrough_paths}
            for path in paths:
                error = dialects.of(path).schemas().error
                _complete(path, _member(paths, path), _title(error))
        return document

    app.openapi = openapi  # type: ignore[method-assign]


def _member(document: JsonObject, name: str) -> JsonObject:
    """Return a member that is an object; creates it if it is missing."""
    return as_object(document.setdefault(name, {}))


def query_parameters(*names: str) -> dict[str, object]:
    """Describe the query parameters of an endpoint, for `openapi_extra`.

    FastAPI would describe the parameters of a function's signature. But each such parameter costs
    as much start time as two endpoints, and the first parameter imports all of pydantic v1.
    """
    return {"parameters": [{"name": name, "in": "query", "schema": _TEXT} for name in names]}


def _complete(path: str, operations: JsonObject, error: str) -> None:
    """Add the parameters of a path and its error response to each operation of the path."""
    parameters: list[JsonValue] = [
        {"name": name, "in": "path", "required": True, "schema": _TEXT}
        for name in _PARAMETER_OF_PATH.findall(path)
    ]
    for method in operations:
        operation = _member(operations, method)
        _member(operation, "responses")["default"] = {"$ref": f"#/components/responses/{error}"}
        if parameters:
            declared = operation.get("parameters")
            if not isinstance(declared, list):
                declared = []
            operation["parameters"] = [*parameters, *declared]


def _definitions(schemas: Schemas) -> JsonObject:
    """Return the schemas of a dialect by name, with their `$defs`."""
    definitions: JsonObject = {}
    for schema in (schemas.request, schemas.answer, schemas.count, schemas.error):
        definitions |= _member(dict(schema), "$defs")
        definitions[_title(schema)] = {
            name: part for name, part in schema.items() if name != "$defs"
        }
    return definitions


def _title(schema: JsonObject) -> str:
    return str(schema["title"])


def _dialect_paths(route: DialectRoute, schemas: Schemas, *, is_first: bool) -> JsonObject:
    # Operation ids must be unique. The first path of a dialect has the dialect's name, and its
    # other paths add a number. If a dialect has a second route, the first path of that route adds
    # its last segment (`ollama_chat`).
    name, request = route.dialect.name, _json(_title(schemas.request))
    stream: JsonObject = {route.dialect.stream_type.partition(";")[0]: {"schema": _TEXT}}
    answer: JsonObject = {**_json(_title(schemas.answer)), **stream}
    paths: JsonObject = {
        path: _post(
            f"{name}_{number or path.rpartition('/')[2]}" if number or not is_first else name,
            name,
            (name.capitalize(), _ANSWERING, "The response, or a stream of its events"),
            request=request,
            answer=answer,
        )
        for number, path in enumerate(route.paths)
    }
    if route.count_path:
        texts = ("Count", _COUNTING, "The number of tokens")
        count = _json(_title(schemas.count))
        paths[route.count_path] = _post(f"count_{name}", name, texts, request=request, answer=count)
    for path in paths:
        _member(_member(paths, path), "post")["parameters"] = [
            _header("x-temper-text-policy", TextPolicy, "How to treat replies without a tool call"),
            _header("x-temper-guardrails", Mode, "The mode of the guardrails"),
            _header("x-temper-compaction", FittingMode, "The handling of long conversations"),
            _header("x-temper-priority", Priority, "The priority in the queue"),
        ]
    return paths


def _describe_passthrough(path: str) -> JsonObject:
    name = path.rpartition("/")[2]
    anything: JsonObject = {"application/json": {"schema": {"type": "object"}}, **_STREAM}
    model: JsonObject = {"type": "object", "properties": {"model": _TEXT_OR_NULL}}
    texts = (name.capitalize(), _PASSING_ON, "The response of the backend")
    request: JsonObject = {"application/json": {"schema": model}}
    return _post(name, "passed on", texts, request=request, answer=anything)


def _post(
    operation: str,
    tag: str,
    texts: tuple[str, str, str],
    *,
    request: JsonObject,
    answer: JsonObject,
) -> JsonObject:
    """Describe a path by `texts`: title, description, and description of the response."""
    summary, description, result = texts
    return {
        "post": {
            "summary": summary,
            "description": description,
            "operationId": operation,
            "tags": [tag],
            "requestBody": {"required": True, "content": request},
            "responses": {"200": {"description": result, "content": answer}},
        }
    }


def _json(schema: str) -> JsonObject:
    return {"application/json": {"schema": {"$ref": _REFERENCE.format(model=schema)}}}


def _header(name: str, choices: type[Enum], description: str) -> JsonValue:
    schema: JsonObject = {"type": "string", "enum": [str(choice.value) for choice in choices]}
    return {"name": name, "in": "header", "description": description, "schema": schema}
