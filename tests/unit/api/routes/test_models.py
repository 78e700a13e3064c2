import asyncio

import pytest
from fastapi import FastAPI

from proxy.api.app import ServerOptions
from proxy.api.fronts import all_fronts
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


def fetch(path: str, headers: dict[str, str] | None = None) -> json.JsonValue:
    app = FastAPI()
    app.include_router(models_router(ServerOptions().alone(ScriptedBackend()), all_fronts()))
    client = HandMadeClient(path=path, headers=headers or {})
    asyncio.run(client.call(app))
    return json.parse(client.answer)


def test_models_are_listed_in_openais_shape() -> None:
    assert fetch("/v1/models") == {"object": "list", "data": [ONE]}


def test_one_model_is_shown() -> None:
    assert fetch("/v1/models/one") == ONE


def test_the_path_without_a_version_is_the_same() -> None:
    assert fetch("/models") == fetch("/v1/models")


def test_an_unknown_model_is_an_error_that_lists_the_known_ones() -> None:
    with pytest.raises(UnknownModel) as raised:
        fetch("/v1/models/some/other")
    assert (raised.value.model, raised.value.known) == ("some/other", ("one",))


def test_models_are_listed_in_anthropics_shape_for_who_speaks_its_language() -> None:
    version = {"anthropic-version": "2023-06-01"}
    listed = fetch("/v1/models", version)
    assert isinstance(listed, dict)
    assert (listed["has_more"], listed["first_id"], listed["last_id"]) == (False, "one", "one")
    shown = fetch("/v1/models/one", version)
    assert isinstance(shown, dict)
    assert (shown["type"], shown["display_name"]) == ("model", "one")
