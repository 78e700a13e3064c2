"""Log lines: one for each request, in one of three formats.

    short   10:31:02  repaired  qwen3  1.2 s  310 in, 12 out  a call rescued from text (hermes)
    json    {"time":"2026-01-31T10:31:02.123Z","level":"info","event":"request","id":...}
    text    2026-01-31T10:31:02.123Z info    request id=... status=200 total_ms=1203.4 ...

A terminal gets the short format. Other destinations get JSON. Bodies and secrets are never logged.
Text of clients and models is escaped and cut, so it can neither forge a line nor control a
terminal.
"""

import json
import logging
import os
import re
import shutil
import socket
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from functools import lru_cache
from typing import Literal, NamedTuple, TextIO, TypeAlias

import msgspec

from proxy.facts import WORDS, ReplyOutcome, context, cut, fallback, repairs, tools
from proxy.observability.record import CHAT, CLIENT_LEFT, RequestRecord
from proxy.observability.sentences import escape, summarize

LONGEST_VALUE = 256  # characters of a field

Value: TypeAlias = str | int | float | bool | None
LogFormat: TypeAlias = Literal["auto", "text", "json"]

# a value that needs no quotes: printable ASCII without spaces, quotes, = and backslashes
_UNQUOTED = re.compile(r"[!#-<>-\[\]-~]+")
_ENCODER = msgspec.json.Encoder()
_requests = logging.getLogger("proxy.requests")


def replica_name() -> str:
    """Return the name of the pod in Kubernetes, otherwise `host:process id`."""
    host = socket.gethostname()
    if pod := os.environ.get("POD_NAME", ""):  # set by Kubernetes' downward API
        return pod
    return host if os.environ.get("KUBERNETES_SERVICE_HOST") else f"{host}:{os.getpid()}"


_DIM, _RED, _GREEN, _YELLOW = "\x1b[2m", "\x1b[31m", "\x1b[32m", "\x1b[33m"
_LONGEST_MODEL = 32  # columns on a terminal
_LONGEST_REASON = 2000  # characters; the reason may quote an engine's long message
_FEWEST_COLUMNS_FOR_TIME = 60  # on a narrower terminal, the time would displace the outcome
# "clean" is shown as "ok", in green
_COLORS = {
    ReplyOutcome.REPAIRED: _YELLOW,
    ReplyOutcome.RETRIED: _YELLOW,
    ReplyOutcome.FALLBACK: _YELLOW,
    ReplyOutcome.EXHAUSTED: _RED,
}
_LEVELS = {logging.WARNING: _YELLOW, logging.ERROR: _RED, logging.CRITICAL: _RED}


class _StyledText(NamedTuple):
    """A part of a line; `color` is an ANSI escape sequence, or "" for the terminal's color."""

    text: str
    color: str = ""


class ShortFormatter(logging.Formatter):
    """Formats short lines for a terminal; `columns` returns its current width."""

    def __init__(self, columns: Callable[[], int], *, is_colored: bool) -> None:
        super().__init__()
        self._columns = columns
        self._is_colored = is_colored

    def format(self, record: logging.LogRecord) -> str:
        """Format a record; the line of a request is cut, unless the request failed."""
        columns = self._columns()
        now = datetime.fromtimestamp(record.created).astimezone()
        time = _StyledText(f"{now:%H:%M:%S}", _DIM)
        request = getattr(record, "request", None)
        if isinstance(request, RequestRecord):
            parts = _parts_of(request)
            parts = [time, *parts] if columns >= _FEWEST_COLUMNS_FOR_TIME else parts
            # the line of a failure is not cut, because its reason is at the end
            return self._line(parts, None if _failure_text(request) else columns)
        level = _StyledText(record.levelname.lower(), _LEVELS.get(record.levelno, ""))
        parts = [time] if record.levelno < logging.WARNING else [time, level]
        lines = [self._line([*parts, _StyledText(escape(record.getMessage()))])]
        if record.exc_info:
            lines += map(escape, self.formatException(record.exc_info).splitlines())
        return "\n".join(lines)

    def _line(self, parts: list[_StyledText], columns: int | None = None) -> str:
        """Join parts by two spaces, and cut the line to `columns`."""
        pieces: list[str] = []
        columns_left = columns
        for part in parts:
            text = part.text
            if columns_left is not None:
                columns_left -= len(text) + (2 if pieces else 0)
                text = text if columns_left >= 0 else _shorten(text, len(text) + columns_left)
            if text:
                is_plain = not (part.color and self._is_colored)
                pieces.append(text if is_plain else f"{part.color}{text}\x1b[0m")
            if columns_left is not None and columns_left <= 0:
                break
        return "  ".join(pieces)


