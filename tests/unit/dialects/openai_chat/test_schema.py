from concurrent.futures import ThreadPoolExecutor

import pytest

from proxy.conversation import json
from proxy.conversation.json import JsonObject
from proxy.conversation.replies import ReplyFinished, TextDelta
from proxy.dialects.openai_chat.encode import CompletionBuilder, Identity
from proxy.dialects.openai_chat.schema import ChatCompletionRequest, chat_schemas
from proxy.dialects.wire_schema import WireObject, check
from proxy.errors import InvalidRequest

USER: JsonObject = {"role": "user", "content": "Hello"}


@pytest.mark.parametrize(
    "name", [name for name in ChatCompletionRequest.model_fields if name != "messages"]
)
def test_null_counts_as_a_missing_member(name: str) -> None:
    assert getattr(check(ChatCompletionRequest, {"messages": [USER], name: None}), name) is None


def test_the_first_of_many_invalid_messages_is_named() -> None:
    with pytest.raises(InvalidRequest) as caught:
        check(ChatCompletionRequest, {"messages": [5] * 100_000})

    assert caught.value.param == "messages.0"


def test_the_schema_documents_every_member() -> None:
    document = ChatCompletionRequest.model_json_schema()

    assert set(document["properties"]) == set(ChatCompletionRequest.model_fields)
    assert document["additionalProperties"] is True


def test_concurrent_threads_build_a_validator_once() -> None:
    class Thing(WireObject):
        name: str

    given: JsonObject = {"name": "a"}
    assert not Thing.__pydantic_complete__
    with ThreadPoolExecutor(8) as threads:
        futures = [threads.submit(check, Thing, given) for _ in range(8)]
    assert {future.result().name for future in futures} == {"a"}
    assert Thing.__pydantic_complete__


def test_the_chat_validator_is_built_before_the_first_request() -> None:
    assert ChatCompletionRequest.__pydantic_complete__


def test_every_schema_has_a_title() -> None:
    schemas = chat_schemas()
    titles = [
        schema["title"]
        for schema in (schemas.request, schemas.answer, schemas.count, schemas.error)
    ]
    assert titles == ["ChatCompletionRequest", "ChatCompletion", "InputTokens", "Error"]


def test_a_completion_has_every_required_member_of_its_schema() -> None:
    builder = CompletionBuilder(Identity("c", 1, "m"))
    builder.add(TextDelta("Hello"))
    builder.add(ReplyFinished("stop"))
    schema = json.parse(json.dump(chat_schemas().answer))
    assert isinstance(schema, dict)
    assert schema["required"] == ["id", "object", "created", "model", "choices", "usage"]
    assert set(builder.completion()) >= {str(name) for name in schema["required"]}
