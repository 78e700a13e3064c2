"""Old and overlong tool results, shortened; the same words for the same result every time.

A stub keeps what later steps need to find something again: ids, paths, addresses and errors.
Limits are in pieces, so that the words do not depend on a model; what they cost is counted.
"""

import re

from proxy.context.rough_tokens import clip, clip_start, count_rough_tokens, is_within
from proxy.context.salience import on_one_line, salient_lines
from proxy.conversation import json
from proxy.conversation.messages import Message
from proxy.conversation.tools import ToolCall

STUB, LONGEST_STUB = 160, 640  # pieces, the name and the arguments included

_PER_PIECE = 64  # characters of a long result for each piece of its stub
_ARGUMENTS = 10  # pieces; the call itself still stands above
_PER_LINE = 24
_LEAST_PER_LINE = 3
_BEFORE = 16  # characters kept before the value of a line that is too long
_BETWEEN = " | "
_VALUE = re.compile(r"[^\s\d]*\d\S*")


def stub(call: ToolCall, text: str) -> str:
    """Tell in one line what a call had as its result; more of a long one."""
    limit = min(max(STUB, len(text) // _PER_PIECE), LONGEST_STUB)
    arguments = clip(on_one_line(call.arguments).strip("{}"), _ARGUMENTS)
    size = f"[cut, {len(text)} chars]"
    start = clip(f"{size} {call.name} {arguments}", limit - 1) + ":"
    return f"{start} {gist(text, limit - count_rough_tokens(start))}".rstrip()


def gist(text: str, limit: int) -> str:
    """Return the most telling lines of a result in the order they stand in, in `limit` pieces."""
    left = limit
    kept: dict[int, str] = {}
    for place, line in salient_lines(text):
        share = min(_PER_LINE, left - 1)
        if share < _LEAST_PER_LINE:
            break
        kept[place] = _clip_around(line, share)
        left -= count_rough_tokens(kept[place]) + 1
    return _BETWEEN.join(kept[place] for place in sorted(kept) if kept[place])


def _clip_around(line: str, limit: int) -> str:
    """Keep the part of a line that has its value."""
    if is_within(line, limit):
        return line
    found = _VALUE.search(line)
    start = found.start() if found else 0
    if count_rough_tokens(line[:start]) > limit // 3:
        start = line.find(" ", max(0, start - _BEFORE), start) + 1 or start
    else:
        start = 0
    if found and count_rough_tokens(line[start : found.end()]) >= limit:
        start = found.start()
    return clip(line[start:], limit)


def head_and_tail(text: str, limit: int, share: float) -> str:
    """Keep both ends of a text: at most `limit` pieces, and that `share` of its characters."""
    note = f"\n[… the middle of {len(text)} characters is left out …]\n"
    left = limit - count_rough_tokens(note)
    characters = int(len(text) * share) - len(note)
    if left <= 0 or characters <= 0:
        return note.strip()
    head = clip(text[: characters * 2 // 3], left * 2 // 3)
    return head + note + clip_start(text[len(text) - characters // 3 :], left // 3)


def with_content(message: Message, text: str) -> Message:
    """Give a tool result another text; all else that it says of itself stays."""
    members = {**json.split_object(message.source), "content": json.dump(text)}
    source = json.join_object(members)
    return Message(
        message.role, text, source, tool_call_id=message.tool_call_id, failed=message.failed
    )
