"""Whether an engine's refusal means that the prompt is too long, and the numbers in its words.

For engines that have no type or code for it. Each wording stands with where it was seen; those
marked "docs" come from issues and documents alone and were never met here.
"""

import re
from dataclasses import dataclass

# an explanation is short; what is longer holds somebody's prompt
_MOST_CHARACTERS = 2000

_WINDOW = r"(?P<window>[\d,]+)"
_PROMPT = r"(?P<prompt>[\d,]+)"

_OVERFLOWS = tuple(
    re.compile(wording, re.IGNORECASE)
    for wording in (
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
)

# How the same sentences name the prompt's length; "requested" is with the answer, so it comes last.
_PROMPTS = tuple(
    re.compile(wording, re.IGNORECASE)
    for wording in (
        rf"{_PROMPT} (?:input tokens|tokens from the input|in the messages|in your prompt)",
        rf"resulted in {_PROMPT} tokens",
        rf"request contains {_PROMPT} tokens",
        rf"current length is {_PROMPT}",
        rf"request \({_PROMPT} tokens\)",
        rf"requested (?:about |a total of )?{_PROMPT} tokens",
    )
)


@dataclass(frozen=True, slots=True)
class Lengths:
    """What an engine said of a prompt that is too long, in tokens; None where it kept silent."""

    prompt: int | None = None
    window: int | None = None


def overflow_in(message: str) -> Lengths | None:
    """Read an explanation; None if it is about something else."""
    text = message[:_MOST_CHARACTERS]
    for wording in _OVERFLOWS:
        if found := wording.search(text):
            numbers = found.groupdict()
            prompt = _number(numbers.get("prompt")) or _prompt_in(text)
            return Lengths(prompt, _number(numbers.get("window")))
    return None


def _prompt_in(text: str) -> int | None:
    for wording in _PROMPTS:
        if found := wording.search(text):
            return _number(found["prompt"])
    return None


def _number(digits: str | None) -> int | None:
    plain = (digits or "").replace(",", "")
    return int(plain) if plain else None
