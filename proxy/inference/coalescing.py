"""Deltas that arrived together: joined to be read in one step, then cut as the backend did.

It relies on what is heard in a text being the same at any chunking, and changes no character.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from typing import TypeAlias

from msgspec.structs import replace

from proxy.conversation.replies import ReasoningDelta, ReplyEvent, TextDelta, ToolCallArgumentsDelta

Delta: TypeAlias = TextDelta | ReasoningDelta | ToolCallArgumentsDelta

_DELTAS = (TextDelta, ReasoningDelta, ToolCallArgumentsDelta)
# As many characters may have been held back before: an opening, and white space.
_MOST_HELD = 128

_text_of = attrgetter("text")
_logprobs_of = attrgetter("logprobs")
_index_of = attrgetter("index")


def join_deltas(
    events: Iterable[ReplyEvent], *, is_split_again: bool = True
) -> Iterator[tuple[ReplyEvent, Sequence[ReplyEvent]]]:
    """Yield the events, each row of like deltas as one; behind each the deltas it was made of.

    Where nothing `is_split_again` arguments are joined whatever they hold.
    """
    for kind, group in groupby(events, type):
        has_cuts = is_split_again and kind is ToolCallArgumentsDelta
        for row in _cut_at_escapes(group) if has_cuts else ([*group],):
            whole = _whole(row) if len(row) > 1 else None
            if whole is not None:
                yield whole, row
            else:
                yield from ((event, ()) for event in row)


def split_like(shown: list[ReplyEvent], deltas: Sequence[ReplyEvent]) -> list[ReplyEvent]:
    """Cut what is shown of joined deltas as these were; what was held before goes with the first.

    Only text at the beginning is cut: behind something else nobody knows whose text it is.
    """
    if not (deltas and shown and isinstance(first := shown[0], _DELTAS)):
        return shown
    texts: list[str] = [*map(_text_of, deltas)]
    whole, heard = first.text, "".join(texts)
    if whole != heard:
        most = min(len(whole), _MOST_HELD)
        held = next((n for n in range(most + 1) if heard.startswith(whole[n:])), None)
        if held is None:
            return shown
        texts = _cut(whole, [held + len(texts[0]), *map(len, texts[1:])])
    if type(first) is TextDelta:
        return [*map(TextDelta, texts), *shown[1:]]
    return [*(replace(first, text=text) for text in texts), *shown[1:]]


def _cut(text: str, lengths: list[int]) -> list[str]:
    pieces: list[str] = []
    start = 0
    for length in lengths:
        if start < len(text):
            pieces.append(text[start : start + length])
        start += length
    return pieces


def _cut_at_escapes(events: Iterable[ReplyEvent]) -> Iterator[list[ReplyEvent]]:
    """Yield rows of arguments; a text with escapes cannot be cut where its source was."""
    row = [*events]
    if _is_plain("".join(map(_text_of, row))):
        yield row
        return
    for is_plain, plain in groupby(row, lambda delta: _is_plain(_text_of(delta))):
        if is_plain:
            yield [*plain]
        else:
            yield from ([event] for event in plain)


def _is_plain(text: str) -> bool:
    return '"' not in text and "\\" not in text


def _whole(row: list[ReplyEvent]) -> Delta | None:
    """Join deltas of one kind; None if something would be lost."""
    match row[0]:
        case TextDelta() if [*map(_logprobs_of, row)].count(None) == len(row):
            return TextDelta("".join(map(_text_of, row)))
        case ReasoningDelta():
            return ReasoningDelta("".join(map(_text_of, row)))
        case ToolCallArgumentsDelta(index) if {*map(_index_of, row)} == {index}:
            return ToolCallArgumentsDelta(index, "".join(map(_text_of, row)))
        case _:
            return None
