"""The OpenAPI document: the endpoints that FastAPI does not see, and what failures look like.

The chat and what is passed on are plain ASGI; what a chat takes is what
`dialects.openai_chat.schema` checks.
"""

from collections.abc import Iterable, Sequence
from enum import Enum

from fastapi import FastAPI

from proxy.conversation.json import JsonObject, JsonValue
from proxy.dialects.openai_chat.schema import ChatCompletionRequest
from proxy.guardrails.offer import Mode, TextPolicy
from proxy.serving.context_fitting import FittingMode

_REFERENCE = "#/components/schemas/{model}"
_ERROR = "Error"
_FAILURE: JsonObject = {"$ref": f"#/components/responses/{_ERROR}"}
_INVALID_PARAMETER = "422"  # FastAPI's guess: no route of ours has a parameter that can be invalid
_FRAMEWORKS_ERRORS = ("HTTPValidationError", "ValidationError")

_TEXT: JsonObject = {"type": "string"}
_TEXT_OR_NULL: JsonObject = {"type": ["string", "null"]}


def describe_posts(
    app: FastAPI, chats: Sequence[str], counts: str, passed_on: Iterable[str]
) -> None:
    """Add these endpoints, and the errors of all, to the application's OpenAPI document.

    `chats` are the paths of the chat, `counts` is the one that only counts its tokens.
    """
    generate = app.openapi

    def openapi() -> JsonObject:
        is_new = app.openapi_schema is None
        document: JsonObject = generate()
        if is_new:
            paths = _member(document, "paths")
            paths |= {path: {"post": _chat(number)} for number, path in enumerate(chats)}
            paths[counts] = {"post": _count()}
            paths |= {path: {"post": _passed_on(path)} for path in passed_on}
            for path in paths:
                _describe_failures(_member(paths, path))
            _add_components(_member(document, "components"))
        return document

    app.openapi = openapi  # type: ignore[method-assign]


def _member(document: JsonObject, name: str) -> JsonObject:
    """Return a member that is an object, and is made if there is none."""
    member = document.setdefault(name, {})
    return member if isinstance(member, dict) else {}


def _describe_failures(operations: JsonObject) -> None:
    for method in operations:
        responses = _member(_member(operations, method), "responses")
        responses.pop(_INVALID_PARAMETER, None)
        responses["default"] = _FAILURE


def _add_components(components: JsonObject) -> None:
    request: JsonObject = ChatCompletionRequest.model_json_schema(ref_template=_REFERENCE)
    schemas = _member(components, "schemas")
    for name in _FRAMEWORKS_ERRORS:
        schemas.pop(name, None)
    schemas |= _member(request, "$defs")
    del request["$defs"]
    schemas |= {
        ChatCompletionRequest.__name__: request,
        "ChatCompletion": _completion(),
        "InputTokens": _object(
            object={"const": "response.input_tokens"}, input_tokens={"type": "integer"}
        ),
        _ERROR: _object(
            error=_object(message=_TEXT, type=_TEXT, param=_TEXT_OR_NULL, code=_TEXT_OR_NULL)
        ),
    }
    _member(components, "responses")[_ERROR] = {
        "description": "The request (4xx) or the backend (5xx) is at fault; `param` names a field",
        "content": _json(_ERROR),
    }


def _completion() -> JsonObject:
    function = _object(name=_TEXT, arguments=_TEXT)
    call = _object(id=_TEXT, type={"const": "function"}, function=function)
    message = _object(role={"const": "assistant"}, content=_TEXT_OR_NULL)
    _member(message, "properties")["tool_calls"] = {"type": "array", "items": call}
    choice = _object(index={"const": 0}, message=message, finish_reason=_TEXT)
    return _object(
        id=_TEXT,
        object={"const": "chat.completion"},
        created={"type": "integer"},
        model=_TEXT,
        choices={"type": "array", "items": choice},
        usage={"type": ["object", "null"]},
    )


def _object(**members: JsonObject) -> JsonObject:
    """Describe an object that has at least these members."""
    return {"type": "object", "properties": {**members}, "required": [*members]}


def _json(schema: str) -> JsonObject:
    return {"application/json": {"schema": {"$ref": _REFERENCE.format(model=schema)}}}


def _chat(number: int) -> JsonObject:
    stream: JsonObject = {"text/event-stream": {"schema": _TEXT}}
    return {
        "summary": "Chat",
        "description": "Answer a conversation; streams server-sent events with `stream: true`.",
        "operationId": f"chat_completions_{number}" if number else "chat_completions",
        **_asking(),
        "responses": {
            "200": {
                "description": "The answer, or a stream of its chunks",
                "content": {**_json("ChatCompletion"), **stream},
            }
        },
    }


def _count() -> JsonObject:
    return {
        "summary": "Count",
        "description": "Count the tokens of a conversation as it would be sent to the model.",
        "operationId": "count_input_tokens",
        **_asking(),
        "responses": {
            "200": {"description": "The number of tokens", "content": _json("InputTokens")}
        },
    }


def _passed_on(path: str) -> JsonObject:
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


def _asking() -> JsonObject:
    """Describe what a conversation is sent with."""
    return {
        "tags": ["chat"],
        "parameters": [
            _header("x-temper-text-policy", TextPolicy, "What prose is worth beside tools"),
            _header("x-temper-guardrails", Mode, "How much the guardrails may do"),
            _header("x-temper-compaction", FittingMode, "Whether a long conversation is cut"),
        ],
        "requestBody": {"required": True, "content": _json(ChatCompletionRequest.__name__)},
    }


def _header(name: str, choices: type[Enum], description: str) -> JsonValue:
    schema: JsonObject = {"type": "string", "enum": [str(one.value) for one in choices]}
    return {"name": name, "in": "header", "description": description, "schema": schema}
