"""The tools that the tiny model knows, what people say who want them, and what they return.

Some are held out of its training. Others are put together from a verb and a noun, so that it has
to read what a tool is called; of those, some pairs are held out.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass

from proxy.conversation.json import JsonObject
from temper_evals.tiny_model.values import DOMAIN, NUMBERS, is_held_out

_COMPOSED: Mapping[str, list[str]] = DOMAIN["composed"]


@dataclass(frozen=True, slots=True)
class TinyTool:
    """A tool: its parameters with their kinds of values, wordings of a wish for it, its result.

    `result` is the kind of value it returns; `changes` tells whether a call leaves traces.
    """

    name: str
    parameters: Mapping[str, str]
    wordings: tuple[str, ...]
    result: str
    changes: bool = False

    def type_of(self, parameter: str) -> str:
        """Return the JSON type of a parameter."""
        return "integer" if self.parameters[parameter] in NUMBERS else "string"

    def describe(self) -> JsonObject:
        """Return the tool as a request offers it."""
        properties: JsonObject = {name: {"type": self.type_of(name)} for name in self.parameters}
        schema: JsonObject = {
            "type": "object",
            "properties": properties,
            "required": [*properties],
            "additionalProperties": False,
        }
        words = self.name.replace("_", " ").capitalize()
        function: JsonObject = {"name": self.name, "description": words, "parameters": schema}
        return {"type": "function", "function": function}


@dataclass(frozen=True, slots=True)
class ToolChain:
    """Two tools of which the second takes what the first returns, and a wish for both."""

    first: str
    second: str
    wording: str


def _chain(of: tuple[str, str], wording: str) -> ToolChain:
    first, second = of
    return ToolChain(first, second, wording)


def _tools(key: str) -> tuple[TinyTool, ...]:
    return tuple(TinyTool(**{**one, "wordings": tuple(one["wordings"])}) for one in DOMAIN[key])


TOOLS = _tools("tool")
HELD_OUT_TOOLS = _tools("held_out_tool")
CHAINS = tuple(_chain(one["tools"], one["wording"]) for one in DOMAIN["chain"])


def tool_named(name: str) -> TinyTool:
    """Return a tool that has its place in the list."""
    return next(one for one in (*TOOLS, *HELD_OUT_TOOLS) if one.name == name)


def composed_tool(draw: random.Random, *, held_out: bool) -> TinyTool:
    """Put a tool together from a verb and a noun; its wish names both."""
    while True:
        verb, noun = draw.choice(_COMPOSED["verbs"]), draw.choice(_COMPOSED["nouns"])
        name = f"{verb}_{noun}"
        if is_held_out(name) == held_out:
            break
    key = draw.choice(_COMPOSED["keys"])
    wording = f"Please {verb} the {noun} {{{key}}}."
    return TinyTool(name, {key: "word"}, (wording,), "code", changes=True)
