"""What an answer has cost, in the words of the Messages language: numbers only, never null."""

from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.replies import PromptProgress, UsageReported

_AT_START_ONLY = ("cache_creation", "service_tier")


def usage_at_start(progress: PromptProgress | None) -> JsonObject:
    """Write what is known before the answer begins; the totals at the end take its place."""
    if progress is None:
        return _usage(0, 0, 0)
    return _usage(progress.total, progress.cached, 0)


def usage_at_end(reported: UsageReported | None) -> JsonObject:
    """Write the totals of the whole answer."""
    usage = {} if reported is None else reported.usage
    cached = _count(_details(usage, "prompt_tokens_details").get("cached_tokens"))
    counts = _usage(
        _count(usage.get("prompt_tokens")), cached, _count(usage.get("completion_tokens"))
    )
    thoughts = _details(usage, "completion_tokens_details").get("reasoning_tokens")
    if _count(thoughts):
        counts["output_tokens_details"] = {"thinking_tokens": _count(thoughts)}
    return counts


def usage_of_delta(usage: JsonObject) -> JsonObject:
    """Leave out of the totals what never stands behind a stream."""
    return {name: value for name, value in usage.items() if name not in _AT_START_ONLY}


def _usage(prompt: int, cached: int, output: int) -> JsonObject:
    return {
        "input_tokens": max(0, prompt - cached),
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cached,
        "cache_creation": {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 0},
        "output_tokens": output,
        "service_tier": "standard",
    }


def _details(usage: JsonObject, name: str) -> JsonObject:
    details = usage.get(name)
    return details if isinstance(details, dict) else {}


def _count(value: JsonValue) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
