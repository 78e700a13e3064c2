"""Fast path for the most common chunk: a fragment of text, of reasoning, or of a call's arguments.

    data: {"id":"c","choices":[{"index":0,"delta":{"content":"Hi"},"finish_reason":null}]}

Theory of operation: consecutive chunks of an engine differ only in their text. `Runs` learns from
one chunk which bytes are before and after the text, and verifies them with another text. Then it
cuts the texts out of a whole segment, without decoding each chunk. Chunks that differ in more than
their text are decoded by `ChunkDecoder`. The fast path halves the cost of reading a chunk.
"""

import re
from typing import NamedTuple, TypeAlias

import msgspec

from proxy.conversation.replies import ReasoningDelta, TextDelta
from proxy.dialects.openai_chat.chunks import NOTHING, OTHER_FORM, CallFragment, Delta, read_chunk
from proxy.dialects.sse import DATA, END_OF_EVENT


class ArgumentsFragment(NamedTuple):
    """More arguments of the call with the engine's `number`."""

    number: int
    text: str


Fragment: TypeAlias = TextDelta | ReasoningDelta | ArgumentsFragment


def fragment_in(data: str) -> Fragment | None:
    """Read a chunk with one fragment and nothing else; None for any other chunk."""
    try:
        chunk = read_chunk(data)
        (choice,) = chunk.choices  # raises ValueError unless there is exactly one choice
    except OTHER_FORM:
        return None
    raws = (chunk.usage, chunk.timings, choice.logprobs)
    is_last = choice.finish_reason is not None or any(raw != NOTHING for raw in raws)
    has_other_data = chunk.prompt_progress is not None or chunk.verbose is not None
    if is_last or choice.index or has_other_data:
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
# After this many failed attempts in a row, the fast path is no longer tried, because the chunks of
# this engine differ in more than their text.
_MOST_ATTEMPTS = 8
_FEWEST_PAYLOADS = 6  # with fewer payloads, the search for a run costs more than it saves

_read_text = msgspec.json.Decoder(str).decode
_read_texts = msgspec.json.Decoder(list[str]).decode


# `gc=False` saves time, because each read creates a run; a run cannot be part of a reference cycle
class ChunkRun(msgspec.Struct, frozen=True, gc=False):
    """The texts of consecutive chunks that differ from the chunk of `sample` only in their text.

    `end` is the end of the run: for `find`, it is an offset; for `find_in_payloads`, an index.
    """

    sample: Fragment
    texts: list[str]
    end: int


class _Pattern(NamedTuple):
    """The bytes before and after the text of an event, and the `separator` between two texts."""

    sample: Fragment
    opening: bytes
    closing: bytes
    separator: bytes


