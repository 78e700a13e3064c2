"""Old and overlong tool results, shortened; the same words for the same result every time.

A stub keeps what later steps need to find something again: ids, paths, addresses and errors.
Limits are in pieces, so that the words do not depend on a model; what they cost is counted.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from typing import TypeAlias

from msgspec.structs import replace

from proxy.context.message_sizes import Latest
from proxy.context.rough_tokens import clip, clip_start, count_rough_tokens, is_within
from proxy.context.units import Result
from proxy.conversation import json
from proxy.conversation.messages import Message
from proxy.conversation.tools import ToolCall

Line: TypeAlias = tuple[int, str]

# How lines are told apart
# ------------------------
# Programs print the same kind of line many times, and what matters is in the line of another kind.
# The shape of a line is its signs and blanks: what is left without letters and digits. Two rows of
# a table, two entries of a log, two paths of a listing have the same shape, whatever they say. A
# line is rare if hardly any other has its shape. Where many lines are rare (prose, source code),
# shapes tell nothing, and words do: errors, paths, addresses, ids.

_TELLING = ("error", "exception", "path", "url", "http")
_NUMBER_OR_PATH = re.compile(r"\d|[/\\]\w")
_SEARCHED = 4_000  # characters at each end of a result, which may be as long as a book
_MOST_TOLD = 8  # lines with a telling word
_LONGEST_LINE = 100
_BEFORE_WORD = 12  # characters kept before the telling word of an overlong line
_WIDE = 200  # characters of a line on average, with which lines cannot be what a program prints
_RARE = 16  # one line of so many may have a shape that is rare
_SHAPELESS = 3  # if one line of so many is rare, shapes tell nothing
_ALIKE = b"".join(
    bytes(range(first, last + 1)) for first, last in (b"09", b"AZ", b"az", (128, 255))
)


def salient_lines(text: str) -> Iterator[Line]:
    """Give lines worth keeping, each with its place, the most telling first; at least one."""
    given: set[int] = set()
    for place, line in _in_order(_in_lines(_both_ends(text.strip()))):
        if place not in given:
            given.add(place)
            yield place, line


def _in_order(body: str) -> Iterator[Line]:
    """Give them; a line may come more than once."""
    told = list(islice(_telling_lines(body), _MOST_TOLD))
    rare = _rare_lines(body)
    if rare:
        among = {place for place, _ in rare}
        yield from (line for line in told if line[0] in among)
        yield from (line for line in rare if _NUMBER_OR_PATH.search(line[1]))
        yield from rare
        told = [line for line in told if "rror" in line[1] or "RROR" in line[1]]
    else:
        yield from told
    yield 0, on_one_line(body[:_LONGEST_LINE].partition("\n")[0])
    last = body.rfind("\n") + 1
    yield last, on_one_line(body[last:][:_LONGEST_LINE])
    yield from told


def on_one_line(text: str) -> str:
    """Join lines, without the quotes of JSON: the room is better spent on words."""
    return " ".join(text.replace('"', "").split())


def _both_ends(body: str) -> str:
    """Leave out the middle of a very long text, and what would be left of the lines around it."""
    if len(body) <= 2 * _SEARCHED:
        return body
    head, tail = body[:_SEARCHED], body[-_SEARCHED:]
    return "\n".join((head.rpartition("\n")[0] or head, tail.partition("\n")[2] or tail))


def _in_lines(body: str) -> str:
    """Break up what a program has written into few lines: records, and lines within a string."""
    if len(body) <= _WIDE * (body.count("\n") + 1):
        return body
    return body.replace("\\n", "\n").replace("},{", "},\n{").replace("}, {", "},\n{")


def _rare_lines(body: str) -> list[Line]:
    """List the lines of a shape that hardly any other has, none where that tells nothing."""
    if "\n" not in body:
        return []
    lines: list[tuple[int, str, bytes]] = []
    shapes = body.encode(errors="replace").translate(None, _ALIKE).split(b"\n")
    place = 0
    for line, shape in zip(body.split("\n"), shapes, strict=True):
        if line and not line.isspace():
            lines.append((place, line, shape.strip()))
        place += len(line) + 1
    often = Counter([shape for _, _, shape in lines])
    most = max(1, len(lines) // _RARE)
    rare = [(place, line) for place, line, shape in lines if often[shape] <= most]
    # what a program begins and ends with is rare in any case, and says the least
    ends = (lines[0][0], lines[-1][0])
    inner = [line for line in rare if line[0] not in ends]
    if _SHAPELESS * len(inner) > len(lines) - len(ends):
        return []
    inner += [line for line in rare if line[0] in ends]
    return [(place, on_one_line(line[:_LONGEST_LINE])) for place, line in inner]


def _telling_lines(body: str) -> Iterator[Line]:
    """Give the lines with a telling word, of overlong ones the part around it."""
    start = 0
    for found in _telling_places(body):
        if found < start:
            continue
        first = body.rfind("\n", start, found) + 1 or start
        end = body.find("\n", found)
        end = len(body) if end < 0 else end
        if end - first > _LONGEST_LINE:
            first = max(first, found - _BEFORE_WORD)
            end = min(end, first + _LONGEST_LINE)
        yield first, on_one_line(body[first:end])
        start = end


def _telling_places(body: str) -> list[int]:
    """List where telling words stand; one expression for all of them takes ten times as long."""
    lowered = body.lower()
    if len(lowered) != len(body):  # some letters are two in lower case
        lowered = body
    places = [at for at in _places(lowered, "id") if _is_id(body, at)]
    for word in _TELLING:
        places += _places(lowered, word)
    return sorted(places)


def _places(text: str, word: str) -> Iterator[int]:
    at = text.find(word)
    while at >= 0:
        yield at
        at = text.find(word, at + len(word))


def _is_id(body: str, at: int) -> bool:
    """Tell `id`, `user_id` and `orderId` from words that only contain it."""
    before, after = body[max(0, at - 1) : at], body[at + 2 : at + 3]
    begins = not _is_letter(before) or (before.islower() and body[at] == "I")
    return begins and not _is_letter(after)


def _is_letter(character: str) -> bool:
    return character.isascii() and character.isalpha()


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
    return replace(message, text=text, source=json.join_object(members))


CAPACITY = 16_384  # short messages


class TextCache:
    """Remembers short messages; keys are hashes, because what they stand for may be long."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._kept: Latest[int, Message] = Latest(capacity)

    def stub(self, result: Result) -> Message:
        message, call = result.message, result.call
        key = hash((message.source, call.name, call.arguments))
        return self.get(key, lambda: with_content(message, stub(call, message.text)))

    def get(self, key: int, write: Callable[[], Message]) -> Message:
        return self._kept.find(key) or self._kept.keep(key, write())
