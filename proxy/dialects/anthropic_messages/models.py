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

_MOST = 1_000  # both limits are Anthropic's
_USUAL = 20


class MessagesCatalogue:
    """Lists models in the format of Anthropic's API."""

    def models(self, models: Sequence[ListedModel], page: Page) -> JsonObject:
        """Write one page of the list; an unknown id in `page` is ignored."""
        most = min(max(1, _USUAL if page.limit is None else page.limit), _MOST)
        ids, listed = [model.id for model in models], list(models)
        if page.before in ids and not page.after:
            before = listed[: ids.index(page.before)]
            shown, has_more = before[-most:], len(before) > most
        else:
            rest = listed[ids.index(page.after) + 1 :] if page.after in ids else listed
            shown, has_more = rest[:most], len(rest) > most
        return {
            "data": [self.model(model) for model in shown],
            "has_more": has_more,
            "first_id": shown[0].id if shown else None,
            "last_id": shown[-1].id if shown else None,
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
