import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from proxy.backends.client import BackendModel, Description, Health, PassthroughRequest
from proxy.backends.pool import PinnedMember, Pool
from proxy.conversation import json
from proxy.conversation.json import JsonObject
from proxy.conversation.requests import Request
from proxy.errors import BackendUnavailable, InvalidRequest, LaunchFailed, UnknownModel
from proxy.processes.fleet import Fleet
from proxy.processes.swapping import LoadableModel, SwapPlanner
from proxy.profiles.known_model import Overrides
from proxy.profiles.profile import GENERIC
from proxy.profiles.tried_models import TriedModel, TriedModels, digest
from proxy.serving.admission import Admission, WaitingQueue
from proxy.serving.services import ServiceOptions, Services, load_wait
from tests.fakes.backend import ScriptedBackend
from tests.fakes.servers import Server

OPTIONS = ServiceOptions()
ALONE: tuple[tuple[str, ...], ...] = ((),)  # one service without a name
TWO: tuple[tuple[str, ...], ...] = (("small", "tiny", "gpt-4"), ("large",))
TAGGED: tuple[tuple[str, ...], ...] = (("small",), ("large:latest",))
PATTERNS = (("claude-haiku-*", "tiny"), ("claude-*", "large"), ("gpt-?", "small"))


class NeverGrantedClaim:
    """A claim to a model that is never loaded."""

    is_granted = False
    news = "loading m"

    async def wait_until_granted(self) -> None:
        await asyncio.Event().wait()

    def timeout_error(self) -> BackendUnavailable:
        return BackendUnavailable("m", "is still being loaded", loading=True)


async def test_load_wait_raises_an_error_after_its_timeout() -> None:
    claim = NeverGrantedClaim()
    with pytest.raises(BackendUnavailable, match="still being loaded") as raised:
        async with load_wait(claim, 0.001):
            await claim.wait_until_granted()
    assert raised.value.loading
    async with load_wait(claim, 60):
        pass


def services_of(
    names: tuple[tuple[str, ...], ...],
    *patterns: tuple[str, str],
    backends: tuple[ScriptedBackend, ...] = (),
) -> Services:
    """Make services from the name and aliases of each."""
    backends = backends or tuple(ScriptedBackend() for _ in names)
    return Services(
        [
            OPTIONS.service(backend, name="".join(names_[:1]), aliases=names_[1:])
            for backend, names_ in zip(backends, names, strict=True)
        ],
        patterns,
    )


@pytest.mark.parametrize(
    ("names", "patterns", "requested", "service", "resolved"),
    [
        (TWO, (), "small", "small", "small"),
        (TWO, (), "gpt-4", "small", "gpt-4"),
        (TWO, (), "large", "large", "large"),
        (TWO, (), "default", "small", "small"),
        (TWO, (), "auto", "small", "small"),
        (TAGGED, (), "small", "small", "small"),
        (TAGGED, (), "small:latest", "small", "small"),
        (TAGGED, (), "large", "large:latest", "large:latest"),
        (TAGGED, (), "large:latest", "large:latest", "large:latest"),
        ((("small",), ("large", "default")), (), "default", "large", "default"),
        (TWO, (("default", "large"),), "default", "large", "large"),
        (TWO, PATTERNS, "claude-haiku-4", "small", "tiny"),
        (TWO, PATTERNS, "claude-opus-5", "large", "large"),
        (TWO, PATTERNS, "gpt-5", "small", "small"),
        (TWO, PATTERNS, "large", "large", "large"),
        (TWO, PATTERNS, "tiny", "small", "tiny"),
        (ALONE, (), "default", "", "default"),
        (ALONE, (), "anything", "", "anything"),
        (ALONE, (("claude-*", "qwen3:8b"),), "claude-opus-5", "", "qwen3:8b"),
        (ALONE, (("claude-*", "qwen3:8b"),), "other", "", "other"),
    ],
)
def test_a_model_name_or_an_alias_or_a_pattern_selects_a_service(
    names: tuple[tuple[str, ...], ...],
    patterns: tuple[tuple[str, str], ...],
    requested: str,
    service: str,
    resolved: str,
) -> None:
    services = services_of(names, *patterns)
    assert services.find(requested).name == service
    assert services.resolve(requested) == resolved
    request = services.rename(Request(requested, (), {"model": json.dump(requested)}))
    assert (request.model, request.fields["model"]) == (resolved, json.dump(resolved))
    sent = services.find(requested).address_to_backend(request)
    assert sent.fields["model"] == json.dump(service or resolved)


def test_resolve_returns_the_name_unchanged_if_there_are_no_services() -> None:
    assert Services([]).resolve("auto") == "auto"


@pytest.mark.parametrize("model", ["", "Small", "other"])
def test_the_error_for_an_unknown_model_lists_the_models(model: str) -> None:
    with pytest.raises(UnknownModel) as raised:
        services_of(TWO).find(model)
    assert (raised.value.model, raised.value.known) == (model, ("small", "large"))


