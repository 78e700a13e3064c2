"""A recorded exchange as the dashboard shows it: each generation beside what was made of it.

What Temper said between two generations is not recorded; it is made again, as `replay` would.
"""

from collections.abc import Sequence
from itertools import pairwise

import msgspec

from proxy.conversation.json import JsonObject
from proxy.conversation.messages import Message
from proxy.errors import InvalidRequest
from proxy.observability.recording import Piece, RecordedExchange
from proxy.observability.replay import questions_of
from proxy.profiles.profile import Profile


class WrittenCall(msgspec.Struct):
    """A call that the model wrote, as the backend read it."""

    name: str
    arguments: str = ""


class Nudge(msgspec.Struct, frozen=True):
    """A message that Temper added, or the result of a tool that it ran."""

    role: str
    text: str


class Generation(msgspec.Struct, kw_only=True):
    """What the model wrote, and in `nudge` what it was told afterwards."""

    text: str = ""
    thoughts: str = ""
    calls: list[WrittenCall] = []
    ending: str = ""
    nudge: list[Nudge] = []


class BeforeAfter(msgspec.Struct, frozen=True, kw_only=True):
    """One exchange: all generations, the answer, and the request that was asked."""

    generations: list[Generation]
    text: str
    calls: list[WrittenCall]
    finish_reason: str | None
    request: JsonObject
    line: str


def before_after(line: bytes, profiles: Sequence[Profile]) -> BeforeAfter:
    """Show a line of a recording."""
    exchange = RecordedExchange.model_validate_json(line)
    generations = [_generation(pieces) for pieces in exchange.generations]
    nudges = _nudges(exchange, profiles)
    for one, nudge in zip(reversed(generations[:-1]), reversed(nudges), strict=False):
        one.nudge = nudge
    answer = exchange.answer
    return BeforeAfter(
        generations=generations,
        text=answer.text,
        calls=[WrittenCall(call.name, call.arguments) for call in answer.calls],
        finish_reason=answer.finish_reason,
        request=exchange.request,
        line=line.decode().rstrip("\n"),
    )


def _generation(pieces: Sequence[Piece]) -> Generation:
    made = Generation(calls=[], nudge=[])
    for piece in pieces:
        match piece:
            case ["text", str(text)]:
                made.text += text
            case ["reasoning", str(text)]:
                made.thoughts += text
            case ["call", int(), _, str(name)]:
                made.calls.append(WrittenCall(name))
            case ["arguments", int(index), str(text)] if index < len(made.calls):
                made.calls[index].arguments += text
            case [str(ending), str(detail)]:
                made.ending = f"{ending}: {detail}"
            case _:
                pass
    return made


def _nudges(exchange: RecordedExchange, profiles: Sequence[Profile]) -> list[list[Nudge]]:
    """Return what the model was told after each generation but the last."""
    try:
        asked = [question.messages for question in questions_of(exchange, profiles)]
    except (InvalidRequest, ValueError):
        return []  # other profiles than then may make another turn of it
    asked = asked[: len(exchange.generations)]
    return [_added(before, after) for before, after in pairwise(asked)]


def _added(before: Sequence[Message], after: Sequence[Message]) -> list[Nudge]:
    """Return the messages behind those that were asked before, but for the reply itself."""
    shared = 0
    while shared < min(len(before), len(after)) and before[shared] == after[shared]:
        shared += 1
    added = (message for message in after[shared:] if message.role != "assistant")
    return [Nudge(message.role, message.text) for message in added]
