"""What all attempts of a turn cost together, told beside the usage of the client's own reply.

Agents use that usage as their gauge of the window, so it stays what it is.
"""

from msgspec.structs import replace

from proxy.conversation.json import JsonObject
from proxy.conversation.replies import UsageReported

_COUNTED = ("prompt_tokens", "completion_tokens", "total_tokens")


class Spending:
    """Adds up what backends report; `first_reply` is the first one's length in tokens, if known."""

    def __init__(self) -> None:
        self.first_reply: int | None = None
        self._attempts = 0
        self._sums: dict[str, int] = {}

    def add(self, reported: UsageReported) -> None:
        """Take note of one attempt."""
        if not self._attempts:
            self.first_reply = _count(reported.usage, "completion_tokens")
        self._attempts += 1
        for name in _COUNTED:
            self._sums[name] = self._sums.get(name, 0) + (_count(reported.usage, name) or 0)

    def told_with(self, usage: UsageReported) -> UsageReported:
        """Return the usage with a member `temper` for all attempts, if there were several."""
        if self._attempts < 2:
            return usage
        sums: JsonObject = {"attempts": self._attempts, **self._sums}
        return replace(usage, usage={**usage.usage, "temper": sums})


def _count(usage: JsonObject, name: str) -> int | None:
    value = usage.get(name)
    return value if isinstance(value, int) else None
