from anthropic.types import Message

from proxy.dialects.anthropic_messages.schema import messages_schemas


def test_every_schema_has_a_unique_name() -> None:
    schemas = messages_schemas()
    titles = [schema["title"] for schema in (schemas.request, schemas.answer, schemas.count)]
    assert titles == ["MessagesRequest", "Message", "MessagesCount"]
    parts = schemas.request["$defs"]
    assert isinstance(parts, dict)
    assert all(name.startswith("Messages") for name in parts)


def test_an_answer_has_the_fields_that_the_sdk_expects() -> None:
    required = messages_schemas().answer["required"]
    assert isinstance(required, list)
    assert set(required) <= set(Message.model_fields)
