"""What is under the arms: a simulated model, or a server that runs somewhere."""

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
from temper_evals.scenarios.scenario import Judgement, Scenario, Transcript, World
from temper_evals.simulated.profiles import MID, UNSEEN, Cell, Flaw, grid, load_profile
from temper_evals.simulated.server import CaseUsage, SimulatedServer, serve

_LARGE_WINDOW = 65_536
_WINDOW, _SLOTS = 8192, 4

# Gets the name of a step that may take long, before it begins.
OnStep = Callable[[str], object]


def plan_launch(
    model: Path | str, name: str, *, server: Path | None = None, window: int | None = None
) -> LaunchPlan:
    """Plan a llama-server for a model that is measured; raises `LaunchFailed` without a program."""
    return LaunchPlan(find_program(server), model, window or _WINDOW, slots=_SLOTS, alias=name)


@asynccontextmanager
async def start_model(launch: LaunchPlan, on_step: OnStep) -> AsyncGenerator[ModelTarget, None]:
    """Start a llama-server and yield its model when it is ready; it ends with the block.

    Raises `ProcessFailed` kinds of errors.
    """

    def on_stage(progress: StartProgress) -> None:
        on_step(f"{progress.stage} {progress.name}")

    async with start_llama_server(launch, on_stage=on_stage) as running:
        headers = {"authorization": f"Bearer {running.api_key}"}
        yield ModelTarget(running.base_url, launch.alias or "", headers)


@dataclass(frozen=True, slots=True)
class MeteredScenario:
    """A scenario for a real model: sampled with the seed of the run, and asked for its usage."""

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
        usage: JsonObject = {"stream_options": {"include_usage": True}}
        return {"seed": seed, **usage, **self.scenario.request(seed)}

    def first_fields(self) -> JsonObject:
        return self.scenario.first_fields()

    def world(self) -> World:
        return self.scenario.world()

    def judge(self, end: World, transcript: Transcript) -> Judgement:
        return self.scenario.judge(end, transcript)


class ModelSetup(Protocol):
    """What is under the arms: a model, simulated or real, and what it knows of a run's cost."""

    @property
    def name(self) -> str:
        """The name in the records."""

    def open(self, *, is_ceiling: bool) -> AbstractAsyncContextManager[ModelTarget]:
        """Start it afresh; the target is the model itself."""

    def usage_of(self, case: str) -> CaseUsage | None:
        """Tell what a case has cost; None where only the client knows."""

    def adapt(self, scenario: Scenario) -> Scenario:
        """Make a scenario one for this model."""


@dataclass(slots=True)
class SimulatedSetup:
    """A simulated model in one cell of the grid."""

    profile: str
    cell: Cell = MID
    pace: float = 0.02
    _server: SimulatedServer | None = None

    @property
    def name(self) -> str:
        """The profile, and the cell where it is not the middle one."""
        return self.profile if self.cell == MID else f"{self.profile}@{self.cell.name}"

    @asynccontextmanager
    async def open(self, *, is_ceiling: bool) -> AsyncGenerator[ModelTarget, None]:
        """Start it afresh; a ceiling errs only where nobody could see it, and forgets nothing."""
        profile = load_profile(self.profile, self.cell)
        if is_ceiling:
            profile = profile.without(frozenset(Flaw) - UNSEEN)
            self._server = SimulatedServer(profile, self.pace, window=_LARGE_WINDOW)
        else:
            self._server = SimulatedServer(profile, self.pace)
        async with serve(self._server) as url:
            yield ModelTarget(url)

    def usage_of(self, case: str) -> CaseUsage | None:
        """Tell what a case has cost."""
        return None if self._server is None else self._server.usage_of(case)

    def adapt(self, scenario: Scenario) -> Scenario:
        return scenario


def simulated_setup(name: str, pace: float = 0.0) -> SimulatedSetup:
    """Return a simulated model by its name, with a cell of the grid behind an at sign or without.

    Raises InvalidConfiguration.
    """
    profile, _, wanted = name.partition("@")
    load_profile(profile)
    cells = {"": MID, **{cell.name: cell for cell in grid()}}
    if wanted not in cells:
        known = ", ".join(filter(None, cells))
        raise InvalidConfiguration("--profile", f"there is no cell {wanted!r}; known: {known}")
    return SimulatedSetup(profile, cells[wanted], pace)


@dataclass(frozen=True, slots=True)
class ServedSetup:
    """A server that runs; `model` is what it calls its model."""

    name: str
    target: ModelTarget

    @asynccontextmanager
    async def open(self, *, is_ceiling: bool) -> AsyncGenerator[ModelTarget, None]:
        """Yield the server; it has no ceiling that anybody knows."""
        yield self.target

    def usage_of(self, case: str) -> CaseUsage | None:
        return None

    def adapt(self, scenario: Scenario) -> Scenario:
        """Have the model tell its usage, and draw with the seed of the run."""
        return MeteredScenario(scenario)
