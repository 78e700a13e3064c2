from collections.abc import Iterator
from typing import cast

import pytest
from fastapi import FastAPI, Request
from starlette.responses import JSONResponse

from proxy.api.dialects import CHAT, DialectRoute, Dialects
from proxy.api.openapi import describe_posts, query_parameters
from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue


@pytest.fixture
def document() -> JsonObject:
    app = FastAPI()
    app.add_api_route("/thing/{name}", show, openapi_extra=query_parameters("limit"))
    dialects = Dialects(DialectRoute(lambda: CHAT, ("/chat", "/old/chat"), "/count"))
    describe_posts(app, dialects, ["/v1/embeddings"])
    first = app.openapi()
    assert app.openapi() == first
    return first


async def show(request: Request) -> JSONResponse:
    return JSONResponse(request.path_params)


def member_of(document: JsonValue, *path: str) -> JsonValue:
    for name in path:
        document = cast("JsonObject", document)[name]
    return document


def references(value: JsonValue) -> Iterator[str]:
    match value:
        case dict():
            yield from (str(item) for name, item in value.items() if name == "$ref")
            for member in value.values():
                yield from references(member)
        case list():
            for item in value:
                yield from references(item)
        case _:
            pass


@pytest.mark.parametrize("path", ["/chat", "/old/chat", "/count"])
def test_a_chat_path_is_documented_with_its_request_schema_and_headers(
    document: JsonObject, path: str
) -> None:
    operation = member_of(document, "paths", path, "post")
    schema = member_of(operation, "requestBody", "content", "application/json", "schema")
    assert schema == {"$ref": "#/components/schemas/ChatCompletionRequest"}
    parameters = cast("list[JsonObject]", member_of(operation, "parameters"))
    assert {parameter["name"] for parameter in parameters} == {
        *("x-temper-text-policy", "x-temper-guardrails", "x-temper-compaction"),
        "x-temper-priority",
    }


def test_every_operation_has_an_id_and_the_same_error_body(document: JsonObject) -> None:
    paths = cast("dict[str, dict[str, JsonObject]]", document["paths"])
    operations = [operation for path in paths.values() for operation in path.values()]
    assert len(operations) == len({operation["operationId"] for operation in operations}) == 5
    for entry in operations:
        responses = cast("JsonObject", entry["responses"])
        assert responses["default"] == {"$ref": "#/components/responses/Error"}
        assert "422" not in responses


def test_every_reference_resolves_and_no_validation_schema_of_fastapi_remains(
    document: JsonObject,
) -> None:
    for reference in references(document):
        assert isinstance(member_of(document, *reference.removeprefix("#/").split("/")), dict)
    assert b"HTTPValidationError" not in json.dump(document)


def test_parameters_of_path_and_query_are_documented(document: JsonObject) -> None:
    parameters = cast(
        "list[JsonObject]", member_of(document, "paths", "/thing/{name}", "get", "parameters")
    )
    assert {(parameter["name"], parameter["in"]) for parameter in parameters} == {
        ("name", "path"),
        ("limit", "query"),
    }


def test_forwarded_routes_are_documented(document: JsonObject) -> None:
    operation = member_of(document, "paths", "/v1/embeddings", "post")
    assert member_of(operation, "summary") == "Embeddings"
    assert "without guardrails" in str(member_of(operation, "description"))


def test_requirements_of_custom_validators_are_documented(document: JsonObject) -> None:
    schemas = member_of(document, "components", "schemas")
    request = member_of(schemas, "ChatCompletionRequest", "properties")
    null: JsonObject = {"type": "null"}
    assert member_of(request, "n", "anyOf") == [{"const": 1}, null]
    assert member_of(request, "functions", "anyOf") == [{"type": "array", "maxItems": 0}, null]
    assert member_of(request, "max_tokens", "anyOf") == [{"type": "integer", "minimum": 0}, null]
    assert member_of(schemas, "InlineUrl", "properties", "url", "pattern") == "^[Dd][Aa][Tt][Aa]:"
