"""An adapter for the scorer of the announcement corpus; the scorer compares results with labels."""

from collections.abc import Sequence

from proxy.guardrails.announcements import recognition


def announces(text: str, tools: Sequence[str], _after_result: bool) -> bool:  # noqa: FBT001
    """Return whether a reply announces a call; the scorer's third argument is not used."""
    return recognition.announces(text, tools)
