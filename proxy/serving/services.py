"""The models that clients can request, and the backend of each.

client sends "gpt-4o" --patterns--> "qwen3" --find--> Service(name="qwen3")
--upstream--> backend receives "qwen3:8b-q4_K_M"
"""

import asyncio
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, aclosing, asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from itertools import chain
from typing import Protocol, TypeVar, cast

from msgspec.structs import replace

from proxy.backends.client import (
    Backend,
    BackendModel,
    ChatBackend,
    Headers,
    Health,
    PassthroughRequest,
    best_health,
)
from proxy.backends.pool import Pool
from proxy.conversation import json
from proxy.conversation.json import JsonObject
from proxy.conversation.requests import Request
from proxy.errors import BackendUnavailable, InvalidRequest, UnknownModel
from proxy.processes.fleet import Condition, Fleet
from proxy.processes.managed import ManagedBackend
from proxy.profiles.known_model import KnownModel, Overrides
from proxy.profiles.known_models import KnownModels
from proxy.profiles.profile import Profile
from proxy.profiles.tried_models import TriedModels
from proxy.profiles.tuned import TunedSettings, describe_tuned
from proxy.serving.admission import MOST_WAITING, Admission, WaitingQueue
from proxy.serving.context_fitting import ContextPolicy, Fitting
from proxy.serving.fallback import Fallback
from proxy.serving.presets import Defaults


class LoadClaim(Protocol):
    """The claim of a request to use a model, which may have to be loaded first."""

    @property
    def is_granted(self) -> bool: ...

    @property
    def news(self) -> str:
        """The reason for the wait, as a text for the client."""

    async def wait_until_granted(self) -> object:
        """Wait until the model can be used; raises the error of a failed load."""

    def timeout_error(self) -> BackendUnavailable:
        """Return the error for a wait that exceeded the time limit."""


