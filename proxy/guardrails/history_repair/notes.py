"""What healing writes into a history: short, factual, and the same every time."""

# It begins like a failure, so that nobody takes the call for a step that was done.
UNANSWERED = "Error: no result. This call was never answered."
SYSTEM_NOTE = "System note:"


def orphaned(name: str) -> str:
    """Introduce a result whose call is gone; `name` is the tool's, empty if unknown."""
    of = f" of {name}" if name else ""
    return f"Result{of}, from a tool call that is no longer part of this conversation:"
