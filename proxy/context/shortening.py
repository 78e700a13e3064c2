"""Shortens old and overlong tool results; the same result always gives the same text.

    [cut, 5321 chars] read_file path: src/app.py: def main(): | port = 8080

Such a stub contains ids, paths, addresses and errors, because later steps may need them. Limits are
in pieces (see `rough_tokens`), so that the text does not depend on the model.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from typing import TypeAlias

from msgspec.structs import replace

from proxy.context.message_sizes import LruCache
from proxy.context.rough_tokens import clip, clip_start, count_rough_tokens, is_within
from proxy.context.units import Result
from proxy.conversation import json
from proxy.conversation.messages import Message
from proxy.conversation.tools import ToolCall

Line: TypeAlias = tuple[int, str]

# How lines are ranked
# --------------------
# Programs print the same kind of line many times, and the interesting line is of another kind. The
# shape of a line is its signs and blanks, without letters and digits. So the rows of a table often
# share a shape, and the entries of a log share another. A line is rare if few other lines have its
# shape. If many lines are rare, as in prose and source code, shapes are ignored, and lines with
# words for errors, paths, addresses and ids are preferred.

# The telling words are these and the separate word "id", which `_is_id` recognizes.
_TELLING = ("error", "exception", "path", "url", "http")
_NUMBER_OR_PATH = re.compile(r"\d|[/\\]\w")
_SEARCHED = 4_000  # the characters at each end of a result that are searched; it may be very long
_MOST_TELLING = 8  # maximum number of lines with a telling word
_LONGEST_LINE = 100  # characters of a line in a stub
_BEFORE_WORD = 12  # characters kept before the telling word of an overlong line
_WIDE = 200  # a text with longer lines on average is broken into records, e.g. JSON on one line
_RARE = 16  # a shape is rare if at most 1 of 16 lines has it
_SHAPELESS = 3  # shapes are ignored if more than 1 of 3 lines is rare
_LETTERS_AND_DIGITS = b"".join(
    bytes(range(first, last + 1)) for first, last in (b"09", b"AZ", b"az", (128, 255))
)


def salient_lines(text: str) -> Iterator[Line]:
    """Yield the offset and the text of at least one line, the most informative line first."""
    yielded: set[int] = set()
    for index, line in _rank_lines(_break_lines(_both_ends(text.strip()))):
        if index not in yielded:
            yielded.add(index)
            yield index, line


def _rank_lines(body: str) -> Iterator[Line]:
    """Yield the lines as `salient_lines` does, but a line may be repeated."""
    telling = list(islice(_telling_lines(body), _MOST_TELLING))
    rare = _rare_lines(body)
    if rare:
        rare_indexes = {index for index, _ in rare}
        yield from (line for line in telling if line[0] in rare_indexes)
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
    """Join lines, and remove quotes of JSON to save tokens."""
    return " ".join(text.replace('"', "").split())


def _both_ends(body: str) -> str:
    """Remove the middle of a very long text; the text is cut at line ends if there are any."""
    if len(body) <= 2 * _SEARCHED:
        return body
    head, tail = body[:_SEARCHED], body[-_SEARCHED:]
    return "\n".join((head.rpartition("\n")[0] or head, tail.partition("\n")[2] or tail))


def _break_lines(body: str) -> str:
    r"""Break overlong lines between the records of a JSON list, and at an escaped `\n`."""
    if len(body) <= _WIDE * (body.count("\n") + 1):
        return body
    return body.replace("\\n", "\n").replace("},{", "},\n{").replace("}, {", "},\n{")


def _rare_lines(body: str) -> list[Line]:
    """Return the lines of a rare shape; [] if shapes are ignored for this text."""
    if "\n" not in body:
        return []
    lines: list[tuple[int, str, bytes]] = []
    shapes = body.encode(errors="replace").translate(None, _LETTERS_AND_DIGITS).split(b"\n")
    index = 0
    for line, shape in zip(body.split("\n"), shapes, strict=True):
        if line and not line.isspace():
            lines.append((index, line, shape.strip()))
        index += len(line) + 1
    counts = Counter([shape for _, _, shape in lines])
    most = max(1, len(lines) // _RARE)
    rare = [(index, line) for index, line, shape in lines if counts[shape] <= most]
    # the first and the last line are often rare but seldom informative
    ends = (lines[0][0], lines[-1][0])
    inner = [line for line in rare if line[0] not in ends]
    if _SHAPELESS * len(inner) > len(lines) - len(ends):
        return []
    inner += [line for line in rare if line[0] in ends]
    return [(index, on_one_line(line[:_LONGEST_LINE])) for index, line in inner]


def _telling_lines(body: str) -> Iterator[Line]:
    """Yield the lines with a telling word; of an overlong line only the part with the word."""
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
    """Return the offsets of telling words; a regular expression would be ten times slower."""
    lowered = body.lower()
    if len(lowered) != len(body):  # some letters are two characters in lower case
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
    """Return whether the `id` at offset `at` is a separate word, as in `user_id` and `orderId`."""
    before, after = body[max(0, at - 1) : at], body[at + 2 : at + 3]
    begins = not _is_letter(before) or (before.islower() and body[at] == "I")
    return begins and not _is_letter(after)


def _is_letter(character: str) -> bool:
    return character.isascii() and character.isalpha()


STUB, LONGEST_STUB = 160, 640  # pieces, including name and arguments

_PER_PIECE = 64  # the stub of a long result has a piece for this many characters of the result
_ARGUMENTS = 10  # pieces: few, because the history still contains the call
# the most pieces of a line in a stub, and the fewest pieces for which another line is added
_PER_LINE = 24
_LEAST_PER_LINE = 3
_BEFORE = 16  # characters kept before the value of a line that is too long
_BETWEEN = " | "
_VALUE = re.compile(r"[^\s\d]*\d\S*")


def stub(call: ToolCall, text: str) -> str:
    """Summarize the result of a call on one line; a long result has a longer summary."""
    limit = min(max(STUB, len(text) // _PER_PIECE), LONGEST_STUB)
    arguments = clip(on_one_line(call.arguments).strip("{}"), _ARGUMENTS)
    size = f"[cut, {len(text)} chars]"
    start = clip(f"{size} {call.name} {arguments}", limit - 1) + ":"
    return f"{start} {gist(text, limit - count_rough_tokens(start))}".rstrip()


def gist(text: str, limit: int) -> str:
    """Return the most informative lines of a result, in at most `limit` pieces: `a | b`."""
    pieces_left = limit
    lines: dict[int, str] = {}
    for index, line in salient_lines(text):
        share = min(_PER_LINE, pieces_left - 1)
        if share < _LEAST_PER_LINE:
            break
        lines[index] = _clip_around_value(line, share)
        pieces_left -= count_rough_tokens(lines[index]) + 1
    return _BETWEEN.join(lines[index] for index in sorted(lines) if lines[index])


def _clip_around_value(line: str, limit: int) -> str:
    """Clip a line to the part that contains its first value."""
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
    """Keep the start and end of a text: at most `limit` pieces and a `share` of its characters."""
    note = f"\n[… the middle of {len(text)} characters is left out …]\n"
    pieces = limit - count_rough_tokens(note)
    characters = int(len(text) * share) - len(note)
    if pieces <= 0 or characters <= 0:
        return note.strip()
    head = clip(text[: characters * 2 // 3], pieces * 2 // 3)
    return head + note + clip_start(text[len(text) - characters // 3 :], pieces // 3)


def with_content(message: Message, text: str) -> Message:
    """Return a tool result with another text; the other members are unchanged."""
    members = {**json.split_object(message.source), "content": json.dump(text)}
    return replace(message, text=text, source=json.join_object(members))


CAPACITY = 16_384  # short messages


class TextCache:
    """Caches short messages; each key is a hash, because the original message may be long."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._messages: LruCache[int, Message] = LruCache(capacity)

    def stub(self, result: Result) -> Message:
        message, call = result.message, result.call
        key = hash((message.source, call.name, call.arguments))
        return self.get(key, lambda: with_content(message, stub(call, message.text)))

    def get(self, key: int, write: Callable[[], Message]) -> Message:
        return self._messages.find(key) or self._messages.keep(key, write())
