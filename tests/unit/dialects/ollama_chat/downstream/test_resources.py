"""Model lists, model details and embeddings, compared with the types of ollama-python."""

import pytest
from ollama import EmbeddingsResponse, EmbedResponse, ListResponse, ProcessResponse, ShowResponse

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.dialects.dialect import ListedModel
from proxy.dialects.lenient_json import as_list, as_object
from proxy.dialects.ollama_chat.downstream import resources
from proxy.errors import InvalidRequest

LLAMA = ListedModel(
    "qwen3", 8192, {"created": 5, "meta": {"n_params": 1_540_000_000, "size": 900}, "engine": {}}
)
SMALL = ListedModel("tiny:q4", None, {"meta": {"n_params": 5_200_000}})
OWN: JsonObject = {
    "name": "gemma3:latest",
    "model": "gemma3:latest",
    "modified_at": "2026-11-21T12:00:00.123456789Z",
    "size": 7,
    "digest": "d" * 64,
    "details": {"format": "gguf", "family": "gemma3"},
}


def test_models_are_listed_with_their_tags() -> None:
    tags = resources.list_models([LLAMA, SMALL])
    ListResponse.model_validate(tags)
    first, second = map(as_object, as_list(tags["models"]))
    assert (first["name"], first["model"], first["size"]) == ("qwen3:latest", "qwen3:latest", 900)
    assert as_object(first["details"])["parameter_size"] == "1.5B"
    assert second["name"] == "tiny:q4"
    assert as_object(second["details"])["parameter_size"] == "5.2M"
    again = resources.list_models([ListedModel("qwen3")])
    assert as_object(as_list(again["models"])[0])["digest"] == first["digest"]


def test_a_creation_time_in_milliseconds_is_ignored() -> None:
    tags = resources.list_models([ListedModel("m", None, {"created": 1_700_000_000_000})])
    assert as_object(as_list(tags["models"])[0])["modified_at"] == "1970-01-01T00:00:00.000000Z"


def test_an_entry_of_an_ollama_backend_is_listed_unchanged() -> None:
    listed = ListedModel("gemma3:latest", 4096, {**OWN, "capabilities": [], "context_window": 4096})
    assert resources.list_models([listed]) == {"models": [OWN]}


def test_loaded_models_are_listed_with_their_context_length() -> None:
    running = resources.list_running([LLAMA, SMALL], 0.0)
    ProcessResponse.model_validate(running)
    first, second = map(as_object, as_list(running["models"]))
    assert (first["context_length"], first["size_vram"]) == (8192, 900)
    assert f"{first['expires_at']}" > "2069"
    assert "context_length" not in second


def test_the_details_of_a_model_have_the_context_length_under_its_architecture() -> None:
    details = resources.show_model(LLAMA, "qwen3", "{{ messages }}", ("tools", "vision"))
    shown = ShowResponse.model_validate(details)
    assert shown.capabilities == ["completion", "tools", "vision"]
    assert shown.modelinfo == {
        "general.architecture": "qwen3",
        "general.basename": "qwen3",
        "general.parameter_count": 1_540_000_000,
        "qwen3.context_length": 8192,
    }
    assert (shown.template, shown.parameters) == ("{{ messages }}", f"{'num_ctx':30} 8192")
    assert as_object(details["details"])["families"] == ["qwen3"]


def test_unknown_details_of_a_model_are_omitted() -> None:
    shown = resources.show_model(ListedModel("m"), "", "", ())
    assert shown["model_info"] == {"general.architecture": "unknown", "general.basename": "m"}
    assert shown["parameters"] == ""


@pytest.mark.parametrize(
    ("body", "name"), [({"model": "a"}, "a"), ({"name": "b"}, "b"), ({"model": ""}, "")]
)
def test_the_model_name_is_read_from_the_field_model_or_name(body: JsonObject, name: str) -> None:
    assert resources.read_name(json.dump(body)) == name


@pytest.mark.parametrize(
    ("body", "fields"),
    [
        (
            {"model": "m", "input": ["a"], "dimensions": 4, "truncate": True},
            {"dimensions", "model"},
        ),
        ({"prompt": "a"}, set[str]()),
    ],
)
def test_embeddings_are_requested_in_openai_format(body: JsonObject, fields: set[str]) -> None:
    put = resources.to_embeddings_request(json.dump(body))
    assert put.keys() == fields | {"input", "encoding_format"}
    with pytest.raises(InvalidRequest, match="input: Expected a text"):
        resources.to_embeddings_request(b'{"model":"m"}')


def test_embeddings_are_returned_in_the_order_of_their_indexes() -> None:
    data: JsonValue = [{"index": 1, "embedding": [0.5, 1]}, {"index": 0, "embedding": [0.25, 2]}]
    answer = json.dump({"data": data, "usage": {"prompt_tokens": 3}})
    vectors = as_object(json.parse(resources.write_vectors(answer, "m", is_old=False)))
    EmbedResponse.model_validate(vectors)
    assert vectors["embeddings"] == [[0.25, 2], [0.5, 1]]
    assert (vectors["model"], vectors["prompt_eval_count"]) == ("m", 3)
    old = as_object(json.parse(resources.write_vectors(answer, "m", is_old=True)))
    assert EmbeddingsResponse.model_validate(old).embedding == [0.25, 2]


@pytest.mark.parametrize("answer", [b"[]", b"{", b'{"data":[]}'])
def test_an_answer_without_embeddings_is_invalid(answer: bytes) -> None:
    with pytest.raises(ValueError, match=r"embedding|EOF|JSON"):
        resources.write_vectors(answer, "m", is_old=False)
