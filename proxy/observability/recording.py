"""Recordings: JSON Lines, one exchange (a request, its generations, and the answer) per line.

The format is specific to Temper and has a version. An exchange contains the input of an offline
replay: the request, the model's properties, the operator's settings, each raw generation, and the
results of the tool calls that Temper ran. Secrets are redacted before a line is written. Names and
schemas of tools are not redacted, because a replay needs them.

    {"version": 2, "id": "...", "model": {...}, "policy": {...}, "request": {"messages": [...]},
     "generations": [[["text", "Hello"], ["finished", "stop"]]], "answer": {...}, "verdict": {...}}
"""

import logging
import os
import re
from collections import OrderedDict, deque
from collections.abc import Generator, Iterable, Mapping
from concurrent import futures
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import msgspec

from proxy import bounds
from proxy.context.prefix import Reread
from proxy.conversation import json
from proxy.conversation.json import JsonValue
from proxy.conversation.workflows import Workflow
from proxy.errors import InvalidConfiguration
from proxy.guardrails.close_out import CloseOut
from proxy.guardrails.model_quirks import Replay
from proxy.guardrails.offer import Mode, TextPolicy
from proxy.guardrails.transcript import MOST_FAILURES
from proxy.observability.record import CHAT_DIALECT

REDACTED = "[redacted]"

_SHORTEST = 4  # a shorter secret would match inside ordinary words
_NAME = r"(?:proxy-)?authorization|cookie|(?:\w+[-_])?(?:api[-_]?key|password|passwd|secret|token)"
_NAMES = re.compile(_NAME, re.IGNORECASE)
# `"api_key": "..."` or `password='...'`, also with the escaped quotes of JSON within a string
_ASSIGNED = re.compile(
    rf"""((?<![\w-])\\*["']?(?:{_NAME})\\*["']?\s*[:=]\s*\\*["'])[^"'\\]+""", re.IGNORECASE
)
# the value of an Authorization header: `Bearer abcdefgh`
_BEARER = re.compile(r"\b(bearer|basic)\s+[\w.~+/=-]{8,}", re.IGNORECASE)
# OpenAI and Stripe keys, GitHub, Slack, AWS and Hugging Face tokens, JSON Web Tokens
_TOKEN = re.compile(
    r"\b(?:sk|pk|rk)-[\w-]{16,}|\bgh[pousr]_\w{20,}|\bxox[abprs]-[\w-]{10,}|\bAKIA[0-9A-Z]{16}\b"
    r"|\bhf_\w{20,}|\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*"
)


class Redaction:
    """Redacts `secrets`, and texts that look like secrets."""

    def __init__(self, secrets: Iterable[str]) -> None:
        # longest first: a secret may contain another secret
        known = {secret for secret in secrets if len(secret) >= _SHORTEST}
        self._secrets = sorted(known, key=len, reverse=True)

    def with_secrets(self, *secrets: str) -> "Redaction":
        """Return a redaction with additional secrets."""
        return Redaction((*self._secrets, *secrets))

    def redact(self, value: JsonValue) -> JsonValue:
        """Redact secrets in all strings, and the whole string under a name like `password`."""
        match value:
            case str():
                return self.redact_text(value)
            case list():
                return [self.redact(item) for item in value]
            case dict():
                return {
                    name: REDACTED
                    if isinstance(member, str) and member and _NAMES.fullmatch(name)
                    else self.redact(member)
                    for name, member in value.items()
                }
            case _:
                return value

    def redact_text(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, REDACTED)
        text = _ASSIGNED.sub(rf"\1{REDACTED}", text)
        text = _BEARER.sub(rf"\1 {REDACTED}", text)
        return _TOKEN.sub(REDACTED, text)


_MOST_REMEMBERED = 2000  # request numbers that are remembered for each `reason`


