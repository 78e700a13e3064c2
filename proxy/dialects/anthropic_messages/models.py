"""The list of models, and one of them, as clients of the Messages language read it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from proxy.conversation.json import JsonObject

_MOST = 1_000
_USUAL = 20


@dataclass(frozen=True, slots=True)
class ListedModel:
    """A model that is served; `window` in tokens, `created` as a Unix time in seconds."""

    id: str
    window: int | None = None
    created: int = 0


def model_object(model: ListedModel) -> JsonObject:
    """Describe one model."""
    created = datetime.fromtimestamp(model.created, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "type": "model",
        "id": model.id,
        "display_name": model.id,
        "created_at": created,
        "max_input_tokens": model.window,
        "max_tokens": model.window,
        "lifecycle": "active",
    }


def model_page(
    models: Sequence[ListedModel], *, limit: int = _USUAL, after_id: str = "", before_id: str = ""
) -> JsonObject:
    """Write one page of the list: at most `limit` models behind, or else before, one of them.

    An id that nobody knows is passed over.
    """
    most = min(max(1, limit), _MOST)
    ids = [model.id for model in models]
    listed = list(models)
    if before_id in ids and not after_id:
        before = listed[: ids.index(before_id)]
        page, has_more = before[-most:], len(before) > most
    else:
        behind = listed[ids.index(after_id) + 1 :] if after_id in ids else listed
        page, has_more = behind[:most], len(behind) > most
    return {
        "data": [model_object(model) for model in page],
        "has_more": has_more,
        "first_id": page[0].id if page else None,
        "last_id": page[-1].id if page else None,
    }
