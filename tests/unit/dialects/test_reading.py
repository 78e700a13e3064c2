import pytest

from proxy.conversation import json
from proxy.conversation.json import JsonObject
from proxy.dialects.reading import kind, read_object
from proxy.errors import InvalidRequest


@pytest.mark.parametrize("filling", ["", "x" * 2**20], ids=["small", "large"])
def test_a_request_has_no_more_than_a_thousand_fields(filling: str) -> None:
    fields: JsonObject = {f"k{number}": number for number in range(997)}
    asked: JsonObject = {"model": "m", "messages": [], "user": filling, **fields}
    assert len(read_object(json.dump(asked))) == 1_000
    with pytest.raises(InvalidRequest, match="at most 1000 fields, got 1001") as raised:
        read_object(json.dump({**asked, "more": 1}))
    assert raised.value.param == "body"


def test_a_large_body_that_is_no_object_is_told_as_ever() -> None:
    with pytest.raises(InvalidRequest, match="got an array"):
        read_object(b"[" + b"1," * 2**20 + b"1]")
    with pytest.raises(InvalidRequest, match=r"not valid JSON: .* line 1"):
        read_object(b'{"a": 1,' + b" " * 2**20)


@pytest.mark.parametrize("body", [b"", b" \n"])
def test_an_empty_body_is_no_object(body: bytes) -> None:
    with pytest.raises(InvalidRequest, match="got nothing"):
        read_object(body)


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (None, "null"),
        (True, "a boolean"),
        ("x", "a string"),
        ([], "an array"),
        ({}, "an object"),
        (1.5, "a number"),
    ],
)
def test_every_kind_of_value_has_a_name(value: object, name: str) -> None:
    assert kind(value) == name
