import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from proxy.api.app import ServerOptions
from proxy.backends.client import BackendModel, Description, Health, PassthroughRequest
from proxy.conversation import json
from proxy.conversation.json import JsonObject
from proxy.conversation.requests import Request
from proxy.errors import BackendUnavailable, InvalidRequest, LaunchFailed, UnknownModel
from proxy.processes.fleet import Fleet
from proxy.processes.swapping import LoadableModel as SwappedModel
from proxy.processes.swapping import SwapPlanner
from proxy.profiles.known_model import Overrides
from proxy.profiles.profile import GENERIC
from proxy.profiles.tried_models import TriedModel, TriedModels, digest
from proxy.serving.admission import Admission, WaitingQueue
from proxy.serving.services import ServiceOptions, Services, load_wait
from tests.fakes.backend import ScriptedBackend
from tests.fakes.servers import Server


class NeverLoaded:
    """The wait for a model that never comes."""

    is_granted = False
    news = "loading m"

    async def wait_until_granted(self) -> None:
        await asyncio.Event().wait()

    def late(self) -> BackendUnavailable:
        return BackendUnavailable("m", "is still being loaded", loading=True)


def test_a_wait_ends_when_its_time_is_over() -> None:
    async def scene() -> None:
        claim = NeverLoaded()
        async with load_wait(claim, 0.001):
            await claim.wait_until_granted()

    with pytest.raises(BackendUnavailable, match="still being loaded") as raised:
        asyncio.run(scene())
    assert raised.value.loading


async def test_a_wait_that_was_short_enough_leaves_no_trace() -> None:
    async with load_wait(NeverLoaded(), 60):
        found = "loaded"
    assert found == "loaded"


SERVING = ServerOptions()


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


@pytest.mark.parametrize("model", ["default", "auto"])
def test_who_leaves_the_choice_to_the_server_gets_the_first_model(model: str) -> None:
    services = two(ScriptedBackend(), ScriptedBackend())
    assert services.find(model).name == "small"
    assert services.resolve(model) == "small"


@pytest.mark.parametrize("model", ["small", "small:latest", "large", "large:latest"])
def test_the_tag_of_the_latest_may_be_written_or_left_out(model: str) -> None:
    services = Services(
        [SERVING.service(ScriptedBackend(), name=name) for name in ("small", "large:latest")]
    )
    found = services.find(model).name
    assert found.removesuffix(":latest") == model.removesuffix(":latest")


def test_what_is_called_default_is_meant_by_that() -> None:
    backends = ScriptedBackend(), ScriptedBackend()
    first = SERVING.service(backends[0], name="small")
    named = SERVING.service(backends[1], name="large", aliases=("default",))
    assert Services([first, named]).find("default") is named
    named = SERVING.service(backends[1], name="large")
    assert Services([first, named], [("default", "large")]).find("default") is named


def test_a_backend_without_a_name_hears_of_default_itself() -> None:
    services = Services([SERVING.service(ScriptedBackend())])
    assert services.resolve("default") == "default"
    assert Services([]).resolve("auto") == "auto"


@pytest.mark.parametrize("model", ["", "Small", "other"])
def test_a_model_that_nobody_has_is_an_error_that_lists_those_there_are(model: str) -> None:
    with pytest.raises(UnknownModel) as raised:
        two(ScriptedBackend(), ScriptedBackend()).find(model)
    assert (raised.value.model, raised.value.known) == (model, ("small", "large"))


def test_a_name_that_is_too_long_to_be_one_is_refused() -> None:
    alone = SERVING.alone(ScriptedBackend())
    alone.find("a/" * 256)
    with pytest.raises(InvalidRequest, match="at most 512 characters, not 513") as raised:
        alone.find("a/" * 256 + "b")
    assert raised.value.param == "model"
    assert len(str(raised.value)) < 100


def test_a_backend_without_a_name_answers_for_every_name() -> None:
    backend = ScriptedBackend()
    alone = SERVING.alone(backend)
    assert alone.find("anything") is alone.find("")
    assert (alone.name, alone.find("").backend) == ("scripted", backend)
    details: JsonObject = {"id": "one", "owned_by": "someone", "capabilities": ["tools"]}
    assert asyncio.run(alone.models()) == (BackendModel("one", details),)


def test_an_alias_is_the_model_itself() -> None:
    backend = ScriptedBackend()
    service = two(backend, ScriptedBackend()).find("tiny")
    assert asyncio.run(service.look_up("tiny")).model == "small"
    assert backend.described == ["small"]


def test_a_backend_is_asked_for_what_it_calls_the_model() -> None:
    backend = ScriptedBackend()
    service = SERVING.service(backend, name="small", aliases=("tiny",), upstream="org/Small-8B")
    assert asyncio.run(service.look_up("tiny")).model == "org/Small-8B"
    (shown,) = asyncio.run(service.offers())
    assert (shown.id, {*backend.described}) == ("small", {"org/Small-8B"})


