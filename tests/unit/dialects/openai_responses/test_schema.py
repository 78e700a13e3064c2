import pytest
from openai.types.responses import Response

from proxy.conversation.json import JsonValue
from proxy.dialects.openai_responses.schema import ResponseRequest, responses_schemas
from proxy.dialects.wire_schema import check
from proxy.errors import InvalidRequest


@pytest.mark.parametrize(
    ("field", "value", "param"),
    [
        ("stream", "yes", "stream"),
        ("model", 3, "model"),
        ("max_output_tokens", -1, "max_output_tokens"),
        ("truncation", "sometimes", "truncation"),
        ("text", {"format": {"type": "grammar"}}, "text.format.type"),
        ("text", {"format": {"type": "json_schema", "schema": 1}}, "text.format.schema"),
        ("include", [1], "include.0"),
        ("reasoning", {"effort": 1}, "reasoning.effort"),
    ],
)
def test_the_field_that_is_wrong_is_named(field: str, value: JsonValue, param: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        check(ResponseRequest, {field: value})
    assert caught.value.param == param


def test_what_nobody_knows_and_what_is_null_is_no_error() -> None:
    checked = check(
        ResponseRequest, {"model": None, "brand_new": {"a": 1}, "text": {"verbosity": "low"}}
    )
    assert checked.model is None
    assert checked.text is not None
    assert checked.text.format is None


def test_everything_is_described_by_a_name_of_its_own() -> None:
    schemas = responses_schemas()
    titles = [one["title"] for one in (schemas.request, schemas.answer, schemas.count)]
    assert titles == ["ResponseRequest", "Response", "InputTokens"]
    parts = schemas.request["$defs"]
    assert isinstance(parts, dict)
    assert all(name.startswith("Response") for name in parts)


def test_a_response_has_what_the_sdk_expects() -> None:
    required = responses_schemas().answer["required"]
    assert isinstance(required, list)
    assert set(required) <= set(Response.model_fields)