class KeptExchanges:
    """The latest lines of a recording by request number, at most `most_bytes` in total."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._bytes = 0
        self._lines: OrderedDict[int, bytes] = OrderedDict()
        self._too_large: deque[int] = deque(maxlen=_MOST_REMEMBERED)
        self._dropped: deque[int] = deque(maxlen=_MOST_REMEMBERED)

    def keep(self, number: int, line: bytes) -> None:
        if len(line) > self._most_bytes:
            self.leave_out(number)
            return
        self._lines[number] = line
        self._bytes += len(line)
        while self._bytes > self._most_bytes:
            oldest, evicted = self._lines.popitem(last=False)
            self._bytes -= len(evicted)
            self._dropped.append(oldest)

    def leave_out(self, number: int) -> None:
        """Remember that the exchange of a request was too large to store."""
        self._too_large.append(number)

    def has(self, number: int) -> bool:
        return number in self._lines

    def line(self, number: int) -> bytes | None:
        return self._lines.get(number)

    def reason(self, number: int) -> str:
        """Return the reason why the exchange of a finished request is missing, as a code word."""
        if number in self._too_large:
            return "too_large"
        return "dropped" if number in self._dropped else "not_understood"


logger = logging.getLogger(__name__)

SETTING = "recording.path"

# A piece of a generation, e.g. ["text", "Hello"]; see `exchange_recorder.event_of` for the kinds.
Piece: TypeAlias = Annotated[list[str | int | None], msgspec.Meta(min_length=1)]


class RecordedModel(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The detected properties of the model, and the operator's settings for this model."""

    names: tuple[str, ...]
    architecture: str
    template: str
    takes_tools: bool | None = None
    profile: str | None = None
    convention: str | None = None
    replay: Replay | None = None
    opens_thoughts: bool = False


class RecordedPolicy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of the guardrails for the request."""

    mode: Mode
    text_policy: TextPolicy | None
    attempts: int
    is_strict: bool
    most_repeats: int
    most_rounds: int
    workflow: Workflow | None = None
    streams_calls: bool = True
    most_failures: int = MOST_FAILURES
    explains: bool = False
    close_out: CloseOut = CloseOut.OFF
    close_out_tries: int = 1


class RecordedCall(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A tool call of the client's answer; `arguments` is the JSON text."""

    name: str
    arguments: str


class RecordedAnswer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The answer that was sent to the client."""

    text: str = ""
    calls: tuple[RecordedCall, ...] = ()
    finish_reason: str | None = None


class RecordedOutcome(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The outcome of a call that Temper ran; `text` is the result in the model's prompt."""

    name: str
    arguments: str
    text: str
    status: str
    counted: bool = True


