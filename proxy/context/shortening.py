"""Old and overlong tool results, shortened; the same words for the same result every time.

A stub keeps what later steps need to find something again: ids, paths, addresses and errors.
"""

import re
from collections.abc import Iterator

from proxy.context.pieces import clip, clip_start, count_pieces
from proxy.conversation import json
from proxy.conversation.messages import Message
from proxy.conversation.tools import ToolCall

STUB = 48  # tokens, the name and the arguments included
ERROR_STUB = 96

_TELLING = (
    *("error", "Error", "ERROR", "exception", "Exception"),
    *("path", "Path", "PATH", "url", "Url", "URL", "http"),
)
_ID = re.compile(r"[iI][dD](?![A-Za-z])(?:(?<![A-Za-z]..)|(?<=[a-z]I.))", re.DOTALL)
_SEARCHED = 4_000  # characters at each end of a result
_MOST_LINES = 6
_LONGEST_LINE = 100
_BEFORE = 12  # characters kept before the telling word of an overlong line
_ARGUMENTS = 10  # tokens; the call itself still stands above
_PER_LINE = 22
_LEAST_PER_LINE = 3
_BETWEEN = " | "


def stub(call: ToolCall, text: str, limit: int = STUB) -> str:
    """Tell in one line, of at most `limit` tokens, what a call had as its result."""
    arguments = clip(on_one_line(call.arguments).strip("{}"), _ARGUMENTS)
    size = f"[cut, {len(text)} chars]"
    start = clip(f"{size} {call.name} {arguments}", limit - 1) + ":"
    left = limit - count_pieces(start)
    kept: dict[int, str] = {}
    for place, line in _lines(text):
        share = min(_PER_LINE, left - 1)
        if share < _LEAST_PER_LINE:
            break
        if place not in kept:
            kept[place] = clip(line, share)
            left -= count_pieces(kept[place]) + 1
    return f"{start} {_BETWEEN.join(kept[place] for place in sorted(kept))}".rstrip()


def on_one_line(text: str) -> str:
    """Join lines, without the quotes of JSON: the room is better spent on words."""
    return " ".join(text.replace('"', "").split())


def gist(text: str, limit: int) -> str:
    """Return the most telling line of a result, at most `limit` tokens of it."""
    return clip(next(_lines(text))[1], limit)


def head_and_tail(text: str, limit: int, share: float) -> str:
    """Keep both ends of a text: at most `limit` tokens, and that `share` of its characters."""
    note = f"\n[… the middle of {len(text)} characters is left out …]\n"
    left = limit - count_pieces(note)
    characters = int(len(text) * share) - len(note)
    if left <= 0 or characters <= 0:
        return note.strip()
    head = clip(text[: characters * 2 // 3], left * 2 // 3)
    return head + note + clip_start(text[len(text) - characters // 3 :], left // 3)


def with_content(message: Message, text: str) -> Message:
    """Give a tool result another text; all else that it says of itself stays."""
    members = {**json.split_object(message.source), "content": json.dump(text)}
    source = json.join_object(members)
    return Message(message.role, text, source, tool_call_id=message.tool_call_id)


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Give lines worth keeping, with their places, the most telling first."""
    body = text.strip()
    yield from _telling_lines(body)
    yield 0, on_one_line(body[:_LONGEST_LINE].partition("\n")[0])
    last = body.rfind("\n") + 1
    yield last, on_one_line(body[last:][:_LONGEST_LINE])


def _telling_lines(body: str) -> Iterator[tuple[int, str]]:
    start = 0
    for _ in range(_MOST_LINES):
        found = _find(body, start)
        if found < 0:
            return
        first = body.rfind("\n", start, found) + 1 or start
        end = body.find("\n", found)
        end = len(body) if end < 0 else end
        if end - first > _LONGEST_LINE:
            first = max(first, found - _BEFORE)
            end = min(end, first + _LONGEST_LINE)
        yield first, on_one_line(body[first:end])
        start = end


def _find(body: str, start: int) -> int:
    """Search both ends: a result may be as long as a book."""
    found = _find_within(body, start, _SEARCHED)
    if found >= 0 or len(body) <= _SEARCHED:
        return found
    return _find_within(body, max(start, _SEARCHED, len(body) - _SEARCHED), len(body))


def _find_within(body: str, start: int, end: int) -> int:
    # An expression for all words takes ten times as long as one search for each.
    places = [body.find(word, start, end) for word in _TELLING]
    found = _ID.search(body, start, end)
    places.append(found.start() if found else -1)
    return min((place for place in places if place >= 0), default=-1)
