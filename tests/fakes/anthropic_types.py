"""Bodies for Anthropic's API, held against the types of Anthropic's own SDK."""

from collections.abc import Iterable, Mapping

from anthropic.types import MessageCountTokensParams, MessageCreateParams
from pydantic import TypeAdapter

from proxy.conversation.json import JsonObject

# Still taken by the API for older models, and gone from the SDK's newest types.
_OLDER = frozenset({"temperature", "top_p", "top_k"})

_ASKED: TypeAdapter[MessageCreateParams] = TypeAdapter(MessageCreateParams)
_COUNTED: TypeAdapter[MessageCountTokensParams] = TypeAdapter(MessageCountTokensParams)


def check_question(body: JsonObject) -> None:
    """Check the body of a question: of the right types, and with no member that is unknown."""
    known = {name: value for name, value in body.items() if name not in _OLDER}
    assert _read(_ASKED.validate_python(known)) == known


def check_count(body: JsonObject) -> None:
    """Check the body of a request to count."""
    assert _read(_COUNTED.validate_python(body)) == body


def _read(value: object) -> object:
    """Read all of a value: what is iterable is checked while it is read."""
    if isinstance(value, Mapping):
        return {name: _read(member) for name, member in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, str | bytes):
        return [_read(one) for one in value]
    return value