def test_models_are_listed_with_what_is_known_of_them() -> None:
    template = "{% if enable_thinking %}<think>{% endif %}{{ tools }}"
    told = Description(
        ("small",),
        template=template,
        window=2048,
        senses=("vision",),
        engine="vLLM",
        lacks=("required_choice",),
        honours={"strict": True},
    )
    services = two(ScriptedBackend(description=told), ScriptedBackend(state=Health.UNREACHABLE))
    small, large = asyncio.run(services.models())
    assert (small.id, large.id) == ("small", "large")
    assert small.details == {
        "aliases": ["tiny", "gpt-4"],
        "status": {"value": "loaded", "failed": False},
        "capabilities": ["tools", "thinking", "vision"],
        "context_window": 2048,
        "meta": {"n_ctx": 2048},
        "engine": {"name": "vLLM", "lacks": ["required_choice"], "honours": {"strict": True}},
    }
    assert large.details == {
        "status": {"value": "failed", "failed": True},
        "capabilities": ["tools"],
    }
    assert asyncio.run(services.show("gpt-4")) == small
    assert services.name == "small, large"
    with pytest.raises(UnknownModel):
        asyncio.run(services.show("one"))


def test_what_was_measured_of_a_model_is_listed_with_it(tmp_path: Path) -> None:
    tried = TriedModels(tmp_path)
    for template, window in (("{{ tools }}", 2048), ("another", 4096)):
        made = TriedModel(
            name="small",
            identity="small",
            template=digest(template),
            server="build b1",
            tried_at="2026-01-01T00:00:00+00:00",
            temper="1.0",
            measured={"window": window, "writes_per_second": 35.5},
        )
        tried.remember(made)
    backend = ScriptedBackend(description=Description(("small",), template="{{ tools }}"))
    services = ServerOptions(tried=tried).alone(backend)
    (one,) = asyncio.run(services.models())
    assert one.details["tried"] == {
        "tried_at": "2026-01-01T00:00:00+00:00",
        "server": "build b1",
        "window": 2048,
        "writes_per_second": 35.5,
    }


@pytest.mark.parametrize("asked", ["small", "small:latest"])
def test_a_model_is_shown_with_its_tag_or_without(asked: str) -> None:
    alone = SERVING.alone(ScriptedBackend(catalogue=("big", "small:latest")))
    assert asyncio.run(alone.show(asked)).id == "small:latest"


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
    service = SERVING.service(ScriptedBackend(), name="small", overrides=Overrides(profile=GENERIC))
    assert asyncio.run(service.look_up("small")).recognition.profile is GENERIC


def test_a_catalogue_of_a_backend_is_listed_as_it_is() -> None:
    backend = ScriptedBackend(catalogue=("one", "two"))
    listed = asyncio.run(SERVING.alone(backend).models())
    assert [model.id for model in listed] == ["one", "two"]
    assert backend.described == []


async def test_a_model_of_a_fleet_tells_its_condition_and_is_not_loaded_for_it() -> None:
    server = Server()
    fleet = Fleet({"small": server}, SwapPlanner([SwappedModel("small")]))
    service = SERVING.service(ScriptedBackend(), name="small", fleet=fleet)
    services = Services([service])
    assert await services.health() is Health.READY
    (small,) = await services.models()
    assert small.details["status"] == {"value": "unloaded", "failed": False}
    with service.lease() as hold:
        assert hold is not None
        server.finish(LaunchFailed("llama-server", "is out of memory"))
        with pytest.raises(LaunchFailed):
            await hold.wait_until_granted()
    (small,) = await services.models()
    assert small.details["status"] == {"value": "failed", "failed": True}
    assert await services.health() is Health.UNREACHABLE
    assert server.starts == 1
    await fleet.close()


@pytest.mark.parametrize(
    ("upstream", "asked", "sent"),
    [
        ("", "small", b'"small"'),
        ("", "tiny", b'"small"'),
        ("org/Small-8B", "small", b'"org/Small-8B"'),
        ("org/Small-8B", "org/Small-8B", b'"org/Small-8B"'),
    ],
)
def test_a_backend_hears_the_name_that_it_knows(upstream: str, asked: str, sent: bytes) -> None:
    service = SERVING.service(ScriptedBackend(), name="small", upstream=upstream)
    request = Request(asked, (), {"model": json.dump(asked), "n": b"1"})
    addressed = service.address_to_backend(request)
    assert addressed.fields["model"] == sent
    assert list(addressed.fields) == list(request.fields)
    assert addressed.model == asked
    if asked == (upstream or "small"):
        assert addressed is request


@pytest.mark.parametrize(
    ("parallel", "slots", "workers", "capacity"),
    [(None, None, 2, None), (None, 4, 1, 4), (None, 4, 2, 2), (3, 4, 1, 3), (None, 1, 4, 1)],
)
def test_a_worker_has_its_part_of_the_slots(
    parallel: int | None, slots: int | None, workers: int, capacity: int | None
) -> None:
    backend = ScriptedBackend(description=Description(("m",), slots=slots))
    line = WaitingQueue()
    service = replace(SERVING.service(backend), parallel=parallel, admission=Admission(line))
    service.resize(asyncio.run(service.look_up("m")), workers)
    served = [line.join("k") for _ in range(9)]
    assert sum(one is not None and one.is_served for one in served) == (capacity or 9)


