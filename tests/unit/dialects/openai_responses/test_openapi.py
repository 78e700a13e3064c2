from openai.types.responses import Response

from proxy.dialects.openai_responses.openapi import responses_schemas


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
