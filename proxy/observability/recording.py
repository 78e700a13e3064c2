"""Recordings: requests, what the model wrote and what was made of it, one JSON object a line.

The format is our own and has a version. It holds all that is needed to judge again offline: the
request, what was known of the model, what the operator had decided, each raw generation, and the
results of calls that Temper ran in between. Secrets are removed before anything is written; names
and schemas stay, because judging needs them.
"""

import logging
import os
import re
from collections import OrderedDict, deque
from collections.abc import Generator, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import msgspec

from proxy import bounds
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

_SHORTEST = 4  # a shorter one would be found everywhere
_NAME = r"(?:proxy-)?authorization|cookie|(?:\w+[-_])?(?:api[-_]?key|password|passwd|secret|token)"
_NAMES = re.compile(_NAME, re.IGNORECASE)
_ASSIGNED = re.compile(
    rf"""((?<![\w-])\\*["']?(?:{_NAME})\\*["']?\s*[:=]\s*\\*["'])[^"'\\]+""", re.IGNORECASE
)
_BEARER = re.compile(r"\b(bearer|basic)\s+[\w.~+/=-]{8,}", re.IGNORECASE)
_TOKEN = re.compile(
    r"\b(?:sk|pk|rk)-[\w-]{16,}|\bgh[pousr]_\w{20,}|\bxox[abprs]-[\w-]{10,}|\bAKIA[0-9A-Z]{16}\b"
    r"|\bhf_\w{20,}|\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*"
)


class Redaction:
    """Redacts values and texts; `secrets` are known ones of any form."""

    def __init__(self, secrets: Iterable[str]) -> None:
        self._secrets = sorted({one for one in secrets if len(one) >= _SHORTEST}, key=len)[::-1]

    def with_secrets(self, *secrets: str) -> "Redaction":
        """Return a redaction that knows these as well."""
        return Redaction((*self._secrets, *secrets))

    def redact(self, value: JsonValue) -> JsonValue:
        """Redact all texts of a JSON value; one whose name suggests a secret is redacted whole."""
        match value:
            case str():
                return self.redact_text(value)
            case list():
                return [self.redact(one) for one in value]
            case dict():
                return {
                    name: REDACTED
                    if isinstance(one, str) and one and _NAMES.fullmatch(name)
                    else self.redact(one)
                    for name, one in value.items()
                }
            case _:
                return value

    def redact_text(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, REDACTED)
        text = _ASSIGNED.sub(rf"\1{REDACTED}", text)
        text = _BEARER.sub(rf"\1 {REDACTED}", text)
        return _TOKEN.sub(REDACTED, text)


_MOST_REMEMBERED = 2000  # numbers of exchanges that were not kept or are gone


class KeptExchanges:
    """Lines of a recording by request number, at most `most_bytes` in total."""

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
            oldest, gone = self._lines.popitem(last=False)
            self._bytes -= len(gone)
            self._dropped.append(oldest)

    def leave_out(self, number: int) -> None:
        self._too_large.append(number)

    def has(self, number: int) -> bool:
        return number in self._lines

    def line(self, number: int) -> bytes | None:
        return self._lines.get(number)

    def reason(self, number: int) -> str:
        """Return the code of why the exchange of a finished request is missing."""
        if number in self._too_large:
            return "too_large"
        return "dropped" if number in self._dropped else "not_understood"


logger = logging.getLogger(__name__)

SETTING = "recording.path"

# a piece of a generation, e.g. ["text", "Hello"]; `exchange_recorder` has the kinds
Piece: TypeAlias = Annotated[list[str | int | None], msgspec.Meta(min_length=1)]


