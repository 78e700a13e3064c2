"""Interprets the errors that a backend sends, as an HTTP response or as an event of a stream.

    400 {"error": {"code": 400, "message": "the request exceeds the available context size",
                   "type": "exceed_context_size_error", "n_prompt_tokens": 9012, "n_ctx": 8192}}
    -> ContextOverflow(prompt_tokens=9012, window=8192)

The status, type and code of an error decide. The wording of its message decides only for errors
that engines send without a code.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import msgspec

from proxy.conversation import json
from proxy.conversation.json import JsonObject
from proxy.dialects.lenient_json import as_integer, as_text
from proxy.errors import BackendFailed, BackendRefused, BackendUnavailable, ContextOverflow

REDACTED = b"[redacted]"

_SHORTEST = 8  # characters; a shorter header value may be a common word, so it is not redacted


class Confidential:
    """Secret values to redact, both as plain text and as JSON writes them in a string."""

    def __init__(self, values: Iterable[str]) -> None:
        known = [value for value in values if len(value) >= _SHORTEST]
        encoded = {text for value in known for text in (value.encode(), json.dump(value)[1:-1])}
        # the longest first, because a secret may contain a shorter secret
        self._encoded = sorted(encoded, key=len, reverse=True)

    def redact(self, message: bytes) -> bytes:
        """Redact the values in an error. A reply is not redacted: it may use the same words."""
        for secret in self._encoded:
            message = message.replace(secret, REDACTED)
        return message

    def redact_error(self, error: JsonObject) -> JsonObject:
        return {
            name: self.redact(value.encode()).decode() if isinstance(value, str) else value
            for name, value in error.items()
        }


# The part of an error message that is searched. Explanations are short; a longer message quotes the
# prompt, which may contain any wording.
MOST_CHARACTERS = 2000

# placeholders in `wordings.toml`, e.g. "maximum context length is {window} tokens"
_NUMBER = re.compile(r"\{(window|prompt|total|answer|limit)\}")


class BlamingWordings(msgspec.Struct, frozen=True):
    """Wordings of refusals, and the names of the capabilities that cause these refusals."""

    wordings: tuple[str, ...]
    blamed: tuple[str, ...]


class Wordings(msgspec.Struct, frozen=True):
    """The content of `wordings.toml`."""

    overflows: tuple[str, ...]
    prompts: tuple[str, ...]
    totals: tuple[str, ...]
    answers: tuple[str, ...]
    limits: tuple[str, ...]
    unreadable: tuple[str, ...]
    blind: tuple[str, ...]
    refusals: tuple[BlamingWordings, ...]


@cache
def wordings() -> Wordings:
    """Read the wordings of engines; called at the first refusal."""
    file = files("proxy.backends") / "wordings.toml"
    return msgspec.toml.decode(file.read_bytes(), type=Wordings)


def contains_any(known: Iterable[str], message: str) -> bool:
    """Return whether a message contains one of the wordings; line breaks count as spaces."""
    text = " ".join(message[:MOST_CHARACTERS].split())
    return re.search("|".join(known), text, re.IGNORECASE) is not None


def _search(known: Iterable[str], text: str) -> Iterator[dict[str, str | None]]:
    """Yield, for each wording that a text contains, the numbers at its placeholders."""
    for wording in known:
        pattern = _NUMBER.sub(r"(?P<\1>[\\d,]+)", wording)
        if match := re.search(pattern, text, re.IGNORECASE):
            yield match.groupdict()


@dataclass(frozen=True, slots=True)
class Lengths:
    """The reported lengths of a prompt that is too long, in tokens; None if not reported."""

    prompt: int | None = None
    window: int | None = None


def overflow_in(message: str) -> Lengths | None:
    """Read the lengths in an error message; None if it is not about a prompt that is too long."""
    known, text = wordings(), message[:MOST_CHARACTERS]
    for numbers in _search(known.overflows, text):
        prompt = numbers.get("prompt") or next(_search(known.prompts, text), numbers).get("prompt")
        tokens = _number(prompt) or _without_answer(text)
        return Lengths(tokens, _number(numbers.get("window")))
    return None


def answer_limit_in(message: str) -> int | None:
    """Return the model's limit for an answer in tokens; None if a refusal does not report it."""
    numbers = next(_search(wordings().limits, message[:MOST_CHARACTERS]), {})
    return _number(numbers.get("limit"))


