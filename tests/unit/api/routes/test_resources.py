import asyncio

import pytest
from fastapi import FastAPI
from starlette.types import Receive, Scope, Send

from proxy.api.app import ServerOptions
from proxy.api.dialects import all_dialects
from proxy.api.routes.resources import models_router, responses_router, to_listed_model
from proxy.backends.client import BackendModel, Description
from proxy.conversation import json
from proxy.dialects.lenient_json import as_list
from proxy.dialects.openai_responses.store import ResponseStore, StoredResponse
from proxy.errors import InvalidRequest, UnknownModel
from proxy.serving.services import Services
from proxy.state.memory_responses import MemoryStore
from tests.fakes.asgi import HandMadeClient
from tests.fakes.backend import ScriptedBackend

ONE = {
    "id": "one",
    "object": "model",
    "created": 0,
    "owned_by": "someone",
    "capabilities": ["tools"],
}


def fetch(path: str, headers: dict[str, str] | None = None) -> json.JsonValue:
    app = FastAPI()
    app.include_router(
        models_router(ServerOptions().services_for(ScriptedBackend()), all_dialects())
    )
    client = HandMadeClient(path=path, headers=headers or {})
    asyncio.run(client.call(app))
    return json.parse(client.answer)


def test_the_paths_models_and_v1_models_return_the_same_list() -> None:
    assert fetch("/models") == fetch("/v1/models")


def test_models_are_listed_in_anthropic_format_for_anthropic_clients() -> None:
    version = {"anthropic-version": "2023-06-01"}
    listed = fetch("/v1/models", version)
    assert isinstance(listed, dict)
    assert (listed["has_more"], listed["first_id"], listed["last_id"]) == (False, "one", "one")
    document = fetch("/v1/models/one", version)
    assert isinstance(document, dict)
    assert (document["type"], document["display_name"]) == ("model", "one")


def test_the_model_list_for_codex_contains_its_format_and_the_openai_format() -> None:
    app = FastAPI()
    app.include_router(
        models_router(ServerOptions().services_for(ScriptedBackend()), all_dialects())
    )
    client = HandMadeClient(path="/v1/models")
    scope = {**client.scope, "query_string": b"client_version=0.155.1"}
    asyncio.run(app(scope, client.receive, client.send))
    listed = json.parse(client.answer)
    assert isinstance(listed, dict)
    assert listed["data"] == [ONE]
    (entry,) = as_list(listed["models"])
    assert isinstance(entry, dict)
    # the fields that Codex requires of an entry, apart from the instructions
    assert (entry["slug"], entry["display_name"], entry["context_window"]) == ("one", "one", None)
    assert entry["truncation_policy"] == {"mode": "bytes", "limit": 10_000}
    assert entry["input_modalities"] == ["text"]


@pytest.mark.parametrize(
    ("details", "window"),
    [
        ({}, None),
        ({"context_window": 4096, "max_model_len": 8192}, 4096),
        ({"owned_by": "vllm", "max_model_len": 8192}, 8192),
        ({"owned_by": "organization_owner", "max_context_length": 8192}, None),
        ({"context_length": 16384}, 16384),
        ({"context_window": True}, None),
    ],
)
def test_the_context_window_is_read_from_the_field_that_each_engine_uses(
    details: json.JsonObject, window: int | None
) -> None:
    assert to_listed_model(BackendModel("m", details)).window == window


DESCRIPTION = Description(
    ("org/m", "/secret/m.gguf"), template="{{ tools }}", slots=2, window=2048, senses=("vision",)
)


def fetch_properties(services: Services, query: bytes = b"") -> json.JsonValue:
    app = FastAPI()
    app.include_router(models_router(services, all_dialects()))
    client = HandMadeClient(path="/props")
    scope = {**client.scope, "query_string": query}
    asyncio.run(app(scope, client.receive, client.send))
    assert client.status == 200
    return json.parse(client.answer)


