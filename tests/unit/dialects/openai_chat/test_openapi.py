from proxy.conversation import json
from proxy.conversation.replies import ReplyFinished, TextDelta
from proxy.dialects.openai_chat.encode import CompletionBuilder, Identity
from proxy.dialects.openai_chat.openapi import chat_schemas


def test_requests_and_answers_are_described_by_name() -> None:
    schemas = chat_schemas()
    titles = [
        schema["title"]
        for schema in (schemas.request, schemas.answer, schemas.count, schemas.error)
    ]
    assert titles == ["ChatCompletionRequest", "ChatCompletion", "InputTokens", "Error"]


def test_an_answer_is_as_described() -> None:
    builder = CompletionBuilder(Identity("c", 1, "m"))
    builder.add(TextDelta("Hello"))
    builder.add(ReplyFinished("stop"))
    schema = json.parse(json.dump(chat_schemas().answer))
    assert isinstance(schema, dict)
    assert schema["required"] == ["id", "object", "created", "model", "choices", "usage"]
    assert set(builder.completion()) >= {str(name) for name in schema["required"]}
