"""The requests of a measurement: conversations of agents in several sizes."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from benchmarks.load.client import Answer
from benchmarks.load.languages import CHAT, Dialect
from benchmarks.load.replies import Behavior, mark
from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue

_MESSAGES = 10
_LARGE_MESSAGES, _LARGE_TOOLS, _LARGE_BYTES = 200, 40, 625_000

_QUESTION = "Which of the files of this project have changed since the last release, and why? "
_RESULT = "src/server.py: 214 lines, last changed on Tuesday; its tests passed in 12.4 s.\n"
_GREETING: tuple[JsonObject, ...] = (
    {"role": "user", "content": "Hello! Do you know this project?"},
    {"role": "assistant", "content": "I shall have a look at it."},
)

_TEXT: JsonObject = {"type": "string", "description": "As it is written in the project."}
_MANY: JsonObject = {
    **{f"parameter_{number}": _TEXT for number in range(6)},
    "depth": {"type": "integer", "minimum": 0},
    "order": {"type": "string", "enum": ["name", "size", "date"]},
}
_TOOLS: tuple[tuple[str, JsonObject], ...] = (
    ("get_weather", {"city": _TEXT, "days": {"type": "integer", "minimum": 1}}),
    ("write_file", {"path": _TEXT, "text": {"type": "string"}}),
    ("read_file", {"path": _TEXT}),
)


@dataclass(frozen=True, slots=True)
class Workload:
    """A request that is sent repeatedly, and the expected reply."""

    behavior: Behavior
    messages: int = _MESSAGES
    tools: int = 3
    is_streamed: bool = True
    padding: int = 0
    language: Dialect = CHAT

    @property
    def body(self) -> bytes:
        body: JsonObject = {
            "model": "mock",
            "messages": _conversation(self.messages, self.padding, mark(self.behavior)),
            "stream": self.is_streamed,
            "temperature": 0.2,
        }
        if self.tools:
            body["tools"] = [_tool(number) for number in range(self.tools)]
        return json.dump(self.language.convert(body))

    def problem(self, answer: Answer) -> str:
        """Return the problem of a response, "" if there is none."""
        if answer.status != 200 or not answer.is_whole:
            beginning = " ".join(answer.beginning.decode(errors="replace").split())
            return f"status {answer.status}: {beginning[:200]}"
        if self.is_streamed and not answer.first_content:
            return "an answer without content"
        tokens = self.behavior.tokens if self.behavior.kind != "call" else 0
        count = len(answer.delays) if self.behavior.delay_ms else answer.words
        return f"{count} of {tokens} tokens arrived" if self.is_streamed and count < tokens else ""


def large(behavior: Behavior) -> Workload:
    """Return a request of 625 kB, like those of an agent that has worked for hours."""
    bare = Workload(behavior, _LARGE_MESSAGES, _LARGE_TOOLS, is_streamed=False)
    return replace(bare, padding=(_LARGE_BYTES - len(bare.body)) // (_LARGE_MESSAGES // 4))


def _conversation(length: int, padding: int, mark_text: str) -> list[JsonValue]:
    """Return a conversation of `length` messages, an even number.

    The tool results have `padding` characters, but at least one line.
    """
    rounds, greetings = divmod(length - 2, 4)
    return [
        {"role": "system", "content": "You are a careful assistant."},
        *_GREETING[:greetings],
        *(message for number in range(rounds) for message in _round(number, padding)),
        {"role": "user", "content": f"{_QUESTION}{mark_text}"},
    ]


def _round(number: int, padding: int) -> tuple[JsonValue, ...]:
    call_id = f"call_{number}"
    function: JsonObject = {"name": "read_file", "arguments": f'{{"path":"src/part_{number}.py"}}'}
    call: JsonObject = {"id": call_id, "type": "function", "function": function}
    result = (_RESULT * (padding // len(_RESULT) + 1))[: max(padding, len(_RESULT))]
    return (
        {"role": "user", "content": _QUESTION * 2},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call_id, "content": result},
        {"role": "assistant", "content": f"Part {number} has changed. {_RESULT}"},
    )


def _tool(number: int) -> JsonObject:
    """Describe a tool; the first three are the tools that the model calls."""
    name, properties = _TOOLS[number] if number < len(_TOOLS) else (f"inspect_{number}", _MANY)
    return describe_tool(name, properties, required=[*properties])


def describe_tool(name: str, properties: JsonObject, required: Sequence[str]) -> JsonObject:
    """Describe a tool in the format of chat completions."""
    parameters: JsonObject = {
        "type": "object",
        "properties": properties,
        "required": [*required],
        "additionalProperties": False,
    }
    function: JsonObject = {
        "name": name,
        "description": f"Use {name} where it saves the user work. It returns text, or an error.",
        "parameters": parameters,
    }
    return {"type": "function", "function": function}
