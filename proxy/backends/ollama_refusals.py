"""What an error of Ollama means. It has no codes, so wordings count where the status is not enough.

Read from Ollama's source, v0.30 to v0.34; what its runner, a llama-server, answered stands inside.
"""

from proxy.errors import BackendRefused

_UNREADABLE = (
    "does not match the expected",  # llama-server's parser
    "Failed to parse input",
    "invalid tool call arguments",  # Ollama's reading of what that parser found
    "error parsing tool call",  # Ollama's own parsers
)


def lacks_tools(refusal: BackendRefused) -> bool:
    """Return whether the template of the model cannot describe tools."""
    return refusal.status == 400 and "does not support tools" in refusal.message


def lacks_thinking(refusal: BackendRefused) -> bool:
    """Return whether the model cannot think, or not as much as was asked for."""
    wordings = ("does not support thinking", "think value")
    return refusal.status == 400 and any(one in refusal.message for one in wordings)


def is_unreadable(refusal: BackendRefused) -> bool:
    """Return whether a parser could not read what the model wrote, so that it is lost."""
    return refusal.status == 500 and any(one in refusal.message for one in _UNREADABLE)
