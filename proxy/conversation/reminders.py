"""What a system message says amid a conversation, as part of the message before it.

Clients that put system messages between the others mean "the system says", not "the user says":
as a message of its own it would look like the user's next turn. The tags are those that agents
themselves use for such remarks.
"""

OPENING = "<system-reminder>"
CLOSING = "</system-reminder>"

_BEGINNING = f"{OPENING}\n"
_END = f"\n{CLOSING}"


def without_reminders(text: str) -> str:
    """Return a text without the reminders at its end: what the user or the tool itself has said."""
    end = len(text)
    while text.endswith(_END, 0, end) and (start := text.rfind(_BEGINNING, 0, end)) >= 0:
        end = start - 1 if text.endswith("\n", 0, start) else start
    return text[:end]
