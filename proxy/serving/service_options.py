"""How models are served, whichever they are: what the settings come to for a single one."""

from dataclasses import dataclass, field

from proxy.backends.client import Backend
from proxy.processes.fleet import Fleet
from proxy.profiles.known_model import Overrides
from proxy.profiles.profile import Profile
from proxy.serving.admission import MOST_WAITING, Admission, WaitingLine
from proxy.serving.context_fitting import ContextPolicy, Fitting
from proxy.serving.known_models import KnownModels
from proxy.serving.services import Service, Services
from proxy.state.tried_models import TriedModels


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceOptions:
    """How models are served.

    They are recognised by `profiles`, as far as no `overrides` of the operator say otherwise.
    `parallel` requests are put to a backend at once, as many as it has slots where that is None;
    `max_waiting` may wait. `patterns` give models further names, see `Services`;
    `tried` is what was measured of models here.
    """

    profiles: tuple[Profile, ...] = ()
    overrides: Overrides = field(default_factory=Overrides)
    context: ContextPolicy = field(default_factory=ContextPolicy)
    max_waiting: int = MOST_WAITING
    parallel: int | None = None
    patterns: tuple[tuple[str, str], ...] = ()
    tried: TriedModels = field(default_factory=TriedModels)

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
        """Serve the model of a backend under a name, or all that it has under their own."""
        return Service(
            backend,
            KnownModels(backend, self.profiles, overrides or self.overrides),
            Fitting(backend, self.context),
            Admission(WaitingLine(self.max_waiting)),
            name,
            aliases,
            self.parallel,
            upstream,
            fleet,
            self.tried,
        )

    def alone(self, backend: Backend) -> Services:
        """Serve one backend, whatever model a client asks for."""
        return Services([self.service(backend)], self.patterns)
