"""What only a backend and we may know: taken out of whatever the backend says about it.

Servers quote what they were sent, a key above all, when they complain. It knows no HTTP.
"""

from collections.abc import Iterable

from proxy.conversation import json
from proxy.conversation.json import JsonObject

REDACTED = b"[redacted]"

_SHORTEST = 8  # a shorter value of a header is a word, and found everywhere


class Confidential:
    """Some values, each as it is and as JSON writes it."""

    def __init__(self, values: Iterable[str]) -> None:
        known = [one for one in values if len(one) >= _SHORTEST]
        forms = {form for one in known for form in (one.encode(), json.dump(one)[1:-1])}
        self._forms = sorted(forms, key=len, reverse=True)

    def out_of(self, said: bytes) -> bytes:
        """Take the values out of what was said; not for replies, where a word may be one too."""
        for form in self._forms:
            said = said.replace(form, REDACTED)
        return said

    def out_of_error(self, error: JsonObject) -> JsonObject:
        """Take the values out of the texts of an error."""
        return {
            name: self.out_of(told.encode()).decode() if isinstance(told, str) else told
            for name, told in error.items()
        }
