"""The models that the arms use: simulated, or on a running server."""

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from proxy.conversation.json import JsonObject
from proxy.errors import InvalidConfiguration
from proxy.processes.launch import LaunchPlan, find_program
from proxy.processes.llama_server import start_llama_server
from proxy.processes.start_progress import StartProgress
from temper_evals.loop import ModelTarget
from temper_evals.scenarios.scenario import Judgment, Scenario, Transcript, World
from temper_evals.simulated.profiles import MID, UNSEEN, Cell, Flaw, grid, load_profile
from temper_evals.simulated.request import CaseFinder, find_case
from temper_evals.simulated.server import WINDOW, CaseUsage, SimulatedServer, serve

_LARGE_WINDOW = 65_536
_WINDOW, _SLOTS = 8192, 4

# Receives the description of a step, such as "Starting llama-server", before the step begins.
OnStep = Callable[[str], object]


def plan_launch(
    model: Path | str, name: str, *, server: Path | None = None, window: int | None = None
) -> LaunchPlan:
    """Plan a llama-server for the measured model; raises `LaunchFailed` if no program is found."""
    return LaunchPlan(find_program(server), model, window or _WINDOW, slots=_SLOTS, alias=name)


@asynccontextmanager
async def start_model(launch: LaunchPlan, on_step: OnStep) -> AsyncGenerator[ModelTarget, None]:
    """Start a llama-server, yield its model when it is ready, and stop it after the block.

    Raises subclasses of `ProcessFailed`.
    """

    def on_stage(progress: StartProgress) -> None:
        on_step(f"{progress.stage} {progress.name}")

    async with start_llama_server(launch, on_stage=on_stage) as running:
        headers = {"authorization": f"Bearer {running.api_key}"}
        yield ModelTarget(running.base_url, launch.alias or "", headers)


@dataclass(frozen=True, slots=True)
class AdaptedScenario:
    """Base class of scenarios that change a part of another scenario, such as its request."""

    scenario: Scenario

    @property
    def family(self) -> str:
        return self.scenario.family

    @property
    def name(self) -> str:
        return self.scenario.name

    @property
    def limit(self) -> int:
        return self.scenario.limit

    def request(self, seed: int) -> JsonObject:
        return self.scenario.request(seed)

    def first_fields(self) -> JsonObject:
        return self.scenario.first_fields()

    def world(self) -> World:
        return self.scenario.world()

    def judge(self, end: World, transcript: Transcript) -> Judgment:
        return self.scenario.judge(end, transcript)


class MeteredScenario(AdaptedScenario):
    """A scenario for a real model: adds the seed of the run, and requests the usage."""

    def request(self, seed: int) -> JsonObject:
        usage: JsonObject = {"stream_options": {"include_usage": True}}
        return {"seed": seed, **usage, **self.scenario.request(seed)}


class ModelSetup(Protocol):
    """A model, simulated or real."""

    @property
    def name(self) -> str:
        """The name in the records."""

    def open(self, *, is_ceiling: bool) -> AbstractAsyncContextManager[ModelTarget]:
        """Start the model without any state of earlier runs; returns its address."""

    def usage_of(self, case: str) -> CaseUsage | None:
        """Return the cost of a case; None if only the client can measure it."""

    def adapt(self, scenario: Scenario) -> Scenario:
        """Adapt a scenario to this model."""


@dataclass(slots=True)
class SimulatedSetup:
    """A simulated model in one cell of the grid of error rates."""

    profile: str
    cell: Cell = MID
    pace: float = 0.02
    find: CaseFinder = find_case
    window: int = WINDOW
    _server: SimulatedServer | None = None

    @property
    def name(self) -> str:
        """The profile, and the cell unless it is the middle cell: `p-small@low-mid-high`."""
        return self.profile if self.cell == MID else f"{self.profile}@{self.cell.name}"

    @asynccontextmanager
    async def open(self, *, is_ceiling: bool) -> AsyncGenerator[ModelTarget, None]:
        """Start the model.

        For the ceiling arm, the model makes no detectable errors and has a large window.
        """
        profile = load_profile(self.profile, self.cell)
        if is_ceiling:
            # the model still writes wrong values, which no proxy could detect
            profile = profile.without(frozenset(Flaw) - UNSEEN)
        window = max(self.window, _LARGE_WINDOW) if is_ceiling else self.window
        self._server = SimulatedServer(profile, self.pace, window=window, find=self.find)
        async with serve(self._server) as url:
            yield ModelTarget(url)

    def usage_of(self, case: str) -> CaseUsage | None:
        """Return the cost of a case so far."""
        return None if self._server is None else self._server.usage_of(case)

    def adapt(self, scenario: Scenario) -> Scenario:
        return scenario


def simulated_setup(name: str, pace: float = 0.0) -> SimulatedSetup:
    """Return a simulated model by its name, such as `p-small` or `p-small@low-mid-high`.

    Raises InvalidConfiguration.
    """
    profile, _, cell_name = name.partition("@")
    load_profile(profile)
    cells = {"": MID, **{cell.name: cell for cell in grid()}}
    if cell_name not in cells:
        known = ", ".join(filter(None, cells))
        raise InvalidConfiguration("--profile", f"unknown cell {cell_name!r}; known: {known}")
    return SimulatedSetup(profile, cells[cell_name], pace)


@dataclass(frozen=True, slots=True)
class ServedSetup:
    """A running server; `target` names its model."""

    name: str
    target: ModelTarget

    @asynccontextmanager
    async def open(self, *, is_ceiling: bool) -> AsyncGenerator[ModelTarget, None]:
        """Yield the server; `is_ceiling` is ignored: a real model cannot run without its errors."""
        yield self.target

    def usage_of(self, case: str) -> CaseUsage | None:
        return None

    def adapt(self, scenario: Scenario) -> Scenario:
        """Request the usage, and sample with the seed of the run."""
        return MeteredScenario(scenario)
