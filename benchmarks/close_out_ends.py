"""What the close-out check would do behind the ends of recorded turns: `python -m benchmarks ends`.

A line of the file is one turn up to where the model stopped calling: `messages` as clients send
them, `category`, `entry_right` (the whole run was right) and `first_wrong_turn`. A check behind a
right turn is a false alarm, though it costs a question and not yet an answer.
"""

import gzip
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.load.languages import objects_in
from proxy.conversation import json
from proxy.conversation.json import JsonObject
from proxy.conversation.messages import Message, assistant_message, tool_result, user_message
from proxy.conversation.tools import Tool, ToolCall
from proxy.guardrails.close_out import CloseOut, find_cause
from proxy.guardrails.offer import OfferedTools, TextPolicy
from proxy.guardrails.transcript import list_completed_calls
from temper_evals.report.markdown import markdown_table
from temper_evals.statistics import upper_bound

_HEADINGS = ("category", "right turns", "asked", "share", "below (95 %)", "other turns", "asked")


@dataclass(slots=True)
class EndCounts:
    """The turns of a category, and those behind which the model would be asked."""

    turns: Counter[bool] = field(default_factory=Counter)
    asked: Counter[bool] = field(default_factory=Counter)


def count_ends(lines: Iterable[JsonObject]) -> dict[str, EndCounts]:
    """Count the turns by category, and by whether their run was right."""
    found: dict[str, EndCounts] = {}
    for line in lines:
        counts = found.setdefault(str(line.get("category")), EndCounts())
        is_right = line.get("entry_right") is True
        counts.turns[is_right] += 1
        counts.asked[is_right] += is_asked(objects_in(line.get("messages")))
    return found


def is_asked(said: Iterable[JsonObject], setting: CloseOut = CloseOut.STRUCTURAL) -> bool:
    """Return whether text behind these messages would be asked about."""
    messages = tuple(map(_message, said))
    calls = {call.name for one in messages for call in one.calls}
    offer = OfferedTools(
        tuple(Tool(name, {}, b"") for name in sorted(calls)),
        TextPolicy.AUTO,
        (),
        results=tuple(one.text for one in messages if one.role == "tool"),
        completed=list_completed_calls(messages),
    )
    return find_cause(setting, messages, offer) is not None


def read_lines(path: Path) -> Iterator[JsonObject]:
    """Read the turns of a file of JSON lines, compressed or not."""
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8") as lines:
        yield from (one for line in lines if isinstance(one := json.parse(line), dict))


def markdown(found: dict[str, EndCounts]) -> str:
    rows: list[tuple[object, ...]] = []
    for category, counts in found.items():
        right, other = counts.turns[True], counts.turns[False]
        asked, bound = counts.asked[True], upper_bound(counts.asked[True], right)
        share = f"{100 * asked / max(1, right):.2f} %"
        rest = (f"{100 * bound:.2f} %", other, counts.asked[False])
        rows.append((category, right, asked, share, *rest))
    return markdown_table(_HEADINGS, rows)


def _message(said: JsonObject) -> Message:
    text = str(said.get("content") or "")
    match said.get("role"):
        case "assistant":
            return assistant_message(text, tuple(map(_call, objects_in(said.get("tool_calls")))))
        case "tool":
            return tool_result(str(said.get("tool_call_id")), text)
        case _:
            return user_message(text)


def _call(call: JsonObject) -> ToolCall:
    function = call.get("function")
    named = function if isinstance(function, dict) else {}
    return ToolCall(str(call.get("id")), str(named.get("name")), str(named.get("arguments")))
