"""Reads the response to a chat request.

A call is usable if it names an offered tool and its arguments satisfy the tool's schema.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.dialects.lenient_json import member
from proxy.guardrails.schemas.schema import Schema, compile_schema
from temper_evals.demo.scenarios import Call, DemoScenario

# an HTML error page would fill the terminal
_LONGEST_SAMPLE = 80

# descriptions of the entries of `x-temper-repairs`
_REPAIRS = {
    "rescued": "call found in the text: {}",
    "repaired": "invalid JSON repaired: {}",
    "coerced": "values converted: {}",
    "renamed": "tool names matched: {}",
    "announced": "announced, and made after a retry",
}


class AnswerKind(Enum):
    """The kind of a response for a program that expects a call."""

    CALL = "call"
    UNUSABLE_CALL = "unusable call"
    TEXT = "text"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class ClientAnswer:
    """A response: its kind, its content as text, and a description of Temper's repairs (`effort`).

    `calls` are the calls of a usable response.
    """

    kind: AnswerKind
    words: str
    effort: str = ""
    calls: tuple[Call, ...] = field(default=(), compare=False)

    @property
    def is_usable(self) -> bool:
        return self.kind is AnswerKind.CALL


@dataclass(frozen=True, slots=True)
class Comparison:
    """One request with the responses without Temper and through it."""

    scenario: DemoScenario
    without: ClientAnswer
    through: ClientAnswer

    @property
    def model_text(self) -> str:
        """The scripted reply, or the response of a language model without Temper."""
        return self.scenario.reply or self.without.words

    def is_wrong(self, answer: ClientAnswer) -> bool:
        """Return whether the right call is known and the response is not this call."""
        return self.scenario.right is not None and answer.calls != (self.scenario.right,)


def read_answer(
    body: bytes, headers: Mapping[str, str], tools: Sequence[JsonObject]
) -> ClientAnswer:
    """Read a chat completion or an error; `headers` have lower-case names."""
    effort = _describe_repairs(headers)
    try:
        document = json.parse(body)
    except ValueError:
        sample = body[:_LONGEST_SAMPLE].decode("utf-8", "replace")
        return ClientAnswer(AnswerKind.ERROR, f"not JSON: {sample}", effort)
    message = member(document, "choices", 0, "message")
    calls = member(message, "tool_calls")
    if isinstance(calls, list) and calls:
        schemas = _schemas(tools)
        words = ", ".join(_as_python(call) for call in calls)
        if not all(_is_usable(call, schemas) for call in calls):
            return ClientAnswer(AnswerKind.UNUSABLE_CALL, words, effort)
        read = tuple(_name_and_arguments(call) for call in calls)
        return ClientAnswer(AnswerKind.CALL, words, effort, read)
    text = member(message, "content")
    if isinstance(text, str):
        return ClientAnswer(AnswerKind.TEXT, text, effort)
    reason = member(document, "error", "message")
    return ClientAnswer(AnswerKind.ERROR, str(reason) if reason else "an empty answer", effort)


def _is_usable(call: JsonValue, schemas: Mapping[str, Schema]) -> bool:
    name, arguments = _name_and_arguments(call)
    schema = schemas.get(name)
    return schema is not None and isinstance(arguments, dict) and schema.is_valid(arguments)


def _schemas(tools: Sequence[JsonObject]) -> dict[str, Schema]:
    return {
        str(member(tool, "function", "name")): compile_schema(schema)
        for tool in tools
        if isinstance(schema := member(tool, "function", "parameters"), dict)
    }


def _as_python(call: JsonValue) -> str:
    """Write a call as Python would, which is easier to read than JSON in JSON."""
    name, arguments = _name_and_arguments(call)
    if not isinstance(arguments, dict):
        return f"{name}({arguments})"
    listed = (f"{key}={json.dump_text(value)}" for key, value in arguments.items())
    return f"{name}({', '.join(listed)})"


def _name_and_arguments(call: JsonValue) -> Call:
    name = str(member(call, "function", "name"))
    arguments = member(call, "function", "arguments")
    try:
        return name, json.parse(str(arguments))
    except ValueError:
        return name, arguments


def _describe_repairs(headers: Mapping[str, str]) -> str:
    """Describe Temper's repairs; `x-temper-repairs: renamed=a` gives "tool names matched: a"."""
    attempts = int(headers.get("x-temper-attempts", "1"))
    done = [f"{attempts} attempts"] if attempts > 1 else []
    for part in headers.get("x-temper-repairs", "").split(";"):
        repair, _, detail = part.partition("=")
        done += [_REPAIRS.get(repair, f"{repair}: {{}}").format(detail)] if part else []
    return "; ".join(done)
