"""System messages within a conversation, as reminders in the message before them.

    <system-reminder>
    Be brief.
    </system-reminder>

As a separate message of the user, the text would look like the user's next turn. Claude Code uses
the same tags for its notes.
"""

import re

OPENING = "<system-reminder>"
CLOSING = "</system-reminder>"

_LONGEST_GAP = 16  # characters of white space between two reminders
_BEGINNING = f"{OPENING}\n"
_END = f"\n{CLOSING}"


# Models accept the tag in any case and with white space inside, so a forgery may have both.
_TAG = re.compile(r"<(?=\s{0,8}/?\s{0,8}system-reminder\s{0,8}>)", re.IGNORECASE)
_WEDGE = "\u200b"  # zero width space: looks the same, and is another token


def is_forged(text: str) -> bool:
    """Return whether a foreign text contains a tag of reminders."""
    return _TAG.search(text) is not None


def neutralize(text: str) -> str:
    """Break the tags of reminders in a foreign text."""
    return _TAG.sub(f"<{_WEDGE}", text)


def has_only_reminders(text: str) -> bool:
    """Return whether a text is nothing but reminders, as Claude Code sends after tool results."""
    start = len(text) - len(text.lstrip())
    while text.startswith(OPENING, start):
        end = text.find(CLOSING, start)
        if end < 0:
            return False
        end += len(CLOSING)
        rest = text[end : end + _LONGEST_GAP]
        start = end + len(rest) - len(rest.lstrip())
    return start == len(text) and text.rstrip().endswith(CLOSING)


def without_reminders(text: str) -> str:
    """Return a text without the reminders at its end."""
    end = len(text)
    while text.endswith(_END, 0, end) and (start := text.rfind(_BEGINNING, 0, end)) >= 0:
        end = start - 1 if text.endswith("\n", 0, start) else start
    return text[:end]
