"""Short forms of old and overlong tool results; the same result always gives the same text.

A stub keeps ids, paths, addresses and errors, which later steps need to find something again.
Limits are in pieces, so that the text does not depend on the model; its tokens are counted.
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

# How lines are ranked
# --------------------
# Programs print the same kind of line many times, and the interesting line is of another kind. The
# shape of a line is its signs and blanks, without letters and digits: two rows of a table, two
# entries of a log and two paths of a listing have the same shape. A line is rare if hardly any
# other has its shape. Where many lines are rare (prose, source code), shapes are useless and words
# decide: errors, paths, addresses, ids.

_TELLING = ("error", "exception", "path", "url", "http")
_NUMBER_OR_PATH = re.compile(r"\d|[/\\]\w")
_SEARCHED = 4_000  # characters at each end of a result, whose length is unbounded
_MOST_TELLING = 8  # lines with a telling word
_LONGEST_LINE = 100
_BEFORE_WORD = 12  # characters kept before the telling word of an overlong line
_WIDE = 200  # characters per line; longer on average, the text is a record and not printed lines
_RARE = 16  # a shape is rare if at most 1 of 16 lines has it
_SHAPELESS = 3  # shapes are useless if more than 1 of 3 lines is rare
_ALIKE = b"".join(
    bytes(range(first, last + 1)) for first, last in (b"09", b"AZ", b"az", (128, 255))
)


def salient_lines(text: str) -> Iterator[Line]:
    """Yield lines worth keeping with their offsets, the most telling first; at least one."""
    given: set[int] = set()
    for index, line in _in_order(_in_lines(_both_ends(text.strip()))):
        if index not in given:
            given.add(index)
            yield index, line


def _in_order(body: str) -> Iterator[Line]:
    """Yield the lines of `salient_lines`, some of them repeatedly."""
    telling = list(islice(_telling_lines(body), _MOST_TELLING))
    rare = _rare_lines(body)
    if rare:
        among = {index for index, _ in rare}
        yield from (line for line in telling if line[0] in among)
        yield from (line for line in rare if _NUMBER_OR_PATH.search(line[1]))
        yield from rare
        telling = [line for line in telling if "rror" in line[1] or "RROR" in line[1]]
    else:
        yield from telling
    yield 0, on_one_line(body[:_LONGEST_LINE].partition("\n")[0])
    last = body.rfind("\n") + 1
    yield last, on_one_line(body[last:][:_LONGEST_LINE])
    yield from telling


def on_one_line(text: str) -> str:
    """Join lines and drop JSON quotes, which would cost tokens."""
    return " ".join(text.replace('"', "").split())


def _both_ends(body: str) -> str:
    """Drop the middle of a very long text, including the two lines that this would cut."""
    if len(body) <= 2 * _SEARCHED:
        return body
    head, tail = body[:_SEARCHED], body[-_SEARCHED:]
    return "\n".join((head.rpartition("\n")[0] or head, tail.partition("\n")[2] or tail))


def _in_lines(body: str) -> str:
    """Break overlong lines: JSON records, and line ends that are escaped in a string."""
    if len(body) <= _WIDE * (body.count("\n") + 1):
        return body
    return body.replace("\\n", "\n").replace("},{", "},\n{").replace("}, {", "},\n{")


def _rare_lines(body: str) -> list[Line]:
    """Return the lines of a rare shape; none where shapes are useless."""
    if "\n" not in body:
        return []
    lines: list[tuple[int, str, bytes]] = []
    shapes = body.encode(errors="replace").translate(None, _ALIKE).split(b"\n")
    index = 0
    for line, shape in zip(body.split("\n"), shapes, strict=True):
        if line and not line.isspace():
            lines.append((index, line, shape.strip()))
        index += len(line) + 1
    counts = Counter([shape for _, _, shape in lines])
    most = max(1, len(lines) // _RARE)
    rare = [(index, line) for index, line, shape in lines if counts[shape] <= most]
    # the first and the last line are always rare and say the least
    ends = (lines[0][0], lines[-1][0])
    inner = [line for line in rare if line[0] not in ends]
    if _SHAPELESS * len(inner) > len(lines) - len(ends):
        return []
    inner += [line for line in rare if line[0] in ends]
    return [(index, on_one_line(line[:_LONGEST_LINE])) for index, line in inner]


def _telling_lines(body: str) -> Iterator[Line]:
    """Yield the lines with a telling word; of overlong lines the part with the word."""
    start = 0
    for match in _telling_positions(body):
        if match < start:
            continue
        first = body.rfind("\n", start, match) + 1 or start
        end = body.find("\n", match)
        end = len(body) if end < 0 else end
        if end - first > _LONGEST_LINE:
            first = max(first, match - _BEFORE_WORD)
            end = min(end, first + _LONGEST_LINE)
        yield first, on_one_line(body[first:end])
        start = end


def _telling_positions(body: str) -> list[int]:
    """Return the offsets of telling words; one regular expression for all is ten times slower."""
    lowered = body.lower()
    if len(lowered) != len(body):  # some letters become two in lower case
        lowered = body
    indexes = [at for at in _positions(lowered, "id") if _is_id(body, at)]
    for word in _TELLING:
        indexes += _positions(lowered, word)
    return sorted(indexes)


def _positions(text: str, word: str) -> Iterator[int]:
    at = text.find(word)
    while at >= 0:
        yield at
        at = text.find(word, at + len(word))


def _is_id(body: str, at: int) -> bool:
    """Return whether `id` at `at` is a separate word, as in `user_id` and `orderId`."""
    before, after = body[max(0, at - 1) : at], body[at + 2 : at + 3]
    begins = not _is_letter(before) or (before.islower() and body[at] == "I")
    return begins and not _is_letter(after)


def _is_letter(character: str) -> bool:
    return character.isascii() and character.isalpha()


STUB, LONGEST_STUB = 160, 640  # pieces, the name and the arguments included

_PER_PIECE = 64  # characters of a long result for each piece of its stub
_ARGUMENTS = 10  # pieces; the call itself stays in the history
_PER_LINE = 24
_LEAST_PER_LINE = 3
_BEFORE = 16  # characters kept before the value of a line that is too long
_BETWEEN = " | "
_VALUE = re.compile(r"[^\s\d]*\d\S*")


def stub(call: ToolCall, text: str) -> str:
    """Summarize the result of a call on one line, a longer one for a long result."""
    limit = min(max(STUB, len(text) // _PER_PIECE), LONGEST_STUB)
    arguments = clip(on_one_line(call.arguments).strip("{}"), _ARGUMENTS)
    size = f"[cut, {len(text)} chars]"
    start = clip(f"{size} {call.name} {arguments}", limit - 1) + ":"
    return f"{start} {gist(text, limit - count_rough_tokens(start))}".rstrip()


def gist(text: str, limit: int) -> str:
    """Return the most telling lines of a result in their order, in at most `limit` pieces."""
    left = limit
    kept: dict[int, str] = {}
    for index, line in salient_lines(text):
        share = min(_PER_LINE, left - 1)
        if share < _LEAST_PER_LINE:
            break
        kept[index] = _clip_around(line, share)
        left -= count_rough_tokens(kept[index]) + 1
    return _BETWEEN.join(kept[index] for index in sorted(kept) if kept[index])


def _clip_around(line: str, limit: int) -> str:
    """Clip a line to the part with its first value."""
    if is_within(line, limit):
        return line
    match = _VALUE.search(line)
    start = match.start() if match else 0
    if count_rough_tokens(line[:start]) > limit // 3:
        start = line.find(" ", max(0, start - _BEFORE), start) + 1 or start
    else:
        start = 0
    if match and count_rough_tokens(line[start : match.end()]) >= limit:
        start = match.start()
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
    """Return a tool result with another text and the same other members."""
    members = {**json.split_object(message.source), "content": json.dump(text)}
    return replace(message, text=text, source=json.join_object(members))


CAPACITY = 16_384  # short messages


class TextCache:
    """Caches short messages; keys are hashes, because the originals may be long."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._kept: Latest[int, Message] = Latest(capacity)

    def stub(self, result: Result) -> Message:
        message, call = result.message, result.call
        key = hash((message.source, call.name, call.arguments))
        return self.get(key, lambda: with_content(message, stub(call, message.text)))

    def get(self, key: int, write: Callable[[], Message]) -> Message:
        return self._kept.find(key) or self._kept.keep(key, write())