def test_the_path_props_shows_the_only_model_in_the_format_of_llama_server() -> None:
    assert fetch_properties(
        ServerOptions().services_for(ScriptedBackend(description=DESCRIPTION))
    ) == {
        "model_alias": "one",
        "default_generation_settings": {"n_ctx": 2048},
        "chat_template": "{{ tools }}",
        "modalities": {"vision": True, "audio": False},
        "total_slots": 2,
    }


def test_the_path_props_omits_fields_that_the_backend_does_not_report() -> None:
    document = fetch_properties(ServerOptions().services_for(ScriptedBackend()))
    assert isinstance(document, dict)
    assert document["default_generation_settings"] == {}
    assert "total_slots" not in document


def test_the_path_props_requires_a_model_name_if_there_are_several_models() -> None:
    backend = ScriptedBackend(description=DESCRIPTION)
    services = Services(
        [
            ServerOptions().service(backend, name="small", aliases=("tiny",), upstream="org/m"),
            ServerOptions().service(ScriptedBackend(), name="large"),
        ]
    )
    document = fetch_properties(services, b"model=tiny")
    assert isinstance(document, dict)
    assert document["model_alias"] == "small"
    assert backend.described == ["org/m"]
    with pytest.raises(InvalidRequest, match=r"\?model=NAME. Available: small, large"):
        fetch_properties(services)
    with pytest.raises(UnknownModel):
        fetch_properties(services, b"model=other")


INPUT = b'{"id":"msg_1","role":"user","content":"Hi"}'


def response_store() -> ResponseStore:
    store = MemoryStore(lambda: 0.0)
    store.keep("alice", StoredResponse("resp_1", [INPUT], [], b'{"id":"resp_1"}'))
    return store


def call(
    path: str,
    method: str = "GET",
    owner: str = "alice",
    store: ResponseStore | None = None,
    headers: dict[str, str] | None = None,
) -> HandMadeClient:
    app = FastAPI()
    app.include_router(responses_router(store))
    client = HandMadeClient(method=method, path=path, headers=headers or {})

    async def owned(scope: Scope, receive: Receive, send: Send) -> None:
        scope["state"]["owner"] = owner
        await app(scope, receive, send)

    asyncio.run(client.call(owned))
    return client


def test_a_stored_response_is_returned_only_to_the_key_that_created_it() -> None:
    store = response_store()
    assert call("/v1/responses/resp_1", store=store).answer == b'{"id":"resp_1"}'
    assert call("/v1/responses/resp_1", owner="bob", store=store).status == 404
    assert call("/v1/responses/resp_1").status == 404


def test_input_items_of_a_stored_response_are_listed_and_delete_removes_it() -> None:
    store = response_store()
    page = json.parse(call("/v1/responses/resp_1/input_items", store=store).answer)
    assert isinstance(page, dict)
    assert page["first_id"] == "msg_1"
    deleted = call("/v1/responses/resp_1", "DELETE", store=store)
    assert b'"deleted":true' in deleted.answer
    assert call("/v1/responses/resp_1", store=store).status == 404


@pytest.mark.parametrize(
    ("path", "method", "status", "message"),
    [
        ("/v1/responses/resp_1/cancel", "POST", 400, b"Only background responses"),
        ("/v1/responses/compact", "POST", 404, b"previous_response_id"),
        ("/v1/conversations", "POST", 404, b"previous_response_id"),
        ("/v1/responses", "GET", 405, b"Use POST"),
    ],
)
def test_the_error_for_an_unsupported_operation_names_an_alternative(
    path: str, method: str, status: int, message: bytes
) -> None:
    client = call(path, method)
    assert client.status == status
    assert message in client.answer


def test_a_websocket_probe_is_refused_with_426() -> None:
    client = call("/v1/responses", headers={"upgrade": "websocket"})
    assert (client.status, client.answer_headers["upgrade"]) == (426, "HTTP/1.1")
