"""Log lines: one for every request, structured, and safe to show on a terminal.

Programs get JSON, people who watch a terminal get `short_lines`, and text holds all that is known.
A line is made of facts about a request. Bodies and secrets never come here, and whatever a client
or a model wrote is escaped and cut, so that it can neither forge a line nor steer a terminal.
"""

import json
import logging
import re
import sys
from datetime import UTC, datetime
from functools import lru_cache
from typing import Literal, TextIO, TypeAlias

from proxy.facts import context, repairs, tools
from proxy.observability.escaping import escaped
from proxy.observability.record import RequestRecord
from proxy.observability.replica import replica_name
from proxy.observability.short_lines import ShortFormatter, columns_of, takes_colour

LONGEST_VALUE = 256

Value: TypeAlias = str | int | float | bool | None
LogFormat: TypeAlias = Literal["auto", "text", "json"]

_PLAIN = re.compile(r"[!#-<>-\[\]-~]+")  # printable ASCII but for spaces, quotes, = and backslashes
_requests = logging.getLogger("proxy.requests")


class RequestLog:
    """The sink that writes one line for each request."""

    def take(self, record: RequestRecord) -> None:
        """Write the line."""
        if _requests.isEnabledFor(logging.INFO):
            # as `info` does, without a search for the caller, which is always this
            place = (_requests.name, logging.INFO, __file__, 0)
            told = {"request": record}
            _requests.handle(_requests.makeRecord(*place, "request", (), None, extra=told))


def configure_logging(
    form: LogFormat, level: str, stream: TextIO | None = None, *, replica: str | None = None
) -> None:
    """Send all log lines to `stream`, standard error by default; may be called again.

    Each line names the `replica` that wrote it, by default as `replica_name` has it.
    Libraries are heard from warnings upwards only: some of them write headers and bodies below.
    """
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False  # not told
    handler = logging.StreamHandler(stream) if stream is not None else _StandardError()
    threshold = logging.getLevelNamesMapping()[level.upper()]
    handler.setFormatter(_formatter(form, stream or sys.stderr, threshold, replica))
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(max(threshold, logging.WARNING))
    logging.getLogger("proxy").setLevel(threshold)


class _StandardError(logging.StreamHandler[TextIO]):
    """Writes to what is standard error at that moment: a progress bar takes its place."""

    @property
    def stream(self) -> TextIO:
        """The stream of this moment."""
        return sys.stderr

    @stream.setter
    def stream(self, _stream: TextIO) -> None:
        """Leave it as it is: the base class sets what it is made with."""


def _formatter(
    form: LogFormat, stream: TextIO, threshold: int, replica: str | None
) -> logging.Formatter:
    """Choose the form: for a terminal short lines, but everything at debug level; else JSON."""
    is_watched = form == "auto" and stream.isatty()
    if form == "text" or (is_watched and threshold <= logging.DEBUG):
        return TextFormatter(replica)
    if is_watched:
        return ShortFormatter(lambda: columns_of(stream), is_coloured=takes_colour(stream))
    return JsonFormatter(replica)


class _ReplicaFormatter(logging.Formatter):
    """Knows whose lines it writes."""

    def __init__(self, replica: str | None = None) -> None:
        super().__init__()
        self.replica = replica or replica_name()


class TextFormatter(_ReplicaFormatter):
    """Lines for people: time, level, message, then `name=value` for all that is known."""

    def format(self, record: logging.LogRecord) -> str:
        """Return one line, however much the message would like to be several."""
        values = _values(record, self.replica)
        time, level, event = (str(values.pop(name)) for name in ("time", "level", "event"))
        pairs = [f"{name}={_quoted(value)}" for name, value in values.items() if value is not None]
        return " ".join([time, f"{level:<7}", escaped(event), *pairs])


class JsonFormatter(_ReplicaFormatter):
    """Lines for programs: one JSON object in pure ASCII each."""

    def format(self, record: logging.LogRecord) -> str:
        """Return one JSON object."""
        # json leaves DEL alone, the one control character that is valid inside a JSON string
        return json.dumps(_values(record, self.replica)).replace("\x7f", "\\u007f")


def _values(record: logging.LogRecord, replica: str) -> dict[str, Value]:
    second = int(record.created)
    values: dict[str, Value] = {
        "time": f"{_moment(second)}.{int((record.created - second) * 1000):03}Z",
        "level": record.levelname.lower(),
        "event": record.getMessage(),
    }
    request = getattr(record, "request", None)
    if isinstance(request, RequestRecord):
        values |= _told(request)
    else:
        values["logger"] = record.name
    values["replica"] = replica
    if record.exc_info:
        values["traceback"] = logging.Formatter().formatException(record.exc_info)
    return values


@lru_cache(maxsize=1)
def _moment(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def _told(record: RequestRecord) -> dict[str, Value]:
    """Return what is logged of a request; times in milliseconds."""
    tokens, outcome = record.tokens, record.outcome
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
        "tools": _cut(tools(record.facts)) or None,
        "repairs": _cut(repairs(record.facts)),
        "context": _cut(context(record.facts)) or None,
        "error": record.error,
        "left": record.left.value if record.left is not None else None,
        "trace": f"{record.trace.trace_id:032x}" if record.trace is not None else None,
    }


def _milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 1)


def _cut(text: str | None) -> str | None:
    return text if text is None or len(text) <= LONGEST_VALUE else text[:LONGEST_VALUE] + "..."


def _quoted(value: Value) -> str:
    if not isinstance(value, str):
        return str(value).lower()
    if _PLAIN.fullmatch(value):
        return value
    text = escaped(value)
    return '"' + text.replace('"', '\\"') + '"'
