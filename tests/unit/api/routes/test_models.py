import asyncio

import pytest
from fastapi import FastAPI

from proxy.api.app import ServerOptions
from proxy.api.routes.models import models_router
from proxy.conversation import json
from proxy.errors import UnknownModel
from tests.fakes.asgi import HandMadeClient
from tests.fakes.backend import ScriptedBackend

ONE = {
    "id": "one",
    "object": "model",
    "created": 0,
    "owned_by": "someone",
    "capabilities": ["tools"],
}


def fetch(path: str) -> json.JsonValue:
    app = FastAPI()
    app.include_router(models_router(ServerOptions().alone(ScriptedBackend())))
    client = HandMadeClient(path=path)
    asyncio.run(client.call(app))
    return json.parse(client.answer)


def test_models_are_listed_in_openais_shape() -> None:
    assert fetch("/v1/models") == {"object": "list", "data": [ONE]}


def test_one_model_is_shown() -> None:
    assert fetch("/v1/models/one") == ONE


def test_an_unknown_model_is_an_error_that_lists_the_known_ones() -> None:
    with pytest.raises(UnknownModel) as raised:
        fetch("/v1/models/some/other")
    assert (raised.value.model, raised.value.known) == ("some/other", ("one",))
