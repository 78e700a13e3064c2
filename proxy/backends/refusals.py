"""What a backend's own error means, as an HTTP status or in the middle of a stream.

Statuses, types and codes decide. Wordings count only if engines have no code for the error.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from proxy.conversation import json
from proxy.conversation.json import JsonObject
from proxy.dialects.lenient_json import as_text, as_whole
from proxy.errors import BackendFailed, BackendRefused, BackendUnavailable, ContextOverflow

REDACTED = b"[redacted]"

_SHORTEST = 8  # a shorter value of a header is a word, and found everywhere


class Confidential:
    """Some values, each as it is and as JSON writes it."""

    def __init__(self, values: Iterable[str]) -> None:
        known = [one for one in values if len(one) >= _SHORTEST]
        forms = {form for one in known for form in (one.encode(), json.dump(one)[1:-1])}
        self._forms = sorted(forms, key=len, reverse=True)

    def out_of(self, said: bytes) -> bytes:
        """Take the values out of what was said; not for replies, where a word may be one too."""
        for form in self._forms:
            said = said.replace(form, REDACTED)
        return said

    def out_of_error(self, error: JsonObject) -> JsonObject:
        return {
            name: self.out_of(told.encode()).decode() if isinstance(told, str) else told
            for name, told in error.items()
        }


# an explanation is short; what is longer holds somebody's prompt
MOST_CHARACTERS = 2000

_WINDOW = r"(?P<window>[\d,]+)"
_PROMPT = r"(?P<prompt>[\d,]+)"


def _compile(*wordings: str) -> tuple[re.Pattern[str], ...]:
    return tuple(re.compile(wording, re.IGNORECASE) for wording in wordings)


_OVERFLOWS = _compile(
    # OpenAI, DeepSeek, OpenRouter ("This endpoint's"), vLLM of every age (vllm#20409, #42474)
    rf"maximum context length is {_WINDOW} tokens",
    # vLLM 0.16 (harbor#996)
    rf"context length is only {_WINDOW} tokens",
    # vLLM V1: "The decoder prompt (length 9) is longer than the maximum model length of 8"
    rf"prompt \(length {_PROMPT}\) is longer than the maximum model length of {_WINDOW}",
    # SGLang, without and with max_tokens (Qwen3#1321; opencode's list of wordings)
    rf"input \({_PROMPT} tokens\) is longer than the model's context length \({_WINDOW}",
    rf"exceeds the model's maximum context length of {_WINDOW}",
    rf"length \({_PROMPT}\) exceeds model's maximum context length \({_WINDOW}\)",
    # LM Studio: first to 0.3, then 0.4 (lmstudio-bug-tracker#237, #2256, opencode#11141)
    rf"keep the first {_PROMPT} tokens when.{{0,120}}context length of only {_WINDOW} tokens",
    rf"n_keep:? \(?{_PROMPT}\)? ?>= n_ctx:? \(?{_WINDOW}",
    r"greater than the context length",
    # llamafile and llama-server before they had a type for it
    rf"exceeds the available context size(?: \({_WINDOW} tokens\))?",
    # Ollama 0.33, where it renders the prompt itself (llm/llama_server.go), and before
    r"longer than the context length currently available",
    r"exceeds the context length",
    # llama-cpp-python
    rf"requested tokens \({_PROMPT}\) exceed context window of {_WINDOW}",
    # docs: Mistral's API
    rf"contains {_PROMPT} tokens.{{0,60}}too large for model with {_WINDOW} maximum",
    # docs: Groq and Cerebras, which have a code as well
    rf"length of the messages or completion(?:.{{0,60}}limit is {_WINDOW})?",
    # docs: Anthropic, Gemini and xAI behind gateways
    rf"prompt is too long: {_PROMPT} tokens > {_WINDOW} maximum",
    rf"input length and `max_tokens` exceed context limit: {_PROMPT} \+ \d+ > {_WINDOW}",
    rf"token count \({_PROMPT}\) exceeds the maximum.{{0,40}}\({_WINDOW}\)",
    rf"maximum prompt length is {_WINDOW}",
    # docs: Text Generation Inference, Together
    rf"must be <= {_WINDOW}\. Given: {_PROMPT} `inputs` tokens",
)

# How the same sentences name the prompt's length; "requested" is with the answer, so it comes last.
_PROMPTS = _compile(
    rf"{_PROMPT} (?:input tokens|tokens from the input|in the messages|in your prompt)",
    rf"resulted in {_PROMPT} tokens",
    rf"request contains {_PROMPT} tokens",
    rf"current length is {_PROMPT}",
    rf"request \({_PROMPT} tokens\)",
    rf"requested (?:about |a total of )?{_PROMPT} tokens",
)


@dataclass(frozen=True, slots=True)
class Lengths:
    """What an engine said of a prompt that is too long, in tokens; None where it kept silent."""

    prompt: int | None = None
    window: int | None = None


def overflow_in(message: str) -> Lengths | None:
    """Read an explanation; None if it is about something else."""
    text = message[:MOST_CHARACTERS]
    for wording in _OVERFLOWS:
        if found := wording.search(text):
            numbers = found.groupdict()
            said = (one["prompt"] for wording in _PROMPTS if (one := wording.search(text)))
            prompt = numbers.get("prompt") or next(said, None)
            return Lengths(_number(prompt), _number(numbers.get("window")))
    return None


def _number(digits: str | None) -> int | None:
    plain = (digits or "").replace(",", "")
    return int(plain) if plain else None


_EXCEPTION = re.compile(r"\[json\.exception\.\w+\.\d+\] ?")
_MISSING = re.compile(r"key '([^']*)' not found")

OVERFLOW_MARKS = frozenset({"exceed_context_size_error", "context_length_exceeded"})


@dataclass(frozen=True, slots=True)
class Refusal:
    """An error as a backend gave it; `error` is the object with `message`, `type` and `code`."""

    status: int
    error: JsonObject
    retry_after: str = ""


def read_streamed_refusal(error: JsonObject) -> Refusal:
    """Make a refusal of an error that came after the status: its code stands in for it."""
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
    return BackendRefused(
        backend,
        refusal.status,
        message,
        kind=kind,
        param=as_text(error.get("param")),
        retry_after=refusal.retry_after,
    )


def _overflow(refusal: Refusal, message: str) -> Lengths | None:
    """Tell by how much a prompt was too long, if that is what the refusal is about."""
    error = refusal.error
    said = overflow_in(message)
    if OVERFLOW_MARKS.isdisjoint({as_text(error.get("type")), as_text(error.get("code"))}):
        # "tokens" in a 429 are those of a minute
        return None if refusal.status == 429 else said
    told = said or Lengths()
    prompt, window = as_whole(error.get("n_prompt_tokens")), as_whole(error.get("n_ctx"))
    return Lengths(prompt or told.prompt, window or told.window)


def _readable(message: str) -> str:
    """Take out what only the programmers of a JSON library understand: llama.cpp passes it on."""
    plain = _EXCEPTION.sub("", message)
    return _MISSING.sub(r"the field '\1' is missing", plain) if plain != message else message
