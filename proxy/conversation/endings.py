"""The table of finish reasons: the words of engines, and the corresponding words of each dialect.

    "eos" (engine)  ->  "stop" (chat)  ->  "end_turn" (messages)
    "abort"         ->  "length"       ->  "max_tokens"

Decoders convert an engine's reason when they read it, so other modules see only the reasons of
`ENDINGS`. Engines add new reasons without notice (`abort`, `timeout`, `repetition`). An unknown
reason is treated as `LENGTH`, because the reply may be incomplete.
"""

from collections.abc import Collection
from dataclasses import dataclass

STOP = "stop"
CALLS = "tool_calls"
LENGTH = "length"
FILTERED = "content_filter"


@dataclass(frozen=True, slots=True)
class Ending:
    """A finish reason of chat completions, and other `words` with which engines express it.

    `messages`, `responses` and `ollama` are the words of the other dialects. `responses` is None
    for a complete answer, because the Responses API has no word for it. With `is_natural`, the
    model chose the end of the reply.
    """

    reason: str
    words: Collection[str]
    messages: str
    responses: str | None = None
    ollama: str = STOP
    is_natural: bool = True


ENDINGS = (
    Ending(
        STOP,
        (
            "eos",
            "eos_token",
            "stop_token",
            "end_turn",
            "stop_sequence",
            "pause_turn",
            "complete",
            "completed",
            "done",
            "load",
            "unload",
        ),
        "end_turn",
    ),
    Ending(CALLS, ("tool_call", "tool_use", "function_call", "function_calls"), "tool_use"),
    Ending(
        LENGTH,
        (
            "max_tokens",
            "max_output_tokens",
            "max_length",
            "model_length",
            "cut_off",
            "model_context_window_exceeded",
            "context_length_exceeded",
            # the engine failed in the middle of a reply; no API has a finish reason for this
            "abort",
            "aborted",
            "error",
            "failed",
            "canceled",
            "cancelled",
            "timeout",
        ),
        "max_tokens",
        "max_output_tokens",
        LENGTH,
        is_natural=False,
    ),
    Ending(
        FILTERED,
        (
            "refusal",
            "safety",
            "recitation",
            "blocklist",
            "prohibited_content",
            "spii",
            "error_toxic",
            "content_filtered",
            "guardrail_intervened",
        ),
        "refusal",
        "content_filter",
        LENGTH,  # Ollama has no word for a filtered answer; LENGTH at least marks it as incomplete
        is_natural=False,
    ),
)
_BY_REASON = {ending.reason: ending for ending in ENDINGS}
_NATURAL = frozenset(ending.reason for ending in ENDINGS if ending.is_natural)
_BY_WORD = _BY_REASON | {word: ending for ending in ENDINGS for word in ending.words}


def ending_of(reason: str) -> Ending:
    """Return the ending of an engine's reason, `LENGTH` for a failure or an unknown reason."""
    if (ending := _BY_REASON.get(reason)) is not None:  # the most common case
        return ending
    word = reason.strip().casefold().replace("-", "_")
    return _BY_WORD.get(word, _BY_REASON[LENGTH])


def is_cut(reason: str) -> bool:
    """Return whether the model did not choose the end of the reply; its last call may be cut."""
    return reason not in _NATURAL and not ending_of(reason).is_natural
