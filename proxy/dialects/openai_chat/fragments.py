"""The chunk that nearly every chunk is: a piece of text, of a thought or of a call's arguments.

Half of what reading any chunk costs. What is in any way different is left to the decoder, which
knows every form; nothing is judged here.
"""

import re
from typing import NamedTuple, TypeAlias

import msgspec

from proxy.conversation.replies import ReasoningDelta, TextDelta
from proxy.dialects.openai_chat.chunks import NOTHING, OTHER_FORM, CallFragment, Delta, read_chunk
from proxy.dialects.sse import DATA, END_OF_EVENT


class ArgumentsFragment(NamedTuple):
    """More of the arguments of the call that has this number for the backend."""

    number: int
    text: str


Fragment: TypeAlias = TextDelta | ReasoningDelta | ArgumentsFragment


def fragment_in(data: str) -> Fragment | None:
    """Read a chunk that holds one fragment and nothing else; None for any other."""
    try:
        chunk = read_chunk(data)
        (choice,) = chunk.choices
    except OTHER_FORM:
        return None
    raws = (chunk.usage, chunk.timings, choice.logprobs)
    is_last = choice.finish_reason is not None or any(raw != NOTHING for raw in raws)
    is_more = chunk.prompt_progress is not None or chunk.verbose is not None
    if is_last or choice.index or is_more:
        return None
    match choice.delta:
        case Delta(str(text), None | "", None, None) if text:
            return TextDelta(text)
        case Delta(None | "", str(thought), None, None) if thought:
            return ReasoningDelta(thought)
        case Delta(None | "", None | "", None, [CallFragment(int(number), None, function)]):
            if function is not None and function.name is None and function.arguments is not None:
                return ArgumentsFragment(number, function.arguments)
        case _:
            pass
    return None


_TEXT = re.compile(rb'"(?:content|reasoning_content|arguments)": ?"((?:[^"\\]|\\.)*)"')
_SAMPLE = b"~"
# A backend of which no two chunks are alike is not looked at for ever.
_PATIENCE = 8
_LEAST = 6  # payloads among which a run is worth a search

_read_text = msgspec.json.Decoder(str).decode
_read_texts = msgspec.json.Decoder(list[str]).decode


class ChunkRun(msgspec.Struct, frozen=True, gc=False):
    """The texts of chunks that are else like the one of `sample`; `end` is where they end."""

    sample: Fragment
    texts: list[str]
    end: int


class _Pattern(NamedTuple):
    """The bytes before and behind the text of an event; a `mark` is what stands between two."""

    sample: Fragment
    opening: bytes
    closing: bytes
    mark: bytes


class Runs:
    """Finds the runs in the events of one reply, unless its `patience` with them is at an end."""

    def __init__(self) -> None:
        self._pattern: _Pattern | None = None
        self.patience = _PATIENCE

    def learn(self, event: bytes) -> None:
        """Take an event, without its last lines' ends, for the pattern of what follows it."""
        if self.patience:
            self.patience -= 1
            self._pattern = _pattern_of(event)

    def skip(self) -> None:
        """Take note of an event without effect, such as a comment."""
        self.patience = max(0, self.patience - 1)

    def among(self, payloads: list[bytes]) -> tuple[int, ChunkRun] | None:
        """Find a run like the middle one of payloads that came together; return where it starts."""
        if len(payloads) < _LEAST or not self.patience:
            return None
        self.learn(DATA + payloads[len(payloads) // 2])
        if self._pattern is None:
            return None
        sample, opening, closing, _ = self._pattern
        opening, closing = opening[len(DATA) :], closing[: -len(END_OF_EVENT)]
        before, after = len(opening), len(closing)
        alike = [payload.startswith(opening) and payload.endswith(closing) for payload in payloads]
        start = alike.index(True, 1)  # the first chunk may begin the reply
        end = alike.index(False, start) if False in alike[start:] else len(alike)
        row = payloads[start:end]
        if min(map(len, row)) < before + after:
            return None
        texts = _texts([payload[before:-after] for payload in row])
        if texts is None:
            return None
        self.patience = _PATIENCE
        return start, ChunkRun(sample, texts, end)

    def find(self, data: bytes, start: int) -> ChunkRun | None:
        """Read the events that begin at `start`; None if the first is not whole or not alike."""
        pattern = self._pattern
        if pattern is None or not data.startswith(pattern.opening, start):
            return None
        sample, opening, closing, _ = pattern
        begin = start + len(opening)
        after = data.find(END_OF_EVENT, begin) + len(END_OF_EVENT)
        end = after - len(closing)
        if end < begin or not data.startswith(closing, end):
            return None
        if data.startswith(opening, after):
            run = _many(pattern, data, begin)
        else:
            run = _single(sample, data[begin:end], after)
        if run is not None:
            self.patience = _PATIENCE
        return run


def _single(sample: Fragment, raw: bytes, end: int) -> ChunkRun | None:
    try:
        return ChunkRun(sample, [_read_text(b'"' + raw + b'"')], end)
    except ValueError:
        return None


def _many(pattern: _Pattern, data: bytes, start: int) -> ChunkRun | None:
    sample, opening, closing, mark = pattern
    pieces = _apart(data[start:], closing, opening, mark)
    if pieces is None:
        return None
    *raw, rest = pieces
    last, separator, after = rest.partition(closing)
    if separator:
        raw.append(last)
        end = len(data) - len(after)
    else:
        end = len(data) - len(rest) - len(opening)
    texts = _texts(raw)
    return None if texts is None else ChunkRun(sample, texts, end)


def _apart(data: bytes, closing: bytes, opening: bytes, mark: bytes) -> list[bytes] | None:
    """Split at what stands between two texts; None where another line end is among these.

    `split` would prepare itself anew for each piece, as the mark is long, for half of what reading
    a row costs. As every mark has two line ends, there is another if those leave a mark behind.
    """
    *lines, rest = data.split(b"\n", len(END_OF_EVENT) * data.count(mark))
    if mark in rest:
        return None
    before, after = len(opening), len(END_OF_EVENT) - len(closing)
    first, *others = lines[:: len(END_OF_EVENT)]
    return [first[:after], *[payload[before:after] for payload in others], rest[before:]]


def _pattern_of(event: bytes) -> _Pattern | None:
    """Prove with another text that an event is what it seems to be."""
    match = _TEXT.search(event)
    if match is None or not event.startswith(DATA) or b"\n" in event:
        return None
    opening, closing = event[: match.start(1)], event[match.end(1) :]
    sample = fragment_in((opening[len(DATA) :] + _SAMPLE + closing).decode("utf-8", "replace"))
    if sample is None or sample.text != _SAMPLE.decode():
        return None
    closing += END_OF_EVENT
    return _Pattern(sample, opening, closing, closing + opening)


def _texts(raw: list[bytes]) -> list[str] | None:
    """Read the insides of strings; None if one of them is none."""
    joined = b'","'.join(raw)
    # One that ended in a backslash would swallow the next; all else would change the number.
    if b'\\","' in joined or joined.endswith(b"\\"):
        return None
    try:
        texts = _read_texts(b'["' + joined + b'"]')
    except ValueError:
        return None
    return texts if len(texts) == len(raw) else None
