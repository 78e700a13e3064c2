"""Deltas that arrived together: joined to be read in one step, then cut as the backend did.

It relies on what is heard in a text being the same at any chunking, and changes no character.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, groupby
from operator import attrgetter

from msgspec.structs import replace

from proxy.conversation.replies import (
    DELTAS,
    Delta,
    ReasoningDelta,
    ReplyEvent,
    TextDelta,
    ToolCallArgumentsDelta,
)

# As many characters may have been held back before: an opening, and white space.
_MOST_HELD = 128

_text_of = attrgetter("text")


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
    """Cut what is shown of joined deltas as they were, as far as it is text at the beginning."""
    if not (deltas and shown and isinstance(first := shown[0], DELTAS)):
        return shown
    texts: list[str] = [*map(_text_of, deltas)]
    whole, heard = first.text, "".join(texts)
    if whole != heard:
        most = min(len(whole), _MOST_HELD)
        held = next((n for n in range(most + 1) if heard.startswith(whole[n:])), None)
        if held is None:
            return shown
        ends = [held + end for end in accumulate(map(len, texts))]
        starts = (0, *ends[:-1])
        texts = [
            whole[start:end] for start, end in zip(starts, ends, strict=True) if start < len(whole)
        ]
    if type(first) is TextDelta:
        return [*map(TextDelta, texts), *shown[1:]]
    return [*(replace(first, text=text) for text in texts), *shown[1:]]


def _cut_at_escapes(events: Iterable[ReplyEvent]) -> Iterator[list[ReplyEvent]]:
    """Yield rows of arguments; a text with escapes cannot be cut where its source was."""
    for is_plain, row in groupby(events, _is_plain):
        if is_plain:
            yield [*row]
        else:
            yield from ([event] for event in row)


def _is_plain(event: ReplyEvent) -> bool:
    text: str = _text_of(event)
    return '"' not in text and "\\" not in text


def _whole(row: list[ReplyEvent]) -> Delta | None:
    """Join deltas of one kind; None if something would be lost."""
    match row[0]:
        case TextDelta() if [*map(attrgetter("logprobs"), row)].count(None) == len(row):
            return TextDelta("".join(map(_text_of, row)))
        case ReasoningDelta():
            return ReasoningDelta("".join(map(_text_of, row)))
        case ToolCallArgumentsDelta(index) if {*map(attrgetter("index"), row)} == {index}:
            return ToolCallArgumentsDelta(index, "".join(map(_text_of, row)))
        case _:
            return None
