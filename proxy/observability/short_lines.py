"""Log lines for a terminal: one short line for each request, coloured where the terminal can.

What happened, the model, seconds, tokens, and repairs in words; all that is known of a request is
in the other two forms (`logs`). What is written here was written by clients and models: it is
escaped, and a line for a request is never longer than the terminal is wide.
"""

import logging
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import TextIO

from proxy.facts import Outcome
from proxy.observability.escaping import escaped
from proxy.observability.record import CHAT, CLIENT_LEFT, RequestRecord
from proxy.observability.sentences import in_few_words

_RESET = "\x1b[0m"
_DIM, _RED, _GREEN, _YELLOW = "\x1b[2m", "\x1b[31m", "\x1b[32m", "\x1b[33m"
_LONGEST_MODEL = 32
_ROOM_FOR_TIME = 60  # columns; on a narrower terminal there is better use for them
_OUTCOMES = {
    Outcome.CLEAN: ("ok", _GREEN),
    Outcome.REPAIRED: ("repaired", _YELLOW),
    Outcome.RETRIED: ("retried", _YELLOW),
    Outcome.EXHAUSTED: ("gave up", _RED),
}
_LEVELS = {logging.WARNING: _YELLOW, logging.ERROR: _RED, logging.CRITICAL: _RED}
_LEFT = {
    "receiving": "while it was sent",
    "queued": "while it waited",
    "before_first_token": "before the first token",
    "between_attempts": "between two attempts",
    "streaming": "amid the answer",
}


@dataclass(frozen=True, slots=True)
class _Part:
    """A word or two of a line, and its colour."""

    text: str
    colour: str = ""


class ShortFormatter(logging.Formatter):
    """Lines for people who watch; `columns` tells how wide their terminal is now."""

    def __init__(self, columns: Callable[[], int], *, is_coloured: bool) -> None:
        super().__init__()
        self._columns = columns
        self._is_coloured = is_coloured

    def format(self, record: logging.LogRecord) -> str:
        """Return one line for a request; anything else may be as long as it is."""
        columns = self._columns()
        now = datetime.fromtimestamp(record.created).astimezone()
        time = _Part(f"{now:%H:%M:%S}", _DIM)
        request = getattr(record, "request", None)
        if isinstance(request, RequestRecord):
            parts = [*_parts_of(request)]
            return self._line([time, *parts] if columns >= _ROOM_FOR_TIME else parts, columns)
        level = record.levelname.lower()
        colour = _LEVELS.get(record.levelno, "")
        parts = [time] if record.levelno < logging.WARNING else [time, _Part(level, colour)]
        lines = [self._line([*parts, _Part(escaped(record.getMessage()))])]
        if record.exc_info:
            lines += map(escaped, self.formatException(record.exc_info).splitlines())
        return "\n".join(lines)

    def _line(self, parts: list[_Part], columns: int | None = None) -> str:
        """Join parts by two spaces, and cut what has no room."""
        written: list[str] = []
        room = columns
        for part in parts:
            text = part.text
            if room is not None:
                room -= len(text) + (2 if written else 0)
                text = text if room >= 0 else _shortened(text, len(text) + room)
            if text:
                is_plain = not (part.colour and self._is_coloured)
                written.append(text if is_plain else f"{part.colour}{text}{_RESET}")
            if room is not None and room <= 0:
                break
        return "  ".join(written)


def columns_of(stream: TextIO) -> int:
    """Return how wide the terminal of a stream is; COLUMNS overrules it, as everywhere."""
    try:
        known = os.get_terminal_size(stream.fileno())
    except (OSError, ValueError):
        return shutil.get_terminal_size().columns
    wished = os.environ.get("COLUMNS", "")
    return int(wished) if wished.isdecimal() and int(wished) else known.columns or 80


def takes_colour(stream: TextIO) -> bool:
    """Whether a stream is a terminal whose user wants colours (https://no-color.org)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _parts_of(record: RequestRecord) -> Iterator[_Part]:
    yield _happened(record)
    if record.model is not None:
        yield _Part(_shortened(escaped(record.model), _LONGEST_MODEL))
    yield _Part(_seconds(record.seconds))
    if record.path != CHAT:
        yield _Part(escaped(record.path), _DIM)
    yield from _work(record)
    if record.client is not None:
        yield _Part(f"by {_shortened(escaped(record.client), _LONGEST_MODEL)}", _DIM)
    if record.tokens.cached:
        yield _Part(f"{record.tokens.cached:,} cached", _DIM)


def _work(record: RequestRecord) -> Iterator[_Part]:
    """Say what it cost, what went wrong, and what was done about it."""
    if tokens := _tokens(record):
        yield _Part(tokens)
    if failed := _failed(record):
        yield _Part(failed, _RED)
    if len(record.attempts) > 1:
        yield _Part(f"{len(record.attempts)} attempts", _YELLOW)
    if done := in_few_words(record.facts):
        yield _Part(escaped(done), _YELLOW)


def _happened(record: RequestRecord) -> _Part:
    """Say in a word or two how it ended."""
    if record.status == CLIENT_LEFT:
        return _Part("left", _DIM)
    if record.status >= 400 or record.error is not None:
        return _Part(f"error {record.status}", _RED)
    return _Part(*_OUTCOMES[record.outcome]) if record.outcome is not None else _Part("ok", _GREEN)


def _tokens(record: RequestRecord) -> str:
    tokens = record.tokens
    is_told = tokens.prompt is not None or tokens.output is not None
    return f"{tokens.prompt or 0:,} in, {tokens.output or 0:,} out" if is_told else ""


def _failed(record: RequestRecord) -> str:
    """Say what kept an answer from coming, if anything did."""
    if record.left is not None:
        return f"the client left {_LEFT[record.left.value]}"
    return f"the backend: {record.error.replace('_', ' ')}" if record.error is not None else ""


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 0.1 else f"{seconds * 1000:.0f} ms"


def _shortened(text: str, room: int) -> str:
    """Cut a text to so many characters; nothing is left where hardly any is readable."""
    if len(text) <= room:
        return text
    return text[: room - 3] + "..." if room > 6 else ""
