"""A world of canned results and recorded changes: the state that a scenario's tools act on.

A reading tool has a result for each known set of arguments. A writing tool records a change and
returns a reference that the model cannot guess. Arguments must satisfy the tool's schema.
"""

import hashlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NoReturn

import jsonschema_rs

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from temper_evals.scenarios.scenario import PlannedCall, ToolFailed

_NOTHING_FOUND = "nothing was found for these arguments"


@dataclass(frozen=True, slots=True)
class CannedOutcome:
    """The result of a tool, or its failure."""

    result: JsonValue
    fails: bool = False


def key_of(name: str, arguments: JsonObject) -> str:
    """Return a text that is equal for equal calls, independent of the order of arguments."""
    return f"{name} {json.dump_text(_sort_members(arguments))}"


def _sort_members(value: JsonValue) -> JsonValue:
    match value:
        case dict():
            return {name: _sort_members(value[name]) for name in sorted(value)}
        case list():
            return [_sort_members(item) for item in value]
        case _:
            return value


def reference(case: str, name: str, arguments: JsonObject) -> str:
    """Return the reference of a change, such as `REF-012345`; equal changes have equal references.

    The user asks for the reference, and the model can know it only from the result of the call.
    """
    digest = hashlib.blake2b(f"{case} {key_of(name, arguments)}".encode(), digest_size=4)
    return f"REF-{int.from_bytes(digest.digest()) % 1_000_000:06}"


@dataclass(frozen=True, slots=True)
class Setting:
    """The initial state of a world: its tools, their outcomes, and the tools that change it.

    The n-th call with the same arguments gets the n-th outcome; the last outcome repeats.
    """

    case: str
    tools: tuple[JsonObject, ...]
    outcomes: Mapping[str, tuple[CannedOutcome, ...]]
    writers: frozenset[str]


@dataclass(slots=True)
class CannedWorld:
    """The state of a world during a run: the executed calls and the changes."""

    setting: Setting
    changes: list[PlannedCall] = field(default_factory=list)
    calls: list[PlannedCall] = field(default_factory=list)
    _times: Counter[str] = field(default_factory=Counter)

    def call(self, name: str, arguments: JsonObject) -> str:
        self._check(name, arguments)
        self.calls.append(PlannedCall(name, arguments))
        key = key_of(name, arguments)
        is_change = name in self.setting.writers
        usual = CannedOutcome(None if is_change else _NOTHING_FOUND, fails=not is_change)
        outcomes = self.setting.outcomes.get(key, (usual,))
        outcome = outcomes[min(self._times[key], len(outcomes) - 1)]
        self._times[key] += 1
        if outcome.fails:
            raise ToolFailed(str(outcome.result))
        if is_change:
            self.changes.append(self.calls[-1])
        return _return_value(self.setting, self.calls[-1], outcome)

    def _check(self, name: str, arguments: JsonObject) -> None:
        if (problem := objection(self.setting.tools, name, arguments)) is not None:
            raise ToolFailed(problem)


def objection(tools: tuple[JsonObject, ...], name: str, arguments: JsonObject) -> str | None:
    """Return the problem of a call; None if the tool exists and the arguments fit."""
    schema = schema_of(tools, name)
    if schema is None:
        known = ", ".join(map(tool_name, tools))
        return f"unknown tool {name!r}; known tools: {known}"
    error = next(iter(_validator(json.dump_text(schema)).iter_errors(arguments)), None)
    if error is None:
        return None
    location = "/".join(map(str, error.instance_path))
    return f"invalid arguments at /{location}: {error.message}"


@lru_cache(maxsize=512)
def _validator(schema: str) -> jsonschema_rs.Validator:
    return validator_of(schema)


def validator_of(schema: JsonObject | str) -> jsonschema_rs.Validator:
    """Compile a schema without fetching references; raises ValueError."""
    # a scenario file must not make the machine fetch URLs
    return jsonschema_rs.validator_for(schema, retriever=_refuse)


def _refuse(address: str) -> NoReturn:
    raise ValueError(f"{address} is not fetched")


def error_text(problem: str) -> str:
    """Return the result that a failed tool sends to the model."""
    return json.dump_text({"error": problem})


def possible_results(setting: Setting, call: PlannedCall) -> dict[str, bool]:
    """Return each possible result of a valid call, with True if it is a planned failure."""
    outcomes = setting.outcomes.get(key_of(call.name, call.arguments))
    if outcomes is None:
        is_change = call.name in setting.writers
        return {_reference_text(setting, call): False} if is_change else {}
    return {
        error_text(str(outcome.result))
        if outcome.fails
        else _return_value(setting, call, outcome): outcome.fails
        for outcome in outcomes
    }


def _return_value(setting: Setting, call: PlannedCall, outcome: CannedOutcome) -> str:
    is_change = call.name in setting.writers
    return _reference_text(setting, call) if is_change else outcome_text(outcome.result)


def _reference_text(setting: Setting, call: PlannedCall) -> str:
    return json.dump_text({"reference": reference(setting.case, call.name, call.arguments)})


def outcome_text(result: JsonValue) -> str:
    """Return a result as the model reads it."""
    return result if isinstance(result, str) else json.dump_text(result)


def objects_in(value: JsonValue) -> list[JsonObject]:
    """Return the objects of a list; empty for any other value."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def function_of(tool: JsonObject) -> JsonObject:
    """Return the function that a tool of a request describes."""
    function = tool.get("function")
    return function if isinstance(function, dict) else {}


def tool_name(tool: JsonObject) -> str:
    return str(function_of(tool).get("name", ""))


def schema_of(tools: tuple[JsonObject, ...], name: str) -> JsonObject | None:
    """Return the schema of a tool's arguments; None for an unknown tool."""
    for tool in tools:
        if tool_name(tool) == name:
            schema = function_of(tool).get("parameters")
            return schema if isinstance(schema, dict) else {}
    return None
