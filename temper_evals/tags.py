"""Selects scenarios by name and by tags.

The tags of a scenario are its family, the properties of this family, and those of its request.

Tags are not part of the scenario files, because a change of those files changes the protocol hash.
"""

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from difflib import get_close_matches

from proxy.errors import InvalidConfiguration
from temper_evals.scenarios.scenario import Scenario
from temper_evals.scenarios.suite import HELD_OUT, RESTRAINT
from temper_evals.scenarios.worlds import objects_in

_MANY_TOOLS = 10
_MOST_NAMES = 5  # in an error
_FAMILIES: Mapping[str, Set[str]] = {
    "one-call": {"single", "choose", "schema", "verbatim", "composed", "unseen"},
    "at-once": {"parallel", "calendar"},
    "several-steps": {
        *("chain", "branch", "failing", "long", "ordered"),
        *("calendar", "refactoring", "travel", "triage"),
    },
    "errors": {"failing", "calendar", "refactoring", "travel"},
    "arguments": {"schema", "verbatim"},
    "quoted": {"trap", "triage"},
    "restraint": {*RESTRAINT},
    "held-out": {*HELD_OUT},
}
_MEMBERS = {
    "rules": {"temper"},
    "constrained": {"tool_choice", "response_format", "parallel_tool_calls"},
}


def tags_of(scenario: Scenario) -> list[str]:
    request = {**scenario.request(0), **scenario.first_fields()}
    count = len(objects_in(request.get("tools")))
    roles = {message.get("role") for message in objects_in(request.get("messages"))}
    conditions = {
        **{name: scenario.family in families for name, families in _FAMILIES.items()},
        **{name: not members.isdisjoint(request) for name, members in _MEMBERS.items()},
        "no-tools": not count,
        "many-tools": count >= _MANY_TOOLS,
        "system": "system" in roles,
    }
    return [scenario.family, *(name for name, is_so in conditions.items() if is_so)]


def with_names(scenarios: Sequence[Scenario], wanted: Sequence[str]) -> Sequence[Scenario]:
    """Return the scenarios with these names; all for an empty list.

    Raises InvalidConfiguration with the list of similar names.
    """
    if not wanted:
        return scenarios
    known = [scenario.name for scenario in scenarios]
    for name in wanted:
        if name not in known:
            near = ", ".join(get_close_matches(name, known)) or ", ".join(known[:_MOST_NAMES])
            problem = f"no task has the name {name!r}; known: {near} (--list shows all)"
            raise InvalidConfiguration("--task", problem)
    return [scenario for scenario in scenarios if scenario.name in wanted]


def with_tags(scenarios: Sequence[Scenario], wanted: Sequence[str]) -> Sequence[Scenario]:
    """Return the scenarios with any of these tags; all for an empty list.

    Raises InvalidConfiguration with the list of known tags.
    """
    if not wanted:
        return scenarios
    tags = {scenario.name: tags_of(scenario) for scenario in scenarios}
    known = Counter(tag for each in tags.values() for tag in each)
    for tag in wanted:
        if tag not in known:
            listed = ", ".join(f"{name} ({count})" for name, count in sorted(known.items()))
            raise InvalidConfiguration("--tag", f"no task has the tag {tag!r}; known: {listed}")
    return [scenario for scenario in scenarios if not {*wanted}.isdisjoint(tags[scenario.name])]
