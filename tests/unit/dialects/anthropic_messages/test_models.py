import pytest
from anthropic.types import ModelInfo

from proxy.conversation.json import JsonObject
from proxy.dialects.anthropic_messages.models import MessagesCatalogue
from proxy.dialects.dialect import ListedModel, Page

CATALOGUE = MessagesCatalogue()
MODELS = [ListedModel(name, 8192, {"created": 1700000000}) for name in "abcde"]


def ids(page: JsonObject) -> list[object]:
    listed = page["data"]
    assert isinstance(listed, list)
    return [model["id"] for model in listed if isinstance(model, dict)]


def test_the_sdk_accepts_the_description_of_a_model() -> None:
    described = CATALOGUE.model(MODELS[0])
    assert described == {
        "type": "model",
        "id": "a",
        "display_name": "a",
        "created_at": "2023-11-14T22:13:20Z",
        "max_input_tokens": 8192,
        "max_tokens": 8192,
        "lifecycle": "active",
    }
    assert ModelInfo.model_validate(described).created_at.timestamp() == 1700000000


def test_unknown_model_fields_are_null_and_the_creation_time_is_the_epoch() -> None:
    described = CATALOGUE.model(ListedModel("a"))
    assert described["created_at"] == "1970-01-01T00:00:00Z"
    assert described["max_input_tokens"] is described["max_tokens"] is None


@pytest.mark.parametrize(
    ("limit", "after", "before", "listed", "has_more"),
    [
        (None, "", "", "abcde", False),
        (1_000_000, "", "", "abcde", False),
        (2, "", "", "ab", True),
        (0, "", "", "a", True),
        (2, "b", "", "cd", True),
        (2, "c", "", "de", False),
        (2, "e", "", "", False),
        (2, "", "e", "cd", True),
        (9, "", "c", "ab", False),
        (9, "b", "c", "cde", False),
        (9, "gone", "gone", "abcde", False),
    ],
)
def test_the_list_of_models_is_paginated(
    limit: int | None, after: str, before: str, listed: str, has_more: bool
) -> None:
    page = CATALOGUE.models(MODELS, Page(limit, after, before))
    assert ids(page) == [*listed]
    assert page["has_more"] is has_more
    ends = (listed[0], listed[-1]) if listed else (None, None)
    assert (page["first_id"], page["last_id"]) == ends


def test_an_empty_list_of_models_has_no_first_and_last_id() -> None:
    nothing = {"data": [], "has_more": False, "first_id": None, "last_id": None}
    assert CATALOGUE.models([], Page()) == nothing


def test_a_creation_time_in_milliseconds_is_ignored() -> None:
    model = CATALOGUE.model(ListedModel("m", None, {"created": 1_700_000_000_000}))
    assert model["created_at"] == "1970-01-01T00:00:00Z"
