import pytest

from proxy.conversation.json import JsonObject
from proxy.conversation.parts import Image
from proxy.dialects.engine_language import Picture, format_schema, put_once, read_picture
from proxy.errors import InvalidRequest


@pytest.mark.parametrize(
    ("url", "picture"),
    [
        ("data:image/png;base64,aGk=", Picture("image/png", "aGk=")),
        ("DATA:IMAGE/JPEG;base64,aGk=", Picture("image/jpeg", "aGk=")),
        ("data:image/png;name=a.png;base64,aGk=", Picture("image/png", "aGk=")),
        ("data:;base64,aGk=", Picture("", "aGk=")),
    ],
)
def test_a_data_url_is_split_into_type_and_data(url: str, picture: Picture) -> None:
    assert read_picture(Image(url, "content.1"), "messages.0") == picture


@pytest.mark.parametrize(
    "url",
    ["", "data:image/png,hello", *(f"data:image/png;base64,{data}" for data in ("", "a", "a b="))],
)
def test_an_invalid_base64_image_is_refused(url: str) -> None:
    with pytest.raises(InvalidRequest, match="base64") as raised:
        read_picture(Image(url, "content.1"), "messages.0")
    assert raised.value.param == "messages.0.content.1.image_url.url"


SCHEMA: JsonObject = {"type": "object"}


def test_two_fields_with_different_values_for_one_setting_are_refused() -> None:
    target: JsonObject = {}
    put_once(target, "think", True, "think")
    put_once(target, "think", True, "reasoning_effort")
    assert target == {"think": True}
    with pytest.raises(InvalidRequest, match="set twice") as raised:
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
def test_format_schema_finds_the_schema_inside_and_outside_of_json_schema(
    wanted: JsonObject, schema: JsonObject | None
) -> None:
    assert format_schema(wanted) == schema
