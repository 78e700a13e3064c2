"""Runs the scenarios of a checkout of forge, with its tools and its judgment.

The modules of the checkout are executed unchanged. They import three classes from forge; the
classes in this module replace them, so that forge need not be installed.
"""

import importlib.util
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Protocol

from pydantic import BaseModel, ValidationError

from proxy.conversation.json import JsonObject, JsonValue
from proxy.errors import InvalidConfiguration
from temper_evals.scenarios.scenario import Judgment, PlannedCall, ToolFailed, Transcript, World

_SCENARIOS = Path("tests/eval/scenarios/__init__.py")
_MODULE = "proxy_evals_forge_scenarios"
_NAMES = ("forge", "forge.core", "forge.core.workflow")


@dataclass
class ToolSpec:
    """The description of a tool for the model."""

    name: str
    description: str
    parameters: type[BaseModel]


class ToolFunction(Protocol):
    """The implementation of a tool."""

    def __call__(self, **arguments: JsonValue) -> object:
        """Run the tool."""


@dataclass
class ToolDef:
    """A tool: its description and its implementation."""

    spec: ToolSpec
    callable: ToolFunction


@dataclass
class Workflow:
    """Tools, the steps that are required, the tool that ends a run, and the system prompt."""

    name: str
    description: str
    tools: dict[str, ToolDef]
    required_steps: list[str]
    terminal_tool: str
    system_prompt_template: str


class ForeignScenario(Protocol):
    """A scenario of the checkout."""

    name: str
    user_message: str
    max_iterations: int
    workflow: Workflow
    validate: Callable[[Mapping[str, JsonValue]], bool] | None
    validate_state: Callable[[], bool] | None
    build_workflow: Callable[[], tuple[Workflow, Callable[[], bool] | None]] | None


@dataclass
class ForgeWorld:
    """The tools of one run, and the calls that succeeded."""

    workflow: Workflow
    is_good: Callable[[], bool] | None
    calls: list[PlannedCall] = field(default_factory=list)

    def call(self, name: str, arguments: JsonObject) -> str:
        tool = self.workflow.tools.get(name)
        if tool is None:
            raise ToolFailed(f"unknown tool {name!r}")
        try:
            tool.spec.parameters.model_validate(arguments)
            result = tool.callable(**arguments)
        except ValidationError as error:
            raise ToolFailed(str(error.errors(include_url=False)[0]["msg"])) from error
        # tools of a foreign checkout may raise any exception; the model receives it as an error
        except Exception as error:
            raise ToolFailed(f"{type(error).__name__}: {error}") from error
        self.calls.append(PlannedCall(name, arguments))
        return str(result)


class ForgeScenario:
    """A scenario of forge with the interface of `Scenario`."""

    family = "forge"

    def __init__(self, scenario: ForeignScenario) -> None:
        self.name = f"forge-{scenario.name}"
        self.limit = scenario.max_iterations
        self._scenario = scenario

    def request(self, seed: int) -> JsonObject:
        workflow = self.world().workflow
        messages: list[JsonValue] = [
            {"role": "system", "content": workflow.system_prompt_template},
            {"role": "user", "content": self._scenario.user_message},
        ]
        tools: list[JsonValue] = [_describe(tool.spec) for tool in workflow.tools.values()]
        return {"messages": messages, "tools": tools, "seed": seed}

    def first_fields(self) -> JsonObject:
        return {}

    def world(self) -> ForgeWorld:
        """Return the tools of a run; a scenario with a state gets new tools for each run."""
        if self._scenario.build_workflow is not None:
            return ForgeWorld(*self._scenario.build_workflow())
        return ForgeWorld(self._scenario.workflow, self._scenario.validate_state)

    def judge(self, end: World, transcript: Transcript) -> Judgment:
        """Judge a run as forge does: by the call that ends it, and by the state."""
        assert isinstance(end, ForgeWorld)  # noqa: S101 - made by `world`
        last = [call for call in end.calls if call.name == end.workflow.terminal_tool]
        if not last:
            why = f"missing call: {end.workflow.terminal_tool}"
        elif self._scenario.validate is not None and not self._scenario.validate(
            last[-1].arguments
        ):
            why = "the arguments of the last call are wrong"
        elif end.is_good is not None and not end.is_good():
            why = "the state is wrong"
        else:
            why = ""
        return Judgment(right=not why, why=why)


def load_forge(checkout: Path) -> list[ForgeScenario]:
    """Load forge's scenarios; raises InvalidConfiguration."""
    path = checkout / _SCENARIOS
    spec = importlib.util.spec_from_file_location(
        _MODULE, path, submodule_search_locations=[str(path.parent)]
    )
    if not path.is_file() or spec is None or spec.loader is None:
        raise InvalidConfiguration("--forge-checkout", f"{checkout} has no {_SCENARIOS}")
    module = importlib.util.module_from_spec(spec)
    with _replaced_modules():
        sys.modules[_MODULE] = module
        spec.loader.exec_module(module)
    scenarios: list[ForeignScenario] = module.ALL_SCENARIOS
    return [ForgeScenario(scenario) for scenario in scenarios]


@contextmanager
def _replaced_modules() -> Iterator[None]:
    """Let `import forge.core.workflow` return this module's classes."""
    before = {name: sys.modules.get(name) for name in _NAMES}
    workflow = ModuleType(_NAMES[-1])
    workflow.__dict__.update(ToolDef=ToolDef, ToolSpec=ToolSpec, Workflow=Workflow)
    sys.modules.update({name: ModuleType(name) for name in _NAMES[:-1]} | {_NAMES[-1]: workflow})
    try:
        yield
    finally:
        for name, module in before.items():
            if module is None:
                del sys.modules[name]
            else:
                sys.modules[name] = module


def _describe(spec: ToolSpec) -> JsonObject:
    parameters: JsonObject = spec.parameters.model_json_schema()
    function: JsonObject = {
        "name": spec.name,
        "description": spec.description,
        "parameters": parameters,
    }
    return {"type": "function", "function": function}
