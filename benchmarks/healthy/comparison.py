"""Compares responses and prompts with and without Temper. Pure functions."""

from collections.abc import Iterator, Sequence

from benchmarks.healthy.client import ClientResponse
from benchmarks.healthy.ledger import ReceivedRequest
from benchmarks.healthy.replies import Delta
from benchmarks.load.replies import RESPOND
from proxy.conversation import json

_SHOWN = 80


def difference(direct: ClientResponse, through: ClientResponse) -> str:
    """Describe the difference between a response through Temper and a direct one; "" if equal."""
    # if the mock backend itself fails, Temper has changed nothing
    if direct.status != 200 or direct.problem:
        return f"the backend itself answered {direct.status}: {direct.problem}"
    if direct.content == through.content:
        return ""
    if through.status != 200 or through.problem:
        return f"status {through.status}: {through.problem}"
    if direct.parts != through.parts:
        return next(_differences(direct.parts, through.parts))
    if direct.reason != through.reason:
        return f"finish reason {through.reason}, not {direct.reason}"
    return f"usage {through.usage}, not {direct.usage}"


def _differences(
    direct: Sequence[tuple[str, str]], other: Sequence[tuple[str, str]]
) -> Iterator[str]:
    """Describe each difference between two sequences that are known to differ."""
    nothing = ("nothing", "")
    for index in range(max(len(direct), len(other))):
        expected = direct[index] if index < len(direct) else nothing
        actual = other[index] if index < len(other) else nothing
        if expected != actual:
            yield f"{actual[0]} {actual[1][:_SHOWN]!r}, not {expected[0]} {expected[1][:_SHOWN]!r}"


def prompt_difference(sent: bytes, received: ReceivedRequest) -> str:
    """Describe a change of the prompt other than the added `respond` tool; "" if there is none."""
    before, after = (json.split_object(body) for body in (sent, received.body))
    if before["messages"] != after["messages"]:
        return "the messages were changed"
    tools = [tool for tool in json.split_array(after["tools"]) if not _is_respond(tool)]
    return "" if json.split_array(before["tools"]) == tools else "the tools were changed"


def _is_respond(tool: bytes) -> bool:
    described = json.parse(tool)
    function = described.get("function") if isinstance(described, dict) else None
    return isinstance(function, dict) and function.get("name") == RESPOND


def delays(
    response: ClientResponse,
    received: ReceivedRequest,
    deltas: Sequence[Delta],
    release_indexes: Sequence[int] = (),
) -> Iterator[float]:
    """Yield for each delta the seconds from its sending to the arrival of its last character.

    With `release_indexes`, the seconds begin when the delta that releases it is sent.
    """
    ends: dict[str, int] = {}
    positions = dict.fromkeys(response.arrived, 0)
    for delta, index in zip(deltas, release_indexes or range(len(deltas)), strict=True):
        channel = delta.channel
        ends[channel] = ends.get(channel, 0) + len(delta.text)
        arrived = response.arrived.get(channel, [])
        while index < len(received.sent) and positions.get(channel, 0) < len(arrived):
            count, now = arrived[positions[channel]]
            if count >= ends[channel]:
                yield response.sent_at + now - received.sent[index]
                break
            positions[channel] += 1
