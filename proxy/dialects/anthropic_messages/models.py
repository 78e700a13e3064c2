"""The model list in the format of the Messages API.

    {"data": [{"type": "model", "id": "qwen3", "display_name": "qwen3", "created_at": "..."}],
     "has_more": true, "first_id": "qwen3", "last_id": "qwen3"}

This is the first page, for `limit=1`; `after_id=qwen3` requests the next page.
"""

from collections.abc import Sequence
from datetime import UTC, datetime

from proxy.conversation.json import JsonObject
from proxy.dialects.dialect import ListedModel, Page
from proxy.dialects.lenient_json import as_unix_time

_MOST = 1_000  # Anthropic's maximum of `limit`
_USUAL = 20  # Anthropic's default of `limit`


class MessagesCatalogue:
    """Lists models in the format of Anthropic's API."""

    def models(self, models: Sequence[ListedModel], page: Page) -> JsonObject:
        """Write one page of the list; an unknown id in `page` is ignored."""
        most = min(max(1, _USUAL if page.limit is None else page.limit), _MOST)
        ids, candidates = [model.id for model in models], list(models)
        if page.before in ids and not page.after:
            candidates = candidates[: ids.index(page.before)]
            selected = candidates[-most:]
        else:
            if page.after in ids:
                candidates = candidates[ids.index(page.after) + 1 :]
            selected = candidates[:most]
        return {
            "data": [self.model(model) for model in selected],
            "has_more": len(candidates) > most,
            "first_id": selected[0].id if selected else None,
            "last_id": selected[-1].id if selected else None,
        }

    def model(self, model: ListedModel) -> JsonObject:
        """Describe one model; `created` in its details is a Unix time in seconds."""
        created = datetime.fromtimestamp(as_unix_time(model.details.get("created")), UTC)
        return {
            "type": "model",
            "id": model.id,
            "display_name": model.id,
            "created_at": created.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "max_input_tokens": model.window,
            "max_tokens": model.window,
            "lifecycle": "active",
        }
