"""What a system message says amid a conversation, as part of the message before it.

Clients that put system messages between the others mean "the system says", not "the user says":
as a message of its own it would look like the user's next turn. The tags are those that agents
themselves use for such remarks.
"""

import re

OPENING = "<system-reminder>"
CLOSING = "</system-reminder>"

_BEGINNING = f"{OPENING}\n"
_END = f"\n{CLOSING}"


# As loose as a model reads them.
_TAG = re.compile(r"<(?=\s{0,8}/?\s{0,8}system-reminder\s{0,8}>)", re.IGNORECASE)
_WEDGE = "\u200b"  # zero width space: looks the same, and is another token


def is_forged(text: str) -> bool:
    """Return whether a foreign text contains a tag of reminders."""
    return _TAG.search(text) is not None


def neutralise(text: str) -> str:
    """Break the tags of reminders in a foreign text."""
    return _TAG.sub(f"<{_WEDGE}", text)


def without_reminders(text: str) -> str:
    """Return a text without the reminders at its end: what the user or the tool itself has said."""
    end = len(text)
    while text.endswith(_END, 0, end) and (start := text.rfind(_BEGINNING, 0, end)) >= 0:
        end = start - 1 if text.endswith("\n", 0, start) else start
    return text[:end]
