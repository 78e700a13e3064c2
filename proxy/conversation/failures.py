"""Recognizes tool results that report a failure.

Chat completions have no field for a failed tool, so agents write the failure into the result:

    Error: no such file
    {"error": "no such file"}
    {"isError": true, "content": [...]}          MCP
"""

import re

from proxy.conversation import json
from proxy.conversation.messages import Message
from proxy.conversation.reminders import without_reminders

# does not match "Errors fixed: 3", which reports a success
_FAILURE = re.compile(r"(?:[\[<]?error|exception|traceback|failed)(?![a-z])", re.IGNORECASE)


def reports_failure(result: Message) -> bool:
    """Return whether a tool failed: by the attribute `failed` if it is set, or else by the text."""
    return has_failed(result.text) if result.failed is None else result.failed


def has_failed(result: str) -> bool:
    """Return whether a text reports a failure: an error prefix, or an error object."""
    text = result.lstrip()
    if not text.startswith("{"):
        return _FAILURE.match(text) is not None
    try:
        report = json.parse(without_reminders(text))
    except ValueError:
        return False
    return isinstance(report, dict) and (
        any(report.get(key) is True for key in ("isError", "is_error"))
        or bool(report.get("error"))
        or report.get("status") == "error"
    )