def columns_of(stream: TextIO) -> int:
    """Return the width of a stream's terminal; COLUMNS overrides it, as POSIX specifies."""
    try:
        size = os.get_terminal_size(stream.fileno())
    except (OSError, ValueError):
        return shutil.get_terminal_size().columns
    override = os.environ.get("COLUMNS", "")
    return int(override) if override.isdecimal() and int(override) else size.columns or 80


def takes_color(stream: TextIO) -> bool:
    """Return whether the stream is a terminal with colors enabled (https://no-color.org)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _parts_of(record: RequestRecord) -> list[_StyledText]:
    tokens, model, client = record.tokens, record.model or "", record.client
    has_tokens = tokens.prompt is not None or tokens.output is not None
    attempts = len(record.attempts)
    parts = [
        _outcome_part(record),
        _StyledText(_shorten(escape(model), _LONGEST_MODEL)),
        _StyledText(_seconds(record.seconds)),
        _StyledText(escape(record.path) if record.path != CHAT else "", _DIM),
        _StyledText(f"{tokens.prompt or 0:,} in, {tokens.output or 0:,} out" if has_tokens else ""),
        _StyledText(_failure_text(record), _RED),
        _StyledText(f"{attempts} attempts" if attempts > 1 else "", _YELLOW),
        _StyledText(summarize(record.facts), _YELLOW),
        _StyledText(f"by {_shorten(escape(client), _LONGEST_MODEL)}" if client else "", _DIM),
        _StyledText(f"{tokens.cached:,} cached" if tokens.cached else "", _DIM),
    ]
    return [part for part in parts if part.text]


def _outcome_part(record: RequestRecord) -> _StyledText:
    if record.status == CLIENT_LEFT:
        return _StyledText("left", _DIM)
    if record.status >= 400 or record.error is not None:
        return _StyledText(f"error {record.status}", _RED)
    if record.outcome is None or record.outcome is ReplyOutcome.CLEAN:
        return _StyledText("ok", _GREEN)
    return _StyledText(WORDS.outcomes[record.outcome.value][0], _COLORS[record.outcome])


def _failure_text(record: RequestRecord) -> str:
    if record.left is not None:
        return f"the client disconnected {WORDS.departures[record.left]}"
    if record.error is not None:
        return f"the backend: {record.error.replace('_', ' ')}"
    return escape(cut(record.refusal, _LONGEST_REASON))


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 0.1 else f"{seconds * 1000:.0f} ms"


def _shorten(text: str, most: int) -> str:
    """Cut a text to `most` characters, ending in "..."; return "" if `most` is below seven."""
    if len(text) <= most:
        return text
    return text[: most - 3] + "..." if most > 6 else ""


class RequestLog:
    """The sink for log lines: one for each request."""

    def take(self, record: RequestRecord) -> None:
        if _requests.isEnabledFor(logging.INFO):
            # like `info`, which would also search the stack for its caller (always this function)
            origin = (_requests.name, logging.INFO, __file__, 0)
            extra = {"request": record}
            line = _requests.makeRecord(*origin, "request", (), None, extra=extra)
            line.created = record.begun_at + record.seconds
            _requests.handle(line)


def configure_logging(
    log_format: LogFormat, level: str, stream: TextIO | None = None, *, replica: str | None = None
) -> None:
    """Send all log lines to `stream`, standard error by default; may be called again.

    Each line has the name of the `replica`, by default `replica_name()`. Library messages below
    warnings are dropped, because some libraries log headers and bodies at the lower levels.
    """
    # no format shows the thread or process, and `logging` would look them up for every line
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    handler = logging.StreamHandler(stream) if stream is not None else _StandardError()
    threshold = logging.getLevelNamesMapping()[level.upper()]
    handler.setFormatter(_formatter(log_format, stream or sys.stderr, threshold, replica))
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(max(threshold, logging.WARNING))
    logging.getLogger("proxy").setLevel(threshold)


class _StandardError(logging.StreamHandler[TextIO]):
    """Writes to the current `sys.stderr`, which a progress bar may have replaced since startup."""

    @property
    def stream(self) -> TextIO:
        return sys.stderr

    @stream.setter
    def stream(self, _stream: TextIO) -> None:
        """Ignore the stream that the base class sets."""


def _formatter(
    log_format: LogFormat, stream: TextIO, threshold: int, replica: str | None
) -> logging.Formatter:
    """Return the formatter of a format.

    `auto` is JSON, except on a terminal: there it is `short`, or `text` if the level is debug.
    """
    is_terminal = log_format == "auto" and stream.isatty()
    if log_format == "text" or (is_terminal and threshold <= logging.DEBUG):
        return TextFormatter(replica)
    if is_terminal:
        return ShortFormatter(lambda: columns_of(stream), is_colored=takes_color(stream))
    return JsonFormatter(replica)


class _ReplicaFormatter(logging.Formatter):
    """The base of the formats that name the replica."""

    def __init__(self, replica: str | None = None) -> None:
        super().__init__()
        self.replica = replica or replica_name()


class TextFormatter(_ReplicaFormatter):
    """Formats lines for people: time, level, message, then `name=value` for each known field."""

    def format(self, record: logging.LogRecord) -> str:
        """Return one line; line breaks in the message are escaped."""
        values = _values(record, self.replica)
        time, level, event = (str(values.pop(name)) for name in ("time", "level", "event"))
        pairs = [f"{name}={_quote(value)}" for name, value in values.items() if value is not None]
        return " ".join([time, f"{level:<7}", escape(event), *pairs])


class JsonFormatter(_ReplicaFormatter):
    """Formats lines for programs: one JSON object each, in ASCII."""

    def format(self, record: logging.LogRecord) -> str:
        values = _values(record, self.replica)
        try:
            # `indent=0` writes one line, with a space after each colon and comma
            line = msgspec.json.format(_ENCODER.encode(values), indent=0)
        except UnicodeEncodeError:  # a lone surrogate, which only `json.dumps` can escape
            line = b""
        if not line or not line.isascii():
            line = json.dumps(values).encode()
        # neither encoder escapes DEL, a control character that is valid inside a JSON string
        return line.replace(b"\x7f", b"\\u007f").decode()


def _values(record: logging.LogRecord, replica: str) -> dict[str, Value]:
    second = int(record.created)
    values: dict[str, Value] = {
        "time": f"{_moment(second)}.{int((record.created - second) * 1000):03}Z",
        "level": record.levelname.lower(),
        "event": record.getMessage(),
    }
    request = getattr(record, "request", None)
    if isinstance(request, RequestRecord):
        values |= _request_values(request)
    else:
        values["logger"] = record.name
    values["replica"] = replica
    if record.exc_info:
        values["traceback"] = logging.Formatter().formatException(record.exc_info)
    return values


@lru_cache(maxsize=1)  # formatting the date for every line would be a large part of its cost
def _moment(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def _request_values(record: RequestRecord) -> dict[str, Value]:
    """Return the logged fields of a request; times are in milliseconds."""
    tokens, outcome, facts = record.tokens, record.outcome, record.facts
    return {
        "id": _cut(record.id),
        "status": record.status,
        "total_ms": _milliseconds(record.seconds),
        "model": _cut(record.model),
        "backend": _cut(record.backend),
        "client": _cut(record.client),
        "dialect": record.dialect,
        "stream": record.stream,
        "queued_ms": _milliseconds(record.queued),
        "first_token_ms": _milliseconds(record.first_token),
        "overhead_ms": _milliseconds(record.overhead),
        "prompt_tokens": tokens.prompt,
        "cached_tokens": tokens.cached,
        "output_tokens": tokens.output,
        "attempts": len(record.attempts),
        "outcome": outcome.value if outcome is not None else None,
        "fallback": _cut(fallback(facts)) or None,
        "tools": _cut(tools(facts)) or None,
        "repairs": _cut(repairs(facts)),
        "context": _cut(context(facts)) or None,
        "error": record.error or _cut(record.refusal) or None,
        "left": record.left,
        "trace": f"{record.trace.trace_id:032x}" if record.trace is not None else None,
    }


def _milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 1)


def _cut(text: str | None) -> str | None:
    return text if text is None else cut(text, LONGEST_VALUE)


def _quote(value: Value) -> str:
    if not isinstance(value, str):
        return str(value).lower()
    return value if _UNQUOTED.fullmatch(value) else '"' + escape(value).replace('"', '\\"') + '"'
