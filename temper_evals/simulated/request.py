"""Reads a request for the simulated model: its case, tools and constraints on the reply."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from temper_evals.scenarios.suite import task_named
from temper_evals.scenarios.task import PlannedTask
from temper_evals.scenarios.worlds import function_of, objects_in, tool_name

# an instruction such as "answer only DONE", which the simulated model follows
_ONLY_WORD = re.compile(r"\banswer only ([A-Z]+)\b")
_CASE = re.compile(r"\[case ([a-z_]+-\d+)/(\d+)\]")


@dataclass(frozen=True, slots=True)
class SimulatedRequest:
    """A request; `key` is the name of its task and the seed, such as `chain-3/0`.

    `choice` is the tool choice, such as "auto"; if it is "named", `named` is the tool. `schema` is
    the schema of the response format.
    """

    task: PlannedTask
    seed: int
    messages: tuple[JsonObject, ...]
    tools: tuple[JsonObject, ...]
    choice: str
    named: str
    schema: JsonObject | None
    key: str

    @property
    def answer_tool(self) -> JsonObject | None:
        """The proxy's answer tool: a tool that the task does not have, with a text parameter."""
        known = {tool_name(tool) for tool in self.task.setting.tools}
        for tool in self.tools:
            if tool_name(tool) not in known and text_parameter(tool):
                return tool
        return None

    @property
    def allowed(self) -> frozenset[str]:
        """The names of the tools that the schema allows to call; empty for other schemas."""
        return frozenset(tool_name(tool) for tool in _tools_in(self.schema or {}))

    @property
    def hidden_answer_tool(self) -> JsonObject | None:
        """An answer tool that occurs only in the schema of a constrained reply."""
        known = {tool_name(tool) for tool in self.task.setting.tools}
        for tool in _tools_in(self.schema or {}):
            if tool_name(tool) not in known and text_parameter(tool):
                return tool
        return None

    @property
    def closing_word(self) -> str:
        """The word with which a finished model must answer, from the last message; or ""."""
        last = self.messages[-1]
        match = _ONLY_WORD.search(_text(last)) if last.get("role") == "user" else None
        return match[1] if match else ""

    @property
    def forces_call(self) -> bool:
        return self.choice in ("required", "named")


def text_parameter(tool: JsonObject) -> str:
    """Return the name of a tool's first parameter that is a text; "" if it has none."""
    parameters = function_of(tool).get("parameters")
    properties = parameters.get("properties") if isinstance(parameters, dict) else None
    for name, kind in (properties if isinstance(properties, dict) else {}).items():
        if isinstance(kind, dict) and kind.get("type") == "string":
            return name
    return ""


def _tools_in(schema: JsonObject) -> list[JsonObject]:
    """Return the tools that a schema of calls allows.

    `{"properties": {"name": {"const": "f"}, "arguments": S}}` allows the tool `f` with the
    parameters S.
    """
    tools: list[JsonObject] = []
    for form in objects_in(schema.get("anyOf")) or [schema]:
        properties = form.get("properties")
        members = properties if isinstance(properties, dict) else {}
        name, arguments = members.get("name"), members.get("arguments")
        if isinstance(name, dict) and isinstance(arguments, dict):
            parameters = _resolve(arguments, schema)
            tools.append({"function": {"name": name.get("const"), "parameters": parameters}})
    return tools


def _resolve(arguments: JsonObject, schema: JsonObject) -> JsonValue:
    """Resolve a `$ref` to a definition of the schema."""
    reference, definitions = arguments.get("$ref"), schema.get("$defs")
    name = reference.removeprefix("#/$defs/") if isinstance(reference, str) else ""
    return definitions.get(name, arguments) if isinstance(definitions, dict) else arguments


@dataclass(frozen=True, slots=True)
class SimulatedCase:
    """The task that a request belongs to, and the seed of the run; `key` names both."""

    key: str
    task: PlannedTask
    seed: int


CaseFinder: TypeAlias = Callable[[JsonObject], SimulatedCase | None]


def find_case(body: JsonObject) -> SimulatedCase | None:
    """Find the case that the messages of a request name; None if they name no known case."""
    messages = objects_in(body.get("messages"))
    match = next((hit for message in messages if (hit := _CASE.search(_text(message)))), None)
    task = task_named(match[1]) if match else None
    if match is None or task is None:
        return None
    return SimulatedCase(f"{match[1]}/{int(match[2])}", task, int(match[2]))


def read_request(body: JsonObject, find: CaseFinder = find_case) -> SimulatedRequest | None:
    """Read a request; None if its case is unknown."""
    case = find(body)
    if case is None:
        return None
    choice, named = _choice(body.get("tool_choice"))
    return SimulatedRequest(
        case.task,
        case.seed,
        tuple(objects_in(body.get("messages"))),
        tuple(objects_in(body.get("tools"))),
        choice,
        named,
        _schema(body),
        case.key,
    )


def render_prompt(body: JsonObject) -> str:
    """Write a request as a prompt, tools first."""
    tools = json.dump_text(body.get("tools", []))
    return tools + "".join(
        f"<|{turn.get('role')}|>{_text(turn)}{json.dump_text(turn.get('tool_calls', ''))}\n"
        for turn in objects_in(body.get("messages"))
    )


def _text(message: JsonObject) -> str:
    content = message.get("content")
    if isinstance(content, str):
        return content
    return "" if content is None else json.dump_text(content)


def _choice(value: object) -> tuple[str, str]:
    if isinstance(value, dict):
        function = value.get("function")
        return "named", str(function.get("name")) if isinstance(function, dict) else ""
    return (value if isinstance(value, str) else "auto"), ""


def _schema(body: JsonObject) -> JsonObject | None:
    form = body.get("response_format")
    inner = form.get("json_schema") if isinstance(form, dict) else None
    schema = inner.get("schema") if isinstance(inner, dict) else None
    return schema if isinstance(schema, dict) else None
