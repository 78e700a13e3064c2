from proxy.dialects.front import ListedModel, Page
from proxy.dialects.openai_chat.models import ChatCatalogue

CATALOGUE = ChatCatalogue()


def test_models_are_listed_with_what_is_known_of_them() -> None:
    known = ListedModel("m", 4096, {"owned_by": "someone", "context_window": 4096})
    one = {
        "created": 0,
        "owned_by": "someone",
        "context_window": 4096,
        "id": "m",
        "object": "model",
    }
    assert CATALOGUE.model(known) == one
    assert CATALOGUE.models([known], Page(limit=1)) == {"object": "list", "data": [one]}


def test_a_model_of_which_nothing_is_known_is_ours() -> None:
    described = CATALOGUE.model(ListedModel("m"))
    assert described == {"created": 0, "owned_by": "temper", "id": "m", "object": "model"}