def _without_answer(text: str) -> int | None:
    """Return the length of a prompt if only the sum of prompt and answer is reported."""
    known = wordings()
    total = next((_number(match.get("total")) for match in _search(known.totals, text)), None)
    answer = next((_number(match.get("answer")) for match in _search(known.answers, text)), None)
    return total if total is None or answer is None else max(0, total - answer) or None


def _number(digits: str | None) -> int | None:
    plain = (digits or "").replace(",", "")
    return int(plain) if plain else None


# LiteLLM quotes Groq's error in its message: {"error": {..., "failed_generation": "<tool_call>"}}
_FAILED = re.compile(r'"failed_generation"\s*:\s*("(?:[^"\\\x00-\x1f]|\\[^u]|\\u[0-9a-f]{4})*")')
_EXCEPTION = re.compile(r"\[json\.exception\.\w+\.\d+\] ?")  # of llama-server
_MISSING = re.compile(r"key '([^']*)' not found")

OVERFLOW_MARKS = frozenset({"exceed_context_size_error", "context_length_exceeded"})


@dataclass(frozen=True, slots=True)
class Refusal:
    """A backend's error; `error` is the object with `message`, `type` and `code`."""

    status: int
    error: JsonObject
    retry_after: str = ""


def read_streamed_refusal(error: JsonObject) -> Refusal:
    """Convert an error within a stream to a refusal; its code replaces the HTTP status."""
    code = error.get("code")
    is_status = isinstance(code, int) and 400 <= code <= 599
    return Refusal(code if isinstance(code, int) and is_status else 500, error)


def as_error(backend: str, refusal: Refusal) -> BackendFailed | ContextOverflow:
    error = refusal.error
    message = _readable(as_text(error.get("message"))) or "no explanation"
    kind = as_text(error.get("type"))
    lengths = _overflow(refusal, message)
    if lengths is not None:
        return ContextOverflow(message, lengths.prompt, lengths.window)
    if refusal.status == 503 and kind == "unavailable_error":
        return BackendUnavailable(backend, "is still loading its model", loading=True)
    refused = BackendRefused(
        backend,
        refusal.status,
        message,
        kind=kind,
        param=as_text(error.get("param")),
        retry_after=refusal.retry_after,
    )
    refused.failed_text = _failed_text(error)
    return refused


def _failed_text(error: JsonObject) -> str | None:
    """Return the model's text if the engine could not parse it, and quotes it in the error.

    Groq: {"code": "tool_use_failed", "failed_generation": "..."}; LiteLLM quotes that object in
    its message.
    """
    if isinstance(text := error.get("failed_generation"), str):
        return text
    quoted = _FAILED.search(as_text(error.get("message")))
    text = json.parse(quoted[1]) if quoted is not None else None
    return text if isinstance(text, str) else None


def _overflow(refusal: Refusal, message: str) -> Lengths | None:
    """Return the lengths of a prompt that is too long, None if the refusal has another reason."""
    error = refusal.error
    lengths = overflow_in(message)
    # only llama-server and OpenAI send a code for a prompt that is too long
    if OVERFLOW_MARKS.isdisjoint({as_text(error.get("type")), as_text(error.get("code"))}):
        # with status 429, a limit of tokens is a limit per minute
        return None if refusal.status == 429 else lengths
    lengths = lengths or Lengths()
    prompt, window = as_integer(error.get("n_prompt_tokens")), as_integer(error.get("n_ctx"))
    return Lengths(prompt or lengths.prompt, window or lengths.window)


def _readable(message: str) -> str:
    """Remove the prefix of nlohmann/json, which llama.cpp includes in its messages.

    Example: "[json.exception.out_of_range.403] key 'a' not found" -> "the field 'a' is missing"
    """
    plain = _EXCEPTION.sub("", message)
    return _MISSING.sub(r"the field '\1' is missing", plain) if plain != message else message
