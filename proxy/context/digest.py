"""The digest: what was done in the steps that are no longer in the conversation, a line for each.

It is the user's message, because every chat template takes one there.
"""

from collections.abc import Callable, Sequence

from proxy.context.pieces import clip, count_pieces
from proxy.context.shortening import gist, on_one_line
from proxy.context.units import Unit
from proxy.conversation.messages import Message, user_message

HEAD = 36  # tokens of the first lines
LINE = 40

_INTRODUCTION = "[Note: earlier steps of this conversation, shortened. They are done.]"
_LEFT_OUT = "- ({count} steps before these are left out)"
_ARGUMENTS = 16
_OUTCOME = 14


def digest(units: Sequence[Unit], limit: int, has_failed: Callable[[str], bool]) -> Message:
    """Tell of as many units as `limit` tokens allow, the latest ones, in the order of history."""
    left = limit - HEAD
    told: list[str] = []
    ordered = sorted(units, key=lambda unit: unit.places[0])
    for unit in reversed(ordered):
        lines = _lines(unit, has_failed)
        left -= count_pieces(lines) + 1
        if left < 0:
            break
        told.append(lines)
    missing = len(units) - len(told)
    before = [_LEFT_OUT.format(count=missing)] if missing else []
    return user_message("\n".join([_INTRODUCTION, *before, *reversed(told)]))


def _lines(unit: Unit, has_failed: Callable[[str], bool]) -> str:
    if not unit.is_group:
        return clip(f"- {unit.message.role}: {' '.join(unit.message.text.split())}", LINE)
    lines: list[str] = []
    for result in unit.results:
        arguments = clip(on_one_line(result.call.arguments).strip("{}"), _ARGUMENTS)
        outcome = "failed: " if has_failed(result.text) else ""
        called = f"- {result.call.name} {arguments}".rstrip()
        lines.append(clip(f"{called} -> {outcome}{gist(result.text, _OUTCOME)}", LINE))
    return "\n".join(lines)