def test_pin_chooses_a_member_of_a_pool_but_returns_any_other_backend_itself() -> None:
    alone = ScriptedBackend()
    assert OPTIONS.service(alone).pin() is alone
    assert isinstance(OPTIONS.service(Pool([alone])).pin(), PinnedMember)


def test_an_overlong_name_is_refused() -> None:
    services = services_of(ALONE)
    services.find("a/" * 256)
    with pytest.raises(InvalidRequest, match=r"at most 512 characters \(got 513\)") as raised:
        services.find("a/" * 256 + "b")
    assert raised.value.param == "model"
    assert len(str(raised.value)) < 100


def test_a_single_backend_lists_its_models() -> None:
    services = OPTIONS.services_for(ScriptedBackend())
    details: JsonObject = {"id": "one", "owned_by": "someone", "capabilities": ["tools"]}
    assert services.name == "scripted"
    assert asyncio.run(services.models()) == (BackendModel("one", details),)
    assert asyncio.run(services.show("one")).id == "one"
    with pytest.raises(UnknownModel) as raised:
        asyncio.run(services.show("two"))
    assert raised.value.known == ("one",)


def test_several_models_of_a_backend_are_listed_without_a_lookup_for_each() -> None:
    backend = ScriptedBackend(catalogue=("one", "two"))
    listed = asyncio.run(OPTIONS.services_for(backend).models())
    assert [model.id for model in listed] == ["one", "two"]
    assert backend.described == []


@pytest.mark.parametrize("requested", ["small", "small:latest"])
def test_show_finds_a_model_by_its_name_with_or_without_the_tag(requested: str) -> None:
    services = OPTIONS.services_for(ScriptedBackend(catalogue=("big", "small:latest")))
    assert asyncio.run(services.show(requested)).id == "small:latest"


@pytest.mark.parametrize(("upstream", "looked_up"), [("", "small"), ("org/Small-8B",) * 2])
def test_a_model_is_looked_up_under_its_upstream_name(upstream: str, looked_up: str) -> None:
    backend = ScriptedBackend()
    service = OPTIONS.service(backend, name="small", aliases=("tiny",), upstream=upstream)
    assert asyncio.run(service.look_up("tiny")).model == looked_up
    (offer,) = asyncio.run(service.offers())
    assert (offer.id, {*backend.described}) == ("small", {looked_up})


def test_models_are_listed_with_their_status_and_capabilities() -> None:
    description = Description(
        ("small",),
        template="{% if enable_thinking %}<think>{% endif %}{{ tools }}",
        window=2048,
        senses=("vision",),
        engine="vLLM",
        lacks=("required_choice",),
        honours={"strict": True},
    )
    first = ScriptedBackend(description=description)
    services = services_of(TWO, backends=(first, ScriptedBackend(state=Health.UNREACHABLE)))
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


def test_the_measurements_of_a_model_are_listed(tmp_path: Path) -> None:
    tried = TriedModels(tmp_path)
    for template, window in (("{{ tools }}", 2048), ("another", 4096)):
        model = TriedModel(
            name="small",
            identity="small",
            template=digest(template),
            server="build b1",
            tried_at="2026-01-01T00:00:00+00:00",
            temper="1.0",
            measured={"window": window, "writes_per_second": 35.5},
        )
        tried.save(model)
    backend = ScriptedBackend(description=Description(("small",), template="{{ tools }}"))
    (listed,) = asyncio.run(ServiceOptions(tried=tried).services_for(backend).models())
    assert listed.details["tried"] == {
        "tried_at": "2026-01-01T00:00:00+00:00",
        "server": "build b1",
        "window": 2048,
        "writes_per_second": 35.5,
    }


@pytest.mark.parametrize(
    ("first", "second", "together"),
    [
        (Health.READY, Health.UNREACHABLE, Health.READY),
        (Health.UNREACHABLE, Health.LOADING, Health.LOADING),
        (Health.UNREACHABLE, Health.UNREACHABLE, Health.UNREACHABLE),
    ],
)
def test_the_health_of_several_services_is_that_of_the_best_backend(
    first: Health, second: Health, together: Health
) -> None:
    backends = ScriptedBackend(state=first), ScriptedBackend(state=second)
    assert asyncio.run(services_of(TWO, backends=backends).health()) is together


def test_the_overrides_of_a_service_select_its_profile() -> None:
    overrides = Overrides(profile=GENERIC)
    service = OPTIONS.service(ScriptedBackend(), name="small", overrides=overrides)
    assert asyncio.run(service.look_up("small")).recognition.profile is GENERIC


