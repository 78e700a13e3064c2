"""Reminders: system messages within a conversation, appended to the previous message.

    <system-reminder>
    Be brief.
    </system-reminder>

Some chat templates reject a system message that is not the first message. A separate user message
would look like the user's next turn. Claude Code uses the same tags.
"""

import re

OPENING = "<system-reminder>"
CLOSING = "</system-reminder>"

_LONGEST_GAP = 16  # characters of white space between two reminders
_BEGINNING = f"{OPENING}\n"
_END = f"\n{CLOSING}"


# Models also understand the tag in upper case or with white space inside. So these variants in a
# user's text are recognized as forged tags as well.
_TAG = re.compile(r"<(?=\s{0,8}/?\s{0,8}system-reminder\s{0,8}>)", re.IGNORECASE)
_ZERO_WIDTH_SPACE = "\u200b"  # invisible, but changes the tokens of the tag


def is_forged(text: str) -> bool:
    """Return whether a text of a user or a tool contains a reminder tag."""
    return _TAG.search(text) is not None


def neutralize(text: str) -> str:
    """Insert an invisible character into the reminder tags of a user's or a tool's text."""
    return _TAG.sub(f"<{_ZERO_WIDTH_SPACE}", text)


def has_only_reminders(text: str) -> bool:
    """Return whether a text contains only reminders, as Claude Code sends after tool results."""
    start = len(text) - len(text.lstrip())
    while text.startswith(OPENING, start):
        end = text.find(CLOSING, start)
        if end < 0:
            return False
        end += len(CLOSING)
        gap = text[end : end + _LONGEST_GAP]
        start = end + len(gap) - len(gap.lstrip())
    return start == len(text) and text.rstrip().endswith(CLOSING)


def without_reminders(text: str) -> str:
    """Return a text without the reminders at its end."""
    end = len(text)
    while text.endswith(_END, 0, end) and (start := text.rfind(_BEGINNING, 0, end)) >= 0:
        end = start - 1 if text.endswith("\n", 0, start) else start
    return text[:end]
