"""The sizes that can be trained: the shipped model, and a larger one for invented tools."""

import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from benchmarks.tiny.dialogues import Segment, draw_dialogue, prompt_of
from benchmarks.tiny.invented_dialogues import conversation_prompt, draw_conversation
from benchmarks.tiny.invented_tasks import FAMILIES as INVENTED_FAMILIES
from benchmarks.tiny.invented_tasks import InventedDraw
from benchmarks.tiny.invented_template import NATIVE
from proxy.conversation.json import JsonValue
from temper_evals.tiny_model import chat_template
from temper_evals.tiny_model.tasks import (
    FAMILIES,
    NOTHING_FITS,
    SMALL_TALK,
    TaskDraw,
    answer_to,
    offer_tools,
)
from temper_evals.tiny_model.tools import CHAINS, TOOLS

_ANSWERS = [text for pair in SMALL_TALK for text in pair]
_SAID_OF_INVENTED = """
    the of with and then also it that I need you to please now kindly could can would what is are
    The It Done Please Now Kindly Could Can Would What Which tell me show give get look up for
    about set finish in cannot do will am going Let Sure left open say step missing go on write
    Else Otherwise reply alone rest all done have not wanted again
"""


@dataclass(frozen=True, slots=True)
class Sample:
    """A prompt that nobody trained on: as text, and as a request has it."""

    text: str
    user: str
    tools: list[JsonValue]


@dataclass(frozen=True, slots=True)
class Size:
    """What a model is trained on, and how.

    `copying` is the share of pure copying, `batch` the tokens of a step, `pool` how many dialogues
    are drawn at once, `words` sentences whose words may be merged with a space. `held_out` draws
    dialogues to measure with while training, where there are any.
    """

    name: str
    width: int
    layers: int
    head: int
    tokens: int
    merges: int
    copying: float
    batch: int
    pool: int
    checked: int
    template: str
    words: tuple[str, ...]
    parameters: frozenset[str]
    draw: Callable[[random.Random], Iterable[Segment]]
    samples: Callable[[random.Random, int], Iterator[Sample]]
    held_out: Callable[[random.Random], Iterable[Segment]] | None = None
    held_out_count: int = 400


def _shipped_dialogue(draw: random.Random) -> Iterable[Segment]:
    return draw_dialogue(draw).segments()


def _untalking_dialogue(draw: random.Random) -> Iterable[Segment]:
    return draw_dialogue(draw, talks=0.0).segments()


def _shipped_samples(draw: random.Random, count: int) -> Iterator[Sample]:
    for place in range(count):
        task = TaskDraw(draw, held_out=True).task([*FAMILIES][place % len(FAMILIES)])
        yield Sample(prompt_of(task), task.user, offer_tools(task))


def _invented_samples(draw: random.Random, count: int) -> Iterator[Sample]:
    for place in range(count):
        family = [*INVENTED_FAMILIES][place % len(INVENTED_FAMILIES)]
        task = InventedDraw(draw, held_out=True).task(family)
        tools: list[JsonValue] = [one.describe() for one in task.tools]
        yield Sample(conversation_prompt(task.tools, task.user), task.user, tools)


def _held_out_conversation(draw: random.Random) -> Iterable[Segment]:
    return draw_conversation(draw, held_out=True)


SHIPPED = Size(
    "shipped",
    width=96,
    layers=3,
    head=32,
    tokens=5_000_000,
    merges=420,
    copying=0.2,
    batch=2000,
    pool=800,
    checked=100,
    template=chat_template.NATIVE,
    words=(
        *(text for tool in TOOLS for text in tool.wordings),
        *(chain.wording for chain in CHAINS),
        *(*_ANSWERS, NOTHING_FITS, answer_to(""), "Please the string integer"),
    ),
    parameters=frozenset(name for tool in TOOLS for name in tool.parameters),
    draw=_shipped_dialogue,
    samples=_shipped_samples,
)
_LARGER = Size(
    "larger",
    width=512,
    layers=8,
    head=64,
    tokens=400_000_000,
    merges=3600,
    copying=0.03,
    batch=32_000,
    pool=4000,
    checked=20,
    template=NATIVE,
    words=(_SAID_OF_INVENTED, NOTHING_FITS, *_ANSWERS),
    parameters=frozenset(),
    draw=draw_conversation,
    samples=_invented_samples,
    held_out=_held_out_conversation,
)
# the shipped one, had nobody ever offered it a tool for talking
_UNTALKING = replace(SHIPPED, name="untalking", draw=_untalking_dialogue)
SIZES = {one.name: one for one in (SHIPPED, _UNTALKING, _LARGER)}