def test_a_request_that_is_passed_on_hears_the_same_names() -> None:
    service = SERVING.service(ScriptedBackend(), name="small", upstream="org/Small-8B")
    passage = PassthroughRequest(
        "/v1/embeddings", "input", "small", {"input": b"[]", "model": b'"small"'}
    )
    assert service.address_to_backend(passage).body() == b'{"input":[],"model":"org/Small-8B"}'


@pytest.mark.parametrize(
    ("asked", "meant"),
    [
        ("claude-haiku-4", "small"),
        ("claude-opus-5", "large"),
        ("large", "large"),
        ("s", "small"),
        ("gpt-5", "small"),
    ],
)
def test_a_pattern_leads_to_the_model_that_it_means(asked: str, meant: str) -> None:
    patterns = (("claude-haiku-*", "s"), ("claude-*", "large"), ("gpt-?", "small"))
    options = ServiceOptions()
    services = Services(
        [
            options.service(ScriptedBackend(), name="small", aliases=("s",)),
            options.service(ScriptedBackend(), name="large"),
        ],
        patterns,
    )
    assert services.find(asked).name == meant
    request = Request(asked, (), {"model": json.dump(asked)})
    assert services.find(asked).address_to_backend(services.rename(request)).fields["model"] == (
        json.dump(meant)
    )


def test_a_model_without_a_name_is_called_upstream_as_the_pattern_says() -> None:
    services = ServiceOptions(patterns=(("claude-*", "qwen3:8b"),)).alone(ScriptedBackend())
    request = Request("claude-opus-5", (), {"model": b'"claude-opus-5"'})
    renamed = services.rename(request)
    assert (renamed.model, renamed.fields["model"]) == ("qwen3:8b", b'"qwen3:8b"')
    assert services.rename(Request("other", (), {})).model == "other"


def test_a_service_has_what_the_options_say() -> None:
    service = ServiceOptions(parallel=3).service(
        ScriptedBackend(), name="small", aliases=("s",), upstream="org/small"
    )
    assert (service.name, service.aliases, service.upstream) == ("small", ("s",), "org/small")
    assert (service.parallel, service.fleet) == (3, None)


def test_a_model_may_have_wishes_of_its_own() -> None:
    options = ServiceOptions(overrides=Overrides(convention="json"))
    assert options.service(ScriptedBackend(), overrides=Overrides()).models is not None


def test_a_backend_alone_answers_for_every_name() -> None:
    backend = ScriptedBackend()
    services = ServiceOptions().alone(backend)
    assert services.find("whatever").backend is backend


LISTED = ("text-embedding-nomic", "org/chat-7b", "org/chat-3b")


@pytest.mark.parametrize(
    ("asked", "catalogue", "description", "sent"),
    [
        ("default", LISTED, None, "org/chat-7b"),
        ("auto", LISTED, None, "org/chat-7b"),
        ("default", ("nomic-embed-text",), None, "nomic-embed-text"),
        ("default", ("x", "default"), None, "x"),
        ("default", (), None, "default"),
        ("org/other", LISTED, None, "org/other"),
        ("", LISTED, None, ""),
        ("default", LISTED, Description(("m",), engine="llama.cpp", window=4096), "default"),
        ("default", LISTED, Description(("m",), engine="llama.cpp"), "org/chat-7b"),
    ],
)
async def test_a_choice_left_to_the_server_is_the_first_model_for_chats(
    asked: str, catalogue: tuple[str, ...], description: Description | None, sent: str
) -> None:
    backend = ScriptedBackend(catalogue=catalogue, description=description)
    service = ServiceOptions().service(backend)
    chosen = await service.choose_model(Request(asked, (), {"model": json.dump(asked)}))
    assert (chosen.model, chosen.fields["model"]) == (sent, json.dump(sent))
    backend.catalogue = ("gone",)  # the list is not fetched again for a while
    assert (await service.choose_model(Request(asked, (), {}))).model == sent


async def test_the_choice_stays_as_it_is_while_no_list_can_be_had() -> None:
    class Unreachable(ScriptedBackend):
        async def models(self) -> tuple[BackendModel, ...]:
            raise BackendUnavailable("b", "is down")

    service = ServiceOptions().service(Unreachable())
    assert (await service.choose_model(Request("default", (), {}))).model == "default"


@pytest.mark.parametrize(("name", "upstream"), [("n", ""), ("", "u")])
async def test_a_named_model_leaves_no_choice(name: str, upstream: str) -> None:
    service = ServiceOptions().service(ScriptedBackend(), name=name, upstream=upstream)
    assert (await service.choose_model(Request("default", (), {}))).model == "default"