@asynccontextmanager
async def load_wait(claim: LoadClaim, seconds: float) -> AsyncGenerator[None, None]:
    """Limit the wait for a model to `seconds`; raises `BackendUnavailable` after that."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError as error:
        raise claim.timeout_error() from error


_DEFAULTS = ("default", "auto")  # model names with which clients let the server choose
UNNAMED = ("", *_DEFAULTS)  # model names that select no particular model
OLLAMA, LLAMA_SERVER = "Ollama", "llama.cpp"  # names of engines in `KnownModel.engine`
_LONGEST_NAME = 512  # characters; a name may be a path

Addressed = TypeVar("Addressed", Request, PassthroughRequest)


@dataclass(frozen=True, slots=True)
class Service:
    """One model as clients see it.

    Without a `name`, it serves every model of its backend. `parallel` is the number of concurrent
    requests to the backend; None means its number of slots. `upstream` is the name that the backend
    uses for the model, if it differs from `name`. A `fleet` loads the model on demand. `tried`
    contains measurements of models on this machine. `presets` are additional names with other
    defaults. The `fallback` gets one attempt after all attempts at this model were rejected.
    """

    backend: Backend
    models: KnownModels
    fitting: Fitting
    admission: Admission = field(default_factory=Admission)
    name: str = ""
    aliases: tuple[str, ...] = ()
    parallel: int | None = None
    upstream: str = ""
    fleet: Fleet | None = None
    tried: TriedModels = field(default_factory=TriedModels)
    presets: Mapping[str, Defaults] = field(default_factory=dict)
    fallback: Fallback | None = None

    def pin(self) -> ChatBackend:
        """Return the backend for one turn: in a pool, all attempts go to the same member."""
        return self.backend.pin() if isinstance(self.backend, Pool) else self.backend

    def lease(self, key: str = "") -> AbstractContextManager[LoadClaim | None]:
        """Keep the model loaded for a client's `key` while a block runs.

        Yields None if Temper does not load the model. Raises `QueueFull`.
        """
        if self.fleet is not None:
            return self.fleet.lease(self.name, key)
        return nullcontext(
            self.backend.lease() if isinstance(self.backend, ManagedBackend) else None
        )

    def lease_for(
        self, request: Request, key: str, *, has_prompt: bool
    ) -> AbstractContextManager[LoadClaim | None]:
        """Like `lease`, for a request of Ollama's API with a `keep_alive`.

        The model stays loaded for the time in `keep_alive` after the request. Without a prompt,
        `keep_alive` 0 only unloads the model, so None is yielded. Raises `QueueFull`.
        """
        if self.fleet is not None:
            self.fleet.keep(self.name, request.load.seconds)
        is_unload = request.load.seconds == 0 and not has_prompt
        return nullcontext(None) if is_unload else self.lease(key)

    async def load(self, request: Request, headers: Headers) -> None:
        """Let Ollama load or unload the model; does nothing for other engines."""
        known = await self.look_up(request.model)
        if known.engine == OLLAMA:
            fields = {"model": request.fields["model"]}
            if request.load.options:
                fields["options"] = json.dump(request.load.options)
            if request.load.keep_alive is not None:
                fields["keep_alive"] = json.dump(request.load.keep_alive)
            passage = PassthroughRequest("/api/generate", "prompt", request.model, fields)
            async with aclosing(self.backend.relay(passage, headers)) as pieces:
                async for _ in pieces:
                    pass

    def with_preset(self, request: Request) -> Request:
        """Apply the defaults of a preset, if the request names one."""
        preset = next(
            (self.presets[n] for n in _spellings(request.model) if n in self.presets), None
        )
        return request if preset is None else preset.apply(request)

    def address_to_backend(self, request: Addressed) -> Addressed:
        """Replace the requested model name by the name that the backend uses for the model."""
        name = self.upstream or self.name or request.model
        if name == request.model:
            return request
        return replace(request, fields={**request.fields, "model": json.dump(name)})

    async def choose_model(self, request: Addressed) -> Addressed:
        """Use the backend's first model if the requested name is not a name of the backend.

        The first model is used for the names "default" and "auto", and for [models.NAME] without
        `upstream_model`. vLLM, LM Studio and others reject unknown names.
        """
        is_placeholder = bool(self.name) or request.model in _DEFAULTS
        if self.upstream or self.fleet is not None or not is_placeholder:
            return request
        known = await self.look_up(request.model)
        # A llama-server that reports a window has one model and accepts any name. In router mode,
        # it reports no window and rejects unknown names.
        if known.engine == LLAMA_SERVER and known.window is not None:
            return request
        name = await self.models.first_listed(preferred=self.name)
        if name in ("", self.name or request.model):
            return request
        model = request.model if self.name else name
        return replace(request, model=model, fields={**request.fields, "model": json.dump(name)})

    def resize(self, known: KnownModel, process_count: int) -> None:
        """Admit as many requests as the model has slots, divided by the number of processes."""
        slots = self.parallel or known.slots
        # At least 1: otherwise, a process would serve no requests if there are more processes than
        # slots.
        self.admission.resize(None if slots is None else max(1, slots // process_count))

    @property
    def title(self) -> str:
        return self.name or "default"

    async def look_up(self, model: str, *, refresh: bool = False) -> KnownModel:
        """Return the profile and abilities of the requested model, which may be an alias."""
        name = self.upstream or self.name or model
        return await self.models.look_up(name, refresh=refresh)

    async def offers(self) -> tuple[BackendModel, ...]:
        """List the available models without loading any; raises `BackendFailed`."""
        if self.name:
            details: JsonObject = {"aliases": [*self.aliases]} if self.aliases else {}
            condition = await self.condition()
            details["status"] = {"value": condition, "failed": condition == "failed"}
            described = {**details, **await self.describe()}
            presets = (
                BackendModel(name, {**described, "aliases": [], "preset_of": self.name})
                for name in self.presets
            )
            return (BackendModel(self.name, described), *presets)
        served = await self.backend.models()
        if len(served) != 1:  # describing each of many models would take one request per model
            return served
        model = served[0]
        return (BackendModel(model.id, {**await self.describe(model.id), **model.details}),)

    async def condition(self) -> Condition:
        if self.fleet is not None:
            return self.fleet.condition(self.name)
        return _CONDITIONS[await self.backend.health()]

    async def health(self) -> Health:
        """Return READY if a request can be answered, possibly after loading the model."""
        if self.fleet is None:
            return await self.backend.health()
        has_failed = self.fleet.condition(self.name) == "failed"
        return Health.UNREACHABLE if has_failed else Health.READY

    async def healths(self) -> dict[str, Health]:
        """Return the health of each server of this model, by its name."""
        if isinstance(self.backend, Pool):
            return await self.backend.healths()
        return {self.name or self.backend.name: await self.health()}

    async def describe(self, model: str = "") -> JsonObject:
        known = await self.look_up(model, refresh=True)
        details: JsonObject = {"capabilities": [*known.capabilities]}
        if known.window is not None:
            details |= {"context_window": known.window, "meta": {"n_ctx": known.window}}
        if known.engine:
            engine: JsonObject = {"name": known.engine, "lacks": [*known.lacks]}
            details["engine"] = (
                {**engine, "honours": {**known.honours}} if known.honours else engine
            )
        tried = await asyncio.to_thread(self.tried.latest, known.identity, known.evidence.template)
        if tried is not None:
            account: JsonObject = {"tried_at": tried.tried_at, "server": tried.server}
            details["tried"] = {**account, **cast("JsonObject", tried.measured)}
        if known.tuned:
            details["tuned"] = describe_tuned(known.tuned)
        return details


# the state of a model that is not in a fleet, from the health of its server
_CONDITIONS: dict[Health, Condition] = {
    Health.READY: "loaded",
    Health.LOADING: "loading",
    Health.UNREACHABLE: "failed",
}


class Services:
    """All models by name and alias; a service without a name serves all other names.

    `patterns` are pairs of a shell pattern, such as `claude-*`, and a model name; the first match
    is used. If all models have names, the names `default` and `auto` select the first model, unless
    a model is called `default` or `auto`.
    """

    def __init__(
        self, services: Sequence[Service], patterns: Sequence[tuple[str, str]] = ()
    ) -> None:
        self._services = tuple(services)
        self._patterns = tuple(patterns)
        self._by_name = {
            name: service
            for service in services
            for name in (service.name, *service.aliases, *service.presets)
        }

    def __iter__(self) -> Iterator[Service]:
        return iter(self._services)

    @property
    def name(self) -> str:
        return ", ".join(service.name or service.backend.name for service in self._services)

    def find(self, model: str) -> Service:
        """Return the service of a model.

        Raises `UnknownModel`, whose message lists the models, and `InvalidRequest` for an overlong
        name.
        """
        if len(model) > _LONGEST_NAME:
            problem = f"model must have at most {_LONGEST_NAME} characters (got {len(model)})."
            raise InvalidRequest(problem, "model")
        service = self._by_name.get(self.resolve(model)) or self._by_name.get("")
        if service is None:
            raise UnknownModel(model, tuple(service.name for service in self._services))
        return service

    def resolve(self, model: str) -> str:
        """Return the known name that `model` matches; without a match, return `model` unchanged."""
        for name in _spellings(model):
            if name in self._by_name:
                return name
        for pattern, name in self._patterns:
            if fnmatchcase(model, pattern):
                return name
        if model not in _DEFAULTS:
            return model
        return next((service.name for service in self._services), "") or model

    def rename(self, request: Addressed) -> Addressed:
        """Apply the name patterns to a request's model."""
        name = self.resolve(request.model)
        if name == request.model:
            return request
        return replace(request, model=name, fields={**request.fields, "model": json.dump(name)})

    async def models(self) -> tuple[BackendModel, ...]:
        offers = await asyncio.gather(*(service.offers() for service in self._services))
        return tuple(chain.from_iterable(offers))

    async def show(self, model: str) -> BackendModel:
        """Return one model by its name or alias; raises `UnknownModel`."""
        service, resolved = self.find(model), self.resolve(model)
        offers = await service.offers()
        matching = [offer for offer in offers if offer.id in _spellings(resolved)]
        for offer in matching or offers:
            if offer.id in (*_spellings(resolved), service.name) or resolved in _DEFAULTS:
                # `offers` does not describe the models of a backend that lists several
                is_described = "capabilities" in offer.details
                known = {} if is_described else await service.describe(offer.id)
                return BackendModel(offer.id, {**known, **offer.details})
        raise UnknownModel(model, tuple(offer.id for offer in offers))

    async def identify(self, model: str) -> tuple[Service, KnownModel]:
        """Return the service and the profile of a model.

        If `model` is empty, there must be exactly one model, and it is used. Raises
        `InvalidRequest`, and `BackendFailed` if the backend does not respond.
        """
        if not model:
            names = [model.id for model in await self.models()]
            if len(names) != 1:
                listed = ", ".join(names) or "none"
                raise InvalidRequest(f"Name a model: ?model=NAME. Available: {listed}.", "model")
            model = names[0]
        service = self.find(model)
        return service, await service.look_up(model)

    async def health(self) -> Health:
        """Return the state of the healthiest backend; never raises."""
        return best_health((await self.healths()).values())

    async def healths(self) -> dict[str, Health]:
        """Return each backend's state by its name; never raises."""
        healths = await asyncio.gather(*(service.healths() for service in self._services))
        return {name: health for by_name in healths for name, health in by_name.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceOptions:
    """Options for all models.

    `profiles` recognize models; the operator's `overrides` take precedence. At most `parallel`
    requests are sent to a backend at once (None: its number of slots), and at most `max_waiting`
    wait. `patterns` are additional model names, see `Services`. `tried` contains measurements of
    models on this machine, and `tuned` the settings that `temper tune` derived from them.
    """

    profiles: tuple[Profile, ...] = ()
    overrides: Overrides = field(default_factory=Overrides)
    context: ContextPolicy = field(default_factory=ContextPolicy)
    max_waiting: int = MOST_WAITING
    parallel: int | None = None
    patterns: tuple[tuple[str, str], ...] = ()
    tried: TriedModels = field(default_factory=TriedModels)
    tuned: TunedSettings = field(default_factory=TunedSettings)

    def service(
        self,
        backend: Backend,
        *,
        name: str = "",
        aliases: tuple[str, ...] = (),
        overrides: Overrides | None = None,
        upstream: str = "",
        fleet: Fleet | None = None,
    ) -> Service:
        """Return a service for one model of a backend; without a `name`, for all its models."""
        return Service(
            backend,
            KnownModels(
                backend,
                self.profiles,
                overrides or self.overrides,
                self.tuned,
                window_tokens=self.context.limit,
            ),
            Fitting(backend, self.context),
            Admission(WaitingQueue(self.max_waiting)),
            name,
            aliases,
            self.parallel,
            upstream,
            fleet,
            self.tried,
        )

    def services_for(self, backend: Backend) -> Services:
        """Return a service that sends requests for every model name to one backend."""
        return Services([self.service(backend)], self.patterns)


def _spellings(model: str) -> tuple[str, ...]:
    """Return the name with and without the tag `:latest`, because Ollama's clients send either."""
    return model, f"{model}:latest", model.removesuffix(":latest")
