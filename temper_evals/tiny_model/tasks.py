"""What the tiny model is asked: a few tools, a wish, the calls that fulfil it, and an answer.

The same tasks make its training data and measure it; values and tools that are held out are only
drawn for measuring.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from proxy.conversation.json import JsonObject, JsonValue
from temper_evals.tiny_model.tools import (
    CHAINS,
    HELD_OUT_TOOLS,
    TOOLS,
    TinyTool,
    composed_tool,
    tool_named,
)
from temper_evals.tiny_model.values import ValueDraw

BUSY = "busy, try again"
NOTHING_FITS = "None of my tools can do that."
SMALL_TALK = (
    ("Hello!", "Hello! What can I do for you?"),
    ("Good morning!", "Hello! What can I do for you?"),
    ("Thank you.", "You are welcome."),
    ("Thanks a lot!", "You are welcome."),
    ("Who are you?", "I am a tiny model."),
    ("How are you?", "I am fine, thank you."),
    ("Good night.", "Good night!"),
    ("What can you do?", "I can call the tools that I was given."),
)


@dataclass(frozen=True, slots=True)
class TinyCall:
    """A call that is due, what it returns, and whether it fails once before it does."""

    name: str
    arguments: JsonObject
    result: str
    fails_once: bool = False


@dataclass(frozen=True, slots=True)
class TinyTask:
    """A wish, the tools on offer, the calls that are due one after the other, and the answer."""

    family: str
    tools: tuple[TinyTool, ...]
    user: str
    calls: tuple[TinyCall, ...]
    answer: str


def answer_to(result: str) -> str:
    """Return what the model says when it has seen the last result."""
    return f"Result: {result}"


@dataclass(frozen=True, slots=True)
class TaskDraw:
    """Draws tasks of the families; `held_out` ones have values that training never showed."""

    draw: random.Random
    held_out: bool = False

    def task(self, family: str) -> TinyTask:
        return FAMILIES[family](self)

    @property
    def values(self) -> ValueDraw:
        """Where values come from."""
        return ValueDraw(self.draw, held_out=self.held_out)

    def arguments(self, tool: TinyTool) -> JsonObject:
        values = self.values
        return {name: values.value(kind) for name, kind in tool.parameters.items()}

    def result(self, tool: TinyTool) -> str:
        return str(self.values.value(tool.result))

    def one_call(self, family: str, tool: TinyTool, count: int) -> TinyTask:
        """Draw a wish for a tool that is offered amid others, `count` in all."""
        arguments = self.arguments(tool)
        call = TinyCall(tool.name, arguments, self.result(tool), fails_once=family == "failing")
        user = self.draw.choice(tool.wordings).format(**arguments)
        tools = self.amid((tool,), count)
        return TinyTask(family, tools, user, (call,), answer_to(call.result))

    def amid(self, needed: Sequence[TinyTool], count: int) -> tuple[TinyTool, ...]:
        """Return tools amid others, in a drawn order."""
        names = {one.name for one in needed}
        others = [one for one in TOOLS if one.name not in names]
        mixed = [*needed, *self.draw.sample(others, max(0, count - len(needed)))]
        self.draw.shuffle(mixed)
        return tuple(mixed)

    def any_tool(self) -> TinyTool:
        """Draw a tool of the list."""
        return self.draw.choice(TOOLS)


def _single(tasks: TaskDraw) -> TinyTask:
    return tasks.one_call("single", tasks.any_tool(), tasks.draw.randint(1, 3))


def _choose(tasks: TaskDraw) -> TinyTask:
    return tasks.one_call("choose", tasks.any_tool(), tasks.draw.randint(4, 7))


def _failing(tasks: TaskDraw) -> TinyTask:
    return tasks.one_call("failing", tasks.any_tool(), tasks.draw.randint(1, 3))


def _composed(tasks: TaskDraw) -> TinyTask:
    tool = composed_tool(tasks.draw, held_out=tasks.held_out)
    return tasks.one_call("composed", tool, tasks.draw.randint(1, 3))


def _unseen(tasks: TaskDraw) -> TinyTask:
    """Ask for a tool that training never showed."""
    return tasks.one_call("unseen", tasks.draw.choice(HELD_OUT_TOOLS), tasks.draw.randint(1, 3))


def _chain(tasks: TaskDraw) -> TinyTask:
    chain = tasks.draw.choice(CHAINS)
    first, second = tool_named(chain.first), tool_named(chain.second)
    arguments, found = tasks.arguments(first), tasks.result(first)
    (parameter,) = second.parameters
    last = TinyCall(second.name, {parameter: found}, tasks.result(second))
    calls = TinyCall(first.name, arguments, found), last
    tools = tasks.amid((first, second), tasks.draw.randint(2, 4))
    return TinyTask(
        "chain", tools, chain.wording.format(**arguments), calls, answer_to(last.result)
    )


def _none(tasks: TaskDraw) -> TinyTask:
    """Draw small talk, or a wish that no tool on offer can fulfil."""
    if tasks.draw.random() < 0.4:
        user, answer = tasks.draw.choice(SMALL_TALK)
        return TinyTask("none", tasks.amid((), tasks.draw.randint(1, 4)), user, (), answer)
    asked = tasks.one_call("none", tasks.any_tool(), tasks.draw.randint(2, 5))
    due = asked.calls[0].name
    tools = tuple(one for one in asked.tools if one.name != due)
    return TinyTask("none", tools, asked.user, (), NOTHING_FITS)


FAMILIES: dict[str, Callable[[TaskDraw], TinyTask]] = {
    "single": _single,
    "choose": _choose,
    "chain": _chain,
    "failing": _failing,
    "composed": _composed,
    "unseen": _unseen,
    "none": _none,
}


def offer_tools(task: TinyTask) -> list[JsonValue]:
    """Return the tools of a task as a request offers them."""
    return [one.describe() for one in task.tools]
