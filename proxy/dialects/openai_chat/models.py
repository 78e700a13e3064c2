"""The list of models, and one of them, in OpenAI's shape."""

from collections.abc import Sequence

from proxy.conversation.json import JsonObject
from proxy.dialects.front import ListedModel, Page


class ChatCatalogue:
    """Lists models in OpenAI's shape, whose list has no pages; what is known of one is added."""

    def models(self, models: Sequence[ListedModel], page: Page) -> JsonObject:
        """Write the list."""
        del page
        return {"object": "list", "data": [self.model(model) for model in models]}

    def model(self, model: ListedModel) -> JsonObject:
        """Describe one model."""
        entry: JsonObject = {"created": 0, "owned_by": "temper", **model.details}
        return {**entry, "id": model.id, "object": "model"}
