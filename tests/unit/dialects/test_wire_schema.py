import pytest
from pydantic import BaseModel

from proxy.dialects.wire_schema import (
    TEXT,
    check_name,
    check_new,
    check_offered,
    object_schema,
    request_schema,
)
from proxy.errors import InvalidRequest


class Part(BaseModel):
    """A part of a request."""

    name: str


class ExampleRequest(BaseModel):
    """A request."""

    parts: list[Part]


def test_object_schema_requires_its_members() -> None:
    assert object_schema(a=TEXT) == {
        "type": "object",
        "properties": {"a": {"type": "string"}},
        "required": ["a"],
    }


def test_the_parts_of_a_request_schema_have_the_prefix_of_the_dialect() -> None:
    for prefix in ("", "Other"):
        schema = request_schema(ExampleRequest, prefix)
        assert schema["title"] == "ExampleRequest"
        parts = schema["$defs"]
        assert isinstance(parts, dict)
        assert list(parts) == [f"{prefix}Part"]
        assert f"'#/components/schemas/{prefix}Part'" in str(schema)


@pytest.mark.parametrize("name", ["", " ", "a\n", "a\u200b"])
def test_a_blank_name_or_a_name_with_invisible_characters_is_rejected(name: str) -> None:
    check_name("look", "tools.0.name")
    with pytest.raises(InvalidRequest) as refused:
        check_name(name, "tools.0.name")
    assert refused.value.param == "tools.0.name"


def test_two_tools_with_the_same_name_are_rejected() -> None:
    check_new("look", ["find"], "name")
    with pytest.raises(InvalidRequest, match="Two tools are named 'find'"):
        check_new("find", ["find"], "name")


@pytest.mark.parametrize(("offered", "known"), [(["look", "find"], "look, find"), ([], "none")])
def test_only_offered_tools_can_be_chosen(offered: list[str], known: str) -> None:
    check_offered("look", ["look"], "tool_choice")
    with pytest.raises(InvalidRequest, match=f"Unknown tool 'read'. Available: {known}."):
        check_offered("read", offered, "tool_choice")
