"""Compares responses and prompts with and without Temper. Pure functions."""

from collections.abc import Iterator, Sequence

from benchmarks.healthy.client import Seen
from benchmarks.healthy.ledger import ReceivedRequest
from benchmarks.healthy.replies import Delta
from benchmarks.load.replies import RESPOND
from proxy.conversation import json

_SHOWN = 80


def difference(direct: Seen, through: Seen) -> str:
    """Describe the difference between a response through Temper and a direct one; "" if equal."""
    # a failure of the mock backend is not a change by Temper
    if direct.status != 200 or direct.problem:
        return f"the backend itself answered {direct.status}: {direct.problem}"
    if direct.content == through.content:
        return ""
    if through.status != 200 or through.problem:
        return f"status {through.status}: {through.problem}"
    if direct.parts != through.parts:
        return next(_unlike(direct.parts, through.parts))
    if direct.reason != through.reason:
        return f"finish reason {through.reason}, not {direct.reason}"
    return f"usage {through.usage}, not {direct.usage}"


def _unlike(direct: Sequence[tuple[str, str]], other: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Yield the first differences; the two sequences must differ."""
    nothing = ("nothing", "")
    for index in range(max(len(direct), len(other))):
        mine = direct[index] if index < len(direct) else nothing
        theirs = other[index] if index < len(other) else nothing
        if mine != theirs:
            yield f"{theirs[0]} {theirs[1][:_SHOWN]!r}, not {mine[0]} {mine[1][:_SHOWN]!r}"


def prompt_difference(sent: bytes, seen: ReceivedRequest) -> str:
    """Describe a change of the prompt other than the added `respond` tool; "" if there is none."""
    mine, theirs = (json.split_object(body) for body in (sent, seen.body))
    if mine["messages"] != theirs["messages"]:
        return "the messages were changed"
    tools = [tool for tool in json.split_array(theirs["tools"]) if not _is_respond(tool)]
    return "" if json.split_array(mine["tools"]) == tools else "the tools were changed"


def _is_respond(tool: bytes) -> bool:
    described = json.parse(tool)
    function = described.get("function") if isinstance(described, dict) else None
    return isinstance(function, dict) and function.get("name") == RESPOND


def delays(
    seen: Seen, received: ReceivedRequest, deltas: Sequence[Delta], from_places: Sequence[int] = ()
) -> Iterator[float]:
    """Yield the seconds from the sending of each delta until all of it had arrived.

    With `from_places`, count instead from the sending of the delta with that index.
    """
    ends: dict[str, int] = {}
    places = dict.fromkeys(seen.arrived, 0)
    for delta, index in zip(deltas, from_places or range(len(deltas)), strict=True):
        channel = delta.channel
        ends[channel] = ends.get(channel, 0) + len(delta.text)
        arrived = seen.arrived.get(channel, [])
        while index < len(received.sent) and places.get(channel, 0) < len(arrived):
            count, now = arrived[places[channel]]
            if count >= ends[channel]:
                yield seen.sent_at + now - received.sent[index]
                break
            places[channel] += 1