class Runs:
    """Finds runs in the events of one reply: consecutive chunks that differ only in their text.

    The search ends when `attempts_left` is 0. Each run that is found resets this count.
    """

    def __init__(self) -> None:
        self._pattern: _Pattern | None = None
        self.attempts_left = _MOST_ATTEMPTS

    def learn(self, event: bytes) -> None:
        """Learn the pattern of an event; `event` has to lack the line ends after the event."""
        if self.attempts_left:
            self.attempts_left -= 1
            self._pattern = _pattern_of(event)

    def skip(self) -> None:
        """Count an event without a pattern, such as a comment."""
        self.attempts_left = max(0, self.attempts_left - 1)

    def find_in_payloads(self, payloads: list[bytes]) -> tuple[int, ChunkRun] | None:
        """Find a run among the payloads of one segment; return its start index and the run."""
        if len(payloads) < _FEWEST_PAYLOADS or not self.attempts_left:
            return None
        # The pattern is learned from the payload in the middle, because the first payloads may have
        # the role, and the last payload may have the usage.
        self.learn(DATA + payloads[len(payloads) // 2])
        if self._pattern is None:
            return None
        sample, opening, closing, _ = self._pattern
        opening, closing = opening[len(DATA) :], closing[: -len(END_OF_EVENT)]
        before, after = len(opening), len(closing)
        matches = [
            payload.startswith(opening) and payload.endswith(closing) for payload in payloads
        ]
        start = matches.index(True, 1)  # the first payload may be the start of the reply
        end = matches.index(False, start) if False in matches[start:] else len(matches)
        matching = payloads[start:end]
        if min(map(len, matching)) < before + after:
            return None
        texts = _decode_texts([payload[before:-after] for payload in matching])
        if texts is None:
            return None
        self.attempts_left = _MOST_ATTEMPTS
        return start, ChunkRun(sample, texts, end)

    def find(self, data: bytes, start: int) -> ChunkRun | None:
        """Read the run that begins at offset `start`; None if its first event does not match."""
        pattern = self._pattern
        if pattern is None or not data.startswith(pattern.opening, start):
            return None
        sample, opening, closing, _ = pattern
        text_start = start + len(opening)
        after = data.find(END_OF_EVENT, text_start) + len(END_OF_EVENT)
        end = after - len(closing)
        if end < text_start or not data.startswith(closing, end):
            return None
        if data.startswith(opening, after):
            run = _read_many(pattern, data, text_start)
        else:
            run = _read_single(sample, data[text_start:end], after)
        if run is not None:
            self.attempts_left = _MOST_ATTEMPTS
        return run


def _read_single(sample: Fragment, raw: bytes, end: int) -> ChunkRun | None:
    try:
        return ChunkRun(sample, [_read_text(b'"' + raw + b'"')], end)
    except ValueError:
        return None


def _read_many(pattern: _Pattern, data: bytes, start: int) -> ChunkRun | None:
    sample, opening, closing, _ = pattern
    raw_texts = _split_texts(data[start:], closing, opening, pattern.separator)
    if raw_texts is None:
        return None
    *raw, tail = raw_texts
    last, closing_found, after = tail.partition(closing)
    if closing_found:
        raw.append(last)
        end = len(data) - len(after)
    else:  # the run ends before the last event, which is incomplete or has another ending
        end = len(data) - len(tail) - len(opening)
    texts = _decode_texts(raw)
    return None if texts is None else ChunkRun(sample, texts, end)


def _split_texts(
    data: bytes, closing: bytes, opening: bytes, separator: bytes
) -> list[bytes] | None:
    """Split at the separators; None if there are other line ends between the texts.

    The data is split at line ends, because `bytes.split` with the long separator would double the
    cost. Each separator has two line ends, so the number of separators gives the number of splits.
    If a separator remains after these splits, the data has further line ends within the texts.
    """
    *lines, tail = data.split(b"\n", len(END_OF_EVENT) * data.count(separator))
    if separator in tail:
        return None
    before, after = len(opening), len(END_OF_EVENT) - len(closing)
    first, *other_lines = lines[:: len(END_OF_EVENT)]
    return [first[:after], *[payload[before:after] for payload in other_lines], tail[before:]]


def _pattern_of(event: bytes) -> _Pattern | None:
    """Return the pattern of an event, verified by decoding it with another text."""
    match = _TEXT.search(event)
    if match is None or not event.startswith(DATA) or b"\n" in event:
        return None
    opening, closing = event[: match.start(1)], event[match.end(1) :]
    sample = fragment_in((opening[len(DATA) :] + _SAMPLE + closing).decode("utf-8", "replace"))
    if sample is None or sample.text != _SAMPLE.decode():
        return None
    closing += END_OF_EVENT
    return _Pattern(sample, opening, closing, closing + opening)


def _decode_texts(raw: list[bytes]) -> list[str] | None:
    """Decode the contents of JSON strings; None if any of them is invalid."""
    joined = b'","'.join(raw)
    # If a text ended in a backslash, it would be joined with the next text. Any other invalid text
    # raises ValueError, or changes the number of texts.
    if b'\\","' in joined or joined.endswith(b"\\"):
        return None
    try:
        texts = _read_texts(b'["' + joined + b'"]')
    except ValueError:
        return None
    return texts if len(texts) == len(raw) else None
