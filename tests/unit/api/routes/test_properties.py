import asyncio

import pytest
from fastapi import FastAPI

from proxy.api.app import ServerOptions
from proxy.api.routes.properties import properties_router
from proxy.backends.client import Description
from proxy.conversation import json
from proxy.errors import InvalidRequest, UnknownModel
from proxy.serving.services import Services
from tests.fakes.asgi import HandMadeClient
from tests.fakes.backend import ScriptedBackend

TOLD = Description(
    ("org/m", "/secret/m.gguf"), template="{{ tools }}", slots=2, window=2048, senses=("vision",)
)


def fetch(services: Services, query: bytes = b"") -> json.JsonValue:
    app = FastAPI()
    app.include_router(properties_router(services))
    client = HandMadeClient(path="/props")
    scope = {**client.scope, "query_string": query}
    asyncio.run(app(scope, client.receive, client.send))
    assert client.status == 200
    return json.parse(client.answer)


def test_the_only_model_is_shown_in_llama_servers_shape() -> None:
    assert fetch(ServerOptions().alone(ScriptedBackend(description=TOLD))) == {
        "model_alias": "one",
        "default_generation_settings": {"n_ctx": 2048},
        "chat_template": "{{ tools }}",
        "modalities": {"vision": True, "audio": False},
        "total_slots": 2,
    }


def test_what_nobody_knows_is_left_out() -> None:
    shown = fetch(ServerOptions().alone(ScriptedBackend()))
    assert isinstance(shown, dict)
    assert shown["default_generation_settings"] == {}
    assert "total_slots" not in shown


def test_one_of_several_models_is_shown_by_any_of_its_names() -> None:
    backend = ScriptedBackend(description=TOLD)
    services = Services(
        [
            ServerOptions().service(backend, name="small", aliases=("tiny",), upstream="org/m"),
            ServerOptions().service(ScriptedBackend(), name="large"),
        ]
    )
    shown = fetch(services, b"model=tiny")
    assert isinstance(shown, dict)
    assert shown["model_alias"] == "small"
    assert backend.described == ["org/m"]
    with pytest.raises(InvalidRequest, match=r"\?model=NAME. Available: small, large"):
        fetch(services)
    with pytest.raises(UnknownModel):
        fetch(services, b"model=other")
