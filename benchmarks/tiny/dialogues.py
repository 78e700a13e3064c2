"""Dialogues for training: tasks of the tiny model, written as its chat template writes them.

Some offer a tool for talking, some contain a call that failed and the right one after it, and some
show a history whose calls a mute template has swallowed. No sentence of Temper's is in them.
"""

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

from proxy.conversation import json as compact
from proxy.conversation.json import JsonObject
from temper_evals.tiny_model.tasks import BUSY, TaskDraw, TinyCall, TinyTask
from temper_evals.tiny_model.tools import TinyTool

TALKING = (("respond", "message"), ("reply", "message"), ("answer", "text"), ("say", "text"))
SHARES = {"single": 30, "choose": 14, "chain": 16, "failing": 6, "composed": 20, "none": 18}
_TALKS, _ERRS, _MUTE = 0.2, 0.06, 0.1
_PROMPT_WEIGHT = 0.02
END = "<|im_end|>"


@dataclass(frozen=True, slots=True)
class Segment:
    """A piece of a dialogue, and how much its tokens count when they are guessed."""

    text: str
    weight: float = _PROMPT_WEIGHT


@dataclass(frozen=True, slots=True)
class Dialogue:
    """A task and how it is shown: with a tool for talking, a mistake first, or swallowed calls."""

    task: TinyTask
    talking: tuple[str, str] | None = None
    mistake: TinyCall | None = None
    is_mute: bool = False

    def segments(self) -> Iterator[Segment]:
        """Write the dialogue."""
        yield Segment(prompt_of(self.task, self.talking))
        for call in self.task.calls:
            yield from self._call(call)
        if self.talking is None:
            said = self.task.answer
        else:
            tool, parameter = self.talking
            said = call_text(tool, {parameter: self.task.answer})
        yield from says(said)

    def _call(self, call: TinyCall) -> Iterator[Segment]:
        if self.mistake is not None and call is self.task.calls[0]:
            yield from says(call_text(self.mistake.name, self.mistake.arguments), 0.0)
            yield result_of(self.mistake.result)
        written = call_text(call.name, call.arguments)
        for result in ([error_text(BUSY)] if call.fails_once else []) + [call.result]:
            if self.is_mute:
                yield Segment(f"<|im_start|>assistant\n{END}\n", 0.0)
            else:
                yield from says(written)
            yield result_of(result)


def prompt_of(task: TinyTask, talking: tuple[str, str] | None = None) -> str:
    """Write all that stands before the first reply, but for the mark that begins it."""
    listed = [_listed(one) for one in task.tools]
    listed += [f"{talking[0]}({talking[1]}: string)\n"] if talking else []
    return f"<|im_start|>system\n{''.join(listed)}{END}\n<|im_start|>user\n{task.user}{END}\n"


def _listed(tool: TinyTool) -> str:
    types = (f"{name}: {tool.type_of(name)}" for name in tool.parameters)
    return f"{tool.name}({', '.join(types)})\n"


def call_text(name: str, arguments: JsonObject) -> str:
    """Write a call as the template does."""
    return f'<tool_call>\n{{"name": "{name}", "arguments": {json.dumps(arguments)}}}\n</tool_call>'


def result_of(text: str) -> Segment:
    """Write the result of a call as the template does."""
    return Segment(f"<|im_start|>user\n<tool_response>\n{text}\n</tool_response>{END}\n")


def error_text(problem: str) -> str:
    """Write an error as the worlds of `temper eval` do."""
    return compact.dump_text({"error": problem})


def says(text: str, weight: float = 1.0) -> Iterator[Segment]:
    yield Segment("<|im_start|>assistant\n", 0.0)
    yield Segment(f"{text}{END}", weight)
    yield Segment("\n", 0.0)


def draw_dialogue(draw: random.Random, talks: float = _TALKS) -> Dialogue:
    """Draw a dialogue for training; `talks` is how often a tool for talking is offered."""
    tasks = TaskDraw(draw)
    family = draw.choices([*SHARES], [*SHARES.values()])[0]
    dialogue = Dialogue(tasks.task(family))
    if draw.random() < talks:
        dialogue = replace(dialogue, talking=draw.choice(TALKING))
    fate = draw.random()
    if dialogue.task.calls and fate < _ERRS:
        return replace(dialogue, mistake=_mistake(tasks, dialogue.task.calls[0]))
    return replace(dialogue, is_mute=fate > 1 - _MUTE)


def _mistake(tasks: TaskDraw, right: TinyCall) -> TinyCall:
    """Leave an argument out, or give another word for it; the result says so."""
    name = tasks.draw.choice([*right.arguments])
    value = right.arguments[name]
    if isinstance(value, str) and tasks.draw.random() < 0.5:
        wrong: JsonObject = {**right.arguments, name: tasks.values.word()}
        return TinyCall(right.name, wrong, error_text("nothing was found"))
    wrong = {one: kept for one, kept in right.arguments.items() if one != name}
    problem = tasks.draw.choice((f"{name} is missing", f"{name} is required"))
    return TinyCall(right.name, wrong, error_text(problem))
