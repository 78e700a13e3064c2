"""The models that clients can ask for: which backend answers for a name, and what it needs."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from proxy.api.admission import Admission
from proxy.api.fitting import Fitting
from proxy.api.recognition import KnownModel, KnownModels
from proxy.backends.client import Backend, Health, Model
from proxy.errors import UnknownModel


@dataclass(frozen=True, slots=True)
class Service:
    """One model as clients see it.

    Without a `name` it is whatever its backend serves. `parallel` requests are put to the backend
    at once, as many as it has slots where that is None.
    """

    backend: Backend
    models: KnownModels
    fitting: Fitting
    admission: Admission = field(default_factory=Admission)
    name: str = ""
    aliases: tuple[str, ...] = ()
    parallel: int | None = None

    @property
    def title(self) -> str:
        """What it is called in logs and metrics."""
        return self.name or "default"

    async def look_up(self, model: str) -> KnownModel:
        """Return what is known of the model that a request names; an alias is the model itself."""
        return await self.models.look_up(self.name or model)

    async def offers(self) -> tuple[Model, ...]:
        """List what can be asked for here; raises `BackendFailed` if only the backend knows."""
        if not self.name:
            return await self.backend.models()
        return (Model(self.name, {"aliases": [*self.aliases]} if self.aliases else {}),)


class Services:
    """Every model there is, by name and alias; one without a name answers for all other names."""

    def __init__(self, services: Sequence[Service]) -> None:
        self._services = tuple(services)
        self._by_name = {
            name: service for service in services for name in (service.name, *service.aliases)
        }

    def __iter__(self) -> Iterator[Service]:
        return iter(self._services)

    @property
    def name(self) -> str:
        """What stands behind it all, for people."""
        return ", ".join(service.name or service.backend.name for service in self._services)

    def find(self, model: str) -> Service:
        """Return the service of a model; raises `UnknownModel`, which lists those there are."""
        found = self._by_name.get(model) or self._by_name.get("")
        if found is None:
            raise UnknownModel(model, tuple(service.name for service in self._services))
        return found

    async def models(self) -> tuple[Model, ...]:
        """List the models that can be asked for; loads none."""
        return tuple([model for one in self._services for model in await one.offers()])

    async def show(self, model: str) -> Model:
        """Return one model by its name or alias; raises `UnknownModel`."""
        service = self.find(model)
        offered = await service.offers()
        for one in offered:
            if one.id in (model, service.name):
                return one
        raise UnknownModel(model, tuple(one.id for one in offered))

    async def health(self) -> Health:
        """Tell how the best of the backends feels; never raises."""
        felt = [await service.backend.health() for service in self._services]
        return next((state for state in Health if state in felt), Health.UNREACHABLE)
