import pytest

from proxy.conversation.json import JsonObject
from proxy.dialects.handling import form_schema, put_once
from proxy.errors import InvalidRequest

SCHEMA: JsonObject = {"type": "object"}


def test_what_is_asked_for_twice_has_to_be_the_same() -> None:
    target: JsonObject = {}
    put_once(target, "think", True, "think")
    put_once(target, "think", True, "reasoning_effort")
    assert target == {"think": True}
    with pytest.raises(InvalidRequest, match="asked for twice") as raised:
        put_once(target, "think", False, "reasoning_effort")
    assert raised.value.param == "reasoning_effort"


@pytest.mark.parametrize(
    ("wanted", "schema"),
    [
        ({"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}, SCHEMA),
        ({"type": "json_object", "schema": SCHEMA}, SCHEMA),
        ({"type": "json_object"}, None),
        ({"type": "json_schema", "json_schema": {"name": "x", "schema": True}}, None),
    ],
)
def test_the_schema_of_a_form_is_found_in_both_its_places(
    wanted: JsonObject, schema: JsonObject | None
) -> None:
    assert form_schema(wanted) == schema