async def test_a_model_of_a_fleet_is_described_without_loading_it() -> None:
    server = Server()
    fleet = Fleet({"small": server}, SwapPlanner([LoadableModel("small")]))
    service = OPTIONS.service(ScriptedBackend(), name="small", fleet=fleet)
    services = Services([service])
    assert await services.health() is Health.READY
    (small,) = await services.models()
    assert small.details["status"] == {"value": "unloaded", "failed": False}
    with service.lease() as claim:
        assert claim is not None
        server.finish(LaunchFailed("llama-server", "is out of memory"))
        with pytest.raises(LaunchFailed):
            await claim.wait_until_granted()
    (small,) = await services.models()
    assert small.details["status"] == {"value": "failed", "failed": True}
    assert await services.health() is Health.UNREACHABLE
    assert server.starts == 1
    await fleet.close()


@pytest.mark.parametrize(
    ("upstream", "requested", "sent"),
    [
        ("", "small", b'"small"'),
        ("", "tiny", b'"small"'),
        ("org/Small-8B", "small", b'"org/Small-8B"'),
        ("org/Small-8B", "org/Small-8B", b'"org/Small-8B"'),
    ],
)
def test_address_to_backend_replaces_the_model_by_its_upstream_name(
    upstream: str, requested: str, sent: bytes
) -> None:
    service = OPTIONS.service(ScriptedBackend(), name="small", upstream=upstream)
    fields = {"model": json.dump(requested), "n": b"1"}
    request = Request(requested, (), fields)
    addressed = service.address_to_backend(request)
    assert addressed.fields == {"model": sent, "n": b"1"}
    assert [*addressed.fields] == ["model", "n"]
    assert addressed.model == requested
    assert (addressed is request) is (fields["model"] == sent)
    passage = PassthroughRequest("/v1/embeddings", "input", requested, fields)
    assert service.address_to_backend(passage).body() == b'{"model":%b,"n":1}' % sent


@pytest.mark.parametrize(
    ("parallel", "slots", "workers", "capacity"),
    [(None, None, 2, None), (None, 4, 1, 4), (None, 4, 2, 2), (3, 4, 1, 3), (None, 1, 4, 1)],
)
def test_workers_share_the_slots_of_a_backend(
    parallel: int | None, slots: int | None, workers: int, capacity: int | None
) -> None:
    backend = ScriptedBackend(description=Description(("m",), slots=slots))
    queue = WaitingQueue()
    service = ServiceOptions(parallel=parallel).service(backend)
    service = replace(service, admission=Admission(queue))
    service.resize(asyncio.run(service.look_up("m")), workers)
    tickets = [queue.join("k") for _ in range(9)]
    served = sum(ticket is not None and ticket.is_served for ticket in tickets)
    assert served == (capacity or 9)


LISTED = ("text-embedding-nomic", "org/chat-7b", "org/chat-3b")


@pytest.mark.parametrize(
    ("requested", "catalogue", "description", "sent"),
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
async def test_the_name_default_is_replaced_by_the_first_listed_chat_model(
    requested: str, catalogue: tuple[str, ...], description: Description | None, sent: str
) -> None:
    backend = ScriptedBackend(catalogue=catalogue, description=description)
    service = OPTIONS.service(backend)
    renamed = await service.choose_model(Request(requested, (), {"model": json.dump(requested)}))
    assert (renamed.model, renamed.fields["model"]) == (sent, json.dump(sent))
    backend.catalogue = ("gone",)  # has no effect yet, because the list is cached
    assert (await service.choose_model(Request(requested, (), {}))).model == sent


async def test_after_forget_first_the_next_request_fetches_the_model_list_again() -> None:
    backend = ScriptedBackend(catalogue=("first",))
    service = OPTIONS.service(backend)
    assert (await service.choose_model(Request("default", (), {}))).model == "first"
    backend.catalogue = ("second",)
    service.models.forget_first()
    assert (await service.choose_model(Request("default", (), {}))).model == "second"


@pytest.mark.parametrize(
    ("name", "sent"), [("mine", "org/chat-7b"), ("org/chat-3b", "org/chat-3b")]
)
async def test_a_model_of_the_settings_is_sent_under_a_name_that_the_engine_lists(
    name: str, sent: str
) -> None:
    service = OPTIONS.service(ScriptedBackend(catalogue=LISTED), name=name)
    request = service.address_to_backend(Request(name, (), {"model": json.dump(name)}))
    renamed = await service.choose_model(request)
    assert (renamed.model, renamed.fields["model"]) == (name, json.dump(sent))


class Unreachable(ScriptedBackend):
    """A backend that cannot list its models."""

    async def models(self) -> tuple[BackendModel, ...]:
        raise BackendUnavailable("b", "is down")


@pytest.mark.parametrize(
    ("backend", "name", "upstream"),
    [(Unreachable(), "", ""), (ScriptedBackend(), "n", ""), (ScriptedBackend(), "", "u")],
    ids=["no list", "named", "named upstream"],
)
async def test_the_name_default_is_sent_unchanged_without_a_model_list_or_if_the_service_has_a_name(
    backend: ScriptedBackend, name: str, upstream: str
) -> None:
    service = OPTIONS.service(backend, name=name, upstream=upstream)
    assert (await service.choose_model(Request("default", (), {}))).model == "default"
