import sys
from pathlib import Path

import pytest

from proxy.errors import InvalidConfiguration
from temper_evals.forge_checkout import ForgeScenario, load_forge
from temper_evals.scenarios.scenario import PlannedCall
from temper_evals.scenarios.task import try_call

BASE = """
from dataclasses import dataclass, field
from typing import Any
from forge.core.workflow import Workflow


@dataclass
class EvalScenario:
    name: str
    workflow: Workflow
    user_message: str
    max_iterations: int = 15
    validate: Any = None
    validate_state: Any = None
    build_workflow: Any = None
"""
SCENARIOS = """
from pydantic import BaseModel
from forge.core.workflow import ToolDef, ToolSpec, Workflow
from ._base import EvalScenario


class City(BaseModel):
    city: str


def make():
    seen = []

    def look(city):
        if city == "Atlantis":
            raise TypeError("it is lost")
        seen.append(city)
        return f"{city} is warm"

    tools = {
        "look": ToolDef(spec=ToolSpec("look", "Look.", City), callable=look),
        "tell": ToolDef(spec=ToolSpec("tell", "Tell.", City), callable=lambda **kw: "told"),
    }
    flow = Workflow("w", "", tools, ["look"], "tell", "Be brief.")
    return flow, lambda: seen == ["Oslo"]


plain = EvalScenario("plain", make()[0], "Is it warm?", 4, lambda args: args["city"] == "Oslo")
stateful = EvalScenario("stateful", make()[0], "Is it warm?", build_workflow=make)
ALL_SCENARIOS = [plain, stateful]
"""
LOOK, TELL = PlannedCall("look", {"city": "Oslo"}), PlannedCall("tell", {"city": "Oslo"})


@pytest.fixture
def scenarios(tmp_path: Path) -> dict[str, ForgeScenario]:
    folder = tmp_path / "tests" / "eval" / "scenarios"
    folder.mkdir(parents=True)
    (folder / "_base.py").write_text(BASE)
    (folder / "__init__.py").write_text(SCENARIOS)
    return {scenario.name: scenario for scenario in load_forge(tmp_path)}


def judged(scenario: ForgeScenario, *calls: PlannedCall) -> str:
    world = scenario.world()
    for call in calls:
        try_call(world, call)
    return scenario.judge(world, []).why


def test_the_request_for_a_forge_scenario_has_its_prompts_and_tools(
    scenarios: dict[str, ForgeScenario],
) -> None:
    plain = scenarios["forge-plain"]
    request = plain.request(3)
    assert isinstance(request["tools"], list)
    assert len(request["tools"]) == 2
    assert str(request["messages"]).count("Is it warm?") == 1
    assert (plain.limit, plain.family, plain.first_fields()) == (4, "forge", {})


def test_a_forge_scenario_is_judged_by_its_last_call_and_by_its_state(
    scenarios: dict[str, ForgeScenario],
) -> None:
    plain, stateful = scenarios["forge-plain"], scenarios["forge-stateful"]
    assert judged(plain, LOOK, TELL) == judged(stateful, LOOK, TELL) == ""
    assert "missing call: tell" in judged(plain, LOOK)
    assert "arguments" in judged(plain, PlannedCall("tell", {"city": "Rome"}))
    assert "state" in judged(stateful, TELL)
    assert judged(stateful, LOOK, TELL) == ""  # the state of the previous run is gone


def test_an_exception_of_a_tool_is_returned_to_the_model(
    scenarios: dict[str, ForgeScenario],
) -> None:
    world = scenarios["forge-plain"].world()
    assert try_call(world, LOOK) == "Oslo is warm"
    assert "it is lost" in try_call(world, PlannedCall("look", {"city": "Atlantis"}))
    assert "required" in try_call(world, PlannedCall("look", {}))
    assert "unknown tool" in try_call(world, PlannedCall("walk", {}))
    assert [call.name for call in world.calls] == ["look"]


def test_loading_scenarios_does_not_import_forge(scenarios: dict[str, ForgeScenario]) -> None:
    assert scenarios
    assert "forge.core.workflow" not in sys.modules


def test_a_checkout_without_forge_scenarios_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfiguration, match="has no"):
        load_forge(tmp_path)