class RecordedModel(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What was known of the model, and what the operator had decided about it."""

    names: tuple[str, ...]
    architecture: str
    template: str
    takes_tools: bool | None = None
    profile: str | None = None
    convention: str | None = None
    replay: Replay | None = None
    opens_thoughts: bool = False


class RecordedPolicy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the request was to be judged."""

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
    """A call that the client got."""

    name: str
    arguments: str


class RecordedAnswer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the client got."""

    text: str = ""
    calls: tuple[RecordedCall, ...] = ()
    finish_reason: str | None = None


class RecordedOutcome(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The outcome of a call that Temper ran, in the words that the model read."""

    name: str
    arguments: str
    text: str
    status: str
    counted: bool = True


class RecordedRound(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """So many of the `generations`, and the outcomes of the calls of the last one."""

    generations: int
    outcomes: tuple[RecordedOutcome, ...] = ()


class RecordedRun(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The rounds of a request with tools of the operator, which are `owned`.

    After `most_rounds` rounds of tools an answer was asked for; `most_failed_rounds` failed rounds
    in a row were the end.
    """

    owned: tuple[str, ...]
    most_rounds: int
    most_failed_rounds: int
    rounds: tuple[RecordedRound, ...]


class RecordedVerdict(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the guardrails decided; each attempt has the defect of its reply."""

    outcome: str | None
    attempts: tuple[tuple[str, str | None], ...]
    repairs: str


class RecordedExchange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One request from arrival to answer; `request` is in the chat dialect whatever its own was.

    Version 1 has no `run`. `failed` says of results that are marked whether their tool failed, by
    their index in the messages.
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
    answer: RecordedAnswer
    verdict: RecordedVerdict


_TRUNCATED = "Input data was truncated"  # as msgspec words it


class Recording:
    """A file that exchanges are written to until it holds `max_bytes`; or memory; or both.

    Several processes may append to the file. Only its owner can read it. The latest exchanges are
    `kept` in memory, as they would be written to the file.
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
        self.is_over = path is None  # nothing more is written to the file
        self._file: int | None = None
        if path is None:
            return
        try:
            self._file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
            _end_last_line(self._file)
        except OSError as error:
            problem = f"cannot write to {path}: {error.strerror}"
            raise InvalidConfiguration(SETTING, problem) from error

    def write(self, exchange: RecordedExchange, *secrets: str, number: int = 0) -> None:
        """Write an exchange without the secrets in it; `secrets` are those of this one."""
        redaction = self._redaction.with_secrets(*secrets)
        line = json.dump(redaction.redact(json.parse(msgspec.json.encode(exchange)))) + b"\n"
        if self.kept is not None:
            self.kept.keep(number, line)
        if self._file is not None:
            self._append(self._file, line)

    def leave_out(self, number: int) -> None:
        if self.kept is not None:
            self.kept.leave_out(number)

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)

    def _append(self, file: int, line: bytes) -> None:
        try:
            if os.fstat(file).st_size + len(line) > self._max_bytes:
                self._end("it holds recording.max_bytes")
            else:
                # in one piece, otherwise other workers would write in between
                if os.write(file, line) < len(line):
                    self._end("the disk is full")
        except OSError as error:
            self._end(error.strerror or "it cannot be written")

    def _end(self, reason: str) -> None:
        if not self.is_over:
            logger.warning("the recording ends here: %s", reason)
        self.is_over = True


def _end_last_line(file: int) -> None:
    """End a line that a full disk has torn, or the first exchange would become part of it."""
    size = os.fstat(file).st_size
    if size:
        os.lseek(file, size - 1, os.SEEK_SET)
        if os.read(file, 1) != b"\n":
            os.write(file, b"\n")


def read_recording(path: Path) -> Generator[RecordedExchange, None, None]:
    """Read a recording line by line; raises `InvalidConfiguration` that names an invalid line.

    A line that a full disk has torn is skipped with a warning.
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
    try:
        # without its end, which is an invalid character where a string is torn
        return msgspec.json.decode(line.rstrip(b"\n"), type=RecordedExchange)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        if str(error) == _TRUNCATED:
            logger.warning("%s: line %d is incomplete; skipping it", path, number)
            return None
        found, _, where = str(error).partition(" - at `$.")
        place = where.rstrip("`") or "the line"
        problem = f"line {number} does not belong to a recording: {place}: {found}"
        raise InvalidConfiguration(str(path), problem) from error
