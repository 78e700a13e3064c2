"""Takes secrets out of what is written down: those we know, and what looks like one.

Names and schemas stay as they are, so that what was recorded can be judged again.
"""

import re
from collections.abc import Iterable

from proxy.conversation.json import JsonValue

REDACTED = "[redacted]"

_SHORTEST = 4  # a shorter secret would be found everywhere
_NAME = r"(?:proxy-)?authorization|cookie|(?:\w+[-_])?(?:api[-_]?key|password|passwd|secret|token)"
_NAMES = re.compile(_NAME, re.IGNORECASE)
_ASSIGNED = re.compile(
    rf"""((?<![\w-])\\*["']?(?:{_NAME})\\*["']?\s*[:=]\s*\\*["'])[^"'\\]+""", re.IGNORECASE
)
_BEARER = re.compile(r"\b(bearer|basic)\s+[\w.~+/=-]{8,}", re.IGNORECASE)
_TOKEN = re.compile(
    r"\b(?:sk|pk|rk)-[\w-]{16,}|\bgh[pousr]_\w{20,}|\bxox[abprs]-[\w-]{10,}|\bAKIA[0-9A-Z]{16}\b"
    r"|\bhf_\w{20,}|\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*"
)


class Redaction:
    """Redacts values and texts; `secrets` are known, whatever they look like."""

    def __init__(self, secrets: Iterable[str]) -> None:
        self._secrets = sorted({one for one in secrets if len(one) >= _SHORTEST}, key=len)[::-1]

    def knowing(self, *secrets: str) -> "Redaction":
        """Return a redaction that knows these as well."""
        return Redaction((*self._secrets, *secrets))

    def value(self, value: JsonValue) -> JsonValue:
        """Redact all texts of a JSON value, and texts under a telling name altogether."""
        match value:
            case str():
                return self.text(value)
            case list():
                return [self.value(one) for one in value]
            case dict():
                return {
                    name: REDACTED
                    if isinstance(one, str) and one and _NAMES.fullmatch(name)
                    else self.value(one)
                    for name, one in value.items()
                }
            case _:
                return value

    def text(self, text: str) -> str:
        """Redact a text."""
        for secret in self._secrets:
            text = text.replace(secret, REDACTED)
        text = _ASSIGNED.sub(rf"\1{REDACTED}", text)
        text = _BEARER.sub(rf"\1 {REDACTED}", text)
        return _TOKEN.sub(REDACTED, text)
