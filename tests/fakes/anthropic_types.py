"""Request bodies for Anthropic's API, validated against the types of Anthropic's SDK."""

from collections.abc import Iterable, Mapping

from anthropic.types import MessageCountTokensParams, MessageCreateParams
from pydantic import TypeAdapter

from proxy.conversation.json import JsonObject

# The API still accepts these for older models, but the newest types of the SDK lack them.
_OLDER = frozenset({"temperature", "top_p", "top_k"})

_ASKED: TypeAdapter[MessageCreateParams] = TypeAdapter(MessageCreateParams)
_COUNTED: TypeAdapter[MessageCountTokensParams] = TypeAdapter(MessageCountTokensParams)


def check_request(body: JsonObject) -> None:
    """Validate a request body: every member is known and of the right type."""
    known = {name: value for name, value in body.items() if name not in _OLDER}
    assert _read(_ASKED.validate_python(known)) == known


def check_count(body: JsonObject) -> None:
    """Validate the body of a token-count request."""
    assert _read(_COUNTED.validate_python(body)) == body


def _read(value: object) -> object:
    """Read a value completely: pydantic validates iterables only while they are read."""
    if isinstance(value, Mapping):
        return {name: _read(member) for name, member in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, str | bytes):
        return [_read(item) for item in value]
    return value
