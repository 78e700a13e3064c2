import asyncio

import pytest

from proxy.api.app import Serving
from proxy.api.recognition import Wishes
from proxy.api.services import Services
from proxy.backends.client import Health, Model
from proxy.errors import UnknownModel
from proxy.profiles.profile import GENERIC
from tests.fakes.backend import ScriptedBackend

SERVING = Serving()


def two(first: ScriptedBackend, second: ScriptedBackend) -> Services:
    return Services(
        [
            SERVING.service(first, name="small", aliases=("tiny", "gpt-4")),
            SERVING.service(second, name="large"),
        ]
    )


def test_a_request_reaches_the_model_that_it_names_by_name_or_alias() -> None:
    first, second = ScriptedBackend(), ScriptedBackend()
    services = two(first, second)
    assert services.find("small").backend is first
    assert services.find("gpt-4").backend is first
    assert services.find("large").backend is second


@pytest.mark.parametrize("model", ["", "Small", "other"])
def test_a_model_that_nobody_has_is_an_error_that_lists_those_there_are(model: str) -> None:
    with pytest.raises(UnknownModel) as raised:
        two(ScriptedBackend(), ScriptedBackend()).find(model)
    assert (raised.value.model, raised.value.known) == (model, ("small", "large"))


def test_a_backend_without_a_name_answers_for_every_name() -> None:
    backend = ScriptedBackend()
    alone = SERVING.alone(backend)
    assert alone.find("anything") is alone.find("")
    assert (alone.name, alone.find("").backend) == ("scripted", backend)
    assert asyncio.run(alone.models()) == (Model("one", {"id": "one", "owned_by": "someone"}),)


def test_an_alias_is_the_model_itself() -> None:
    backend = ScriptedBackend()
    service = two(backend, ScriptedBackend()).find("tiny")
    assert asyncio.run(service.look_up("tiny")).model == "small"
    assert backend.described == ["small"]


def test_models_are_listed_by_name_without_asking_their_backends() -> None:
    services = two(ScriptedBackend(), ScriptedBackend())
    small, large = asyncio.run(services.models())
    assert small == Model("small", {"aliases": ["tiny", "gpt-4"]})
    assert large == Model("large", {})
    assert asyncio.run(services.show("gpt-4")) == small
    assert services.name == "small, large"
    with pytest.raises(UnknownModel):
        asyncio.run(services.show("one"))


def test_a_backend_without_a_name_shows_its_own_models_only() -> None:
    alone = SERVING.alone(ScriptedBackend())
    assert asyncio.run(alone.show("one")).id == "one"
    with pytest.raises(UnknownModel) as raised:
        asyncio.run(alone.show("two"))
    assert raised.value.known == ("one",)


@pytest.mark.parametrize(
    ("first", "second", "together"),
    [
        (Health.READY, Health.UNREACHABLE, Health.READY),
        (Health.UNREACHABLE, Health.LOADING, Health.LOADING),
        (Health.UNREACHABLE, Health.UNREACHABLE, Health.UNREACHABLE),
    ],
)
def test_the_best_backend_tells_how_all_of_it_feels(
    first: Health, second: Health, together: Health
) -> None:
    services = two(ScriptedBackend(state=first), ScriptedBackend(state=second))
    assert asyncio.run(services.health()) is together


def test_a_model_can_have_wishes_of_its_own() -> None:
    service = SERVING.service(ScriptedBackend(), name="small", wishes=Wishes(profile=GENERIC))
    assert asyncio.run(service.look_up("small")).recognition.profile is GENERIC
