"""How the result of a tool reports that the tool has failed."""

from proxy.conversation import json
from proxy.conversation.json import JsonObject
from proxy.conversation.reminders import without_reminders

_WORDS = ("error", "[error", "<error", "exception", "traceback", "failed")
_LONGEST_WORD = max(map(len, _WORDS))
_KEYS = ("isError", "is_error")


def has_failed(result: str) -> bool:
    """Return whether a result reports a failure, in the ways in which tools commonly do."""
    text = result.lstrip()
    if not text.startswith("{"):
        return text[:_LONGEST_WORD].casefold().startswith(_WORDS)
    report = _object_in(without_reminders(text))
    if any(report.get(key) is True for key in _KEYS):
        return True
    return bool(report.get("error")) or report.get("status") == "error"


def _object_in(text: str) -> JsonObject:
    try:
        value = json.parse(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