class RecordedRound(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A tool round: the number of its generations, and the outcomes of its calls."""

    generations: int
    outcomes: tuple[RecordedOutcome, ...] = ()


class RecordedRun(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The tool rounds of a request; `owned` are the names of the operator's tools.

    `most_rounds` is the limit of rounds, after which the model has to answer without tools.
    `most_failed_rounds` is the limit of consecutive failed rounds, after which the run ends.
    """

    owned: tuple[str, ...]
    most_rounds: int
    most_failed_rounds: int
    rounds: tuple[RecordedRound, ...]


class RecordedVerdict(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The decision of the guardrails; an attempt is its kind and the defect of its reply."""

    outcome: str | None
    attempts: tuple[tuple[str, str | None], ...]
    repairs: str


class RecordedReading(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the engine read the prompt of the first generation, according to its report.

    `reread` says why the engine read cached tokens again. If Temper shortened the conversation,
    `messages` are the messages that it sent, else None.
    """

    tokens: int
    cached: int | None
    seconds: float | None
    reread: Reread | None = None
    messages: tuple[Mapping[str, object], ...] | None = None


class RecordedExchange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One request from arrival to answer; `request` is converted to the chat dialect.

    Version 1 has no `run`, and older recordings have no `reading`. `failed` maps the index of a
    tool message to whether the tool failed, because the chat dialect has no field for this.
    """

    version: Literal[1, 2] = 2
    id: str
    at: float
    dialect: str = CHAT_DIALECT
    model: RecordedModel
    policy: RecordedPolicy
    request: Mapping[str, object]
    failed: Mapping[int, bool] = msgspec.field(default_factory=dict)
    generations: tuple[tuple[Piece, ...], ...]
    run: RecordedRun | None = None
    reading: RecordedReading | None = None
    answer: RecordedAnswer
    verdict: RecordedVerdict


_MOST_UNWRITTEN = 64 * 1024 * 1024  # bytes that wait for a slow disk
_AT_LIMIT = "the file has reached recording.max_bytes"
# the errors of msgspec for a line whose end is missing, also inside a number such as `1.5`
_TRUNCATED = "Input data was truncated", "JSON is malformed: invalid number (byte {})"


class Recording:
    """Writes exchanges to a file of at most `max_bytes`, to memory (`kept`), or to both.

    Several processes may append to the file. Only the file's owner can read it. The lines in memory
    have the same format. A thread writes the file, because a disk may block for seconds (F108);
    `close` waits for the thread. An exchange that the disk does not accept is lost; later exchanges
    are written as soon as the disk accepts them.
    """

    def __init__(
        self,
        path: Path | None,
        max_bytes: int,
        secrets: tuple[str, ...],
        kept: KeptExchanges | None = None,
    ) -> None:
        self.kept = kept
        self._max_bytes = max_bytes
        self._redaction = Redaction(secrets)
        self._file: int | None = None
        self._submitted = self._written = 0  # bytes; only the thread changes `_written`
        self._skips = False
        self._losses = set[str]()  # the reasons since the last line that was written
        if path is None:
            return
        try:
            self._file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        except OSError as error:
            problem = f"cannot write to {path}: {error.strerror}"
            raise InvalidConfiguration(SETTING, problem) from error
        # `concurrent.futures` imports the module of this class on first access. Without a
        # recording, Temper starts without this import.
        self._thread = futures.ThreadPoolExecutor(1, thread_name_prefix="recording")

    def write(self, exchange: RecordedExchange, *secrets: str, number: int = 0) -> None:
        """Redact and write an exchange; `secrets` are the additional secrets of this request."""
        redaction = self._redaction.with_secrets(*secrets)
        line = json.dump(redaction.redact(json.parse(msgspec.json.encode(exchange)))) + b"\n"
        if self.kept is not None:
            self.kept.keep(number, line)
        if self._file is None:
            return
        if self._submitted - self._written > _MOST_UNWRITTEN:
            if not self._skips:
                logger.warning("recording: skipping exchanges until the disk has caught up")
            self._skips = True
            return
        self._skips = False
        self._submitted += len(line)
        self._thread.submit(self._append, self._file, line)

    def leave_out(self, number: int) -> None:
        if self.kept is not None:
            self.kept.leave_out(number)

    def close(self) -> None:
        """Close the file after all writes."""
        if self._file is not None:
            self._thread.shutdown()
            os.close(self._file)
            self._file = None

    def _append(self, file: int, line: bytes) -> None:
        try:
            # without the line break, the new exchange would continue an incomplete line
            added = b"\n" + line if _has_incomplete_end(file) else line
            if os.fstat(file).st_size + len(added) > self._max_bytes:
                self._lose(_AT_LIMIT)
            # a single write with O_APPEND does not mix with the lines of other workers
            elif os.write(file, added) < len(added):
                # the line is truncated; readers skip it
                self._lose("the disk is full")
            else:
                # at the size limit, a short exchange may still fit, so `_AT_LIMIT` stays
                self._losses &= {_AT_LIMIT}
        except OSError as error:
            self._lose(error.strerror or "the file cannot be written")
        finally:
            self._written += len(line)

    def _lose(self, reason: str) -> None:
        """Log why an exchange was not written, but not again until a later one is written."""
        if reason not in self._losses:
            logger.warning("recording: exchanges are not written (%s)", reason)
        self._losses.add(reason)


def _has_incomplete_end(file: int) -> bool:
    """Return whether a crash or a full disk has truncated the last line."""
    size = os.fstat(file).st_size
    if not size:
        return False
    os.lseek(file, size - 1, os.SEEK_SET)
    return os.read(file, 1) != b"\n"


def read_recording(path: Path) -> Generator[RecordedExchange, None, None]:
    """Yield the exchanges of a file; raises `InvalidConfiguration` with the number of a bad line.

    A line that was truncated because the disk was full is skipped with a warning.
    """
    try:
        with path.open("rb") as lines:
            for number, line in enumerate(
                iter(lambda: lines.readline(bounds.RECORDED_BYTES + 1), b""), 1
            ):
                if len(line) > bounds.RECORDED_BYTES:
                    problem = f"line {number} has more than {bounds.RECORDED_BYTES} bytes"
                    raise InvalidConfiguration(str(path), problem)
                if line.strip() and (exchange := _exchange(path, number, line)) is not None:
                    yield exchange
    except OSError as error:
        raise InvalidConfiguration(str(path), f"cannot be read: {error.strerror}") from error


def _exchange(path: Path, number: int, line: bytes) -> RecordedExchange | None:
    # msgspec must not see the newline: inside a truncated string it is an invalid character, which
    # msgspec would report instead of the truncation
    line = line.rstrip(b"\n")
    try:
        return msgspec.json.decode(line, type=RecordedExchange)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        if str(error) in [text.format(len(line)) for text in _TRUNCATED]:
            logger.warning("%s: line %d is incomplete; skipping it", path, number)
            return None
        detail, _, path_in_line = str(error).partition(" - at `$.")
        field = path_in_line.rstrip("`") or "the line"
        problem = f"line {number} does not belong to a recording: {field}: {detail}"
        raise InvalidConfiguration(str(path), problem) from error
