from pydantic import BaseModel

from proxy.dialects.wire_schema import TEXT, object_schema, request_schema


class Part(BaseModel):
    """A part of a request."""

    name: str


class Asked(BaseModel):
    """A request."""

    parts: list[Part]


def test_an_object_has_all_that_it_is_described_by() -> None:
    assert object_schema(a=TEXT) == {
        "type": "object",
        "properties": {"a": {"type": "string"}},
        "required": ["a"],
    }


def test_the_parts_of_a_request_have_names_of_its_language() -> None:
    for prefix in ("", "Other"):
        schema = request_schema(Asked, prefix)
        assert schema["title"] == "Asked"
        parts = schema["$defs"]
        assert isinstance(parts, dict)
        assert list(parts) == [f"{prefix}Part"]
        assert f"'#/components/schemas/{prefix}Part'" in str(schema)
