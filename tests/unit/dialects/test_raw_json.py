from collections.abc import Callable

import pytest

from proxy.conversation import json
from proxy.conversation.json import JsonObject
from proxy.dialects.raw_json import (
    JsonText,
    Node,
    concatenate,
    join_lines,
    kind,
    nodes_in,
    own_text,
    read_object,
)
from proxy.errors import InvalidRequest


@pytest.mark.parametrize("filling", ["", "x" * 2**20], ids=["small", "large"])
def test_a_request_with_more_than_a_thousand_fields_is_refused(filling: str) -> None:
    fields: JsonObject = {f"k{number}": number for number in range(997)}
    body: JsonObject = {"model": "m", "messages": [], "user": filling, **fields}
    assert len(read_object(json.dump(body))) == 1_000
    with pytest.raises(InvalidRequest, match="at most 1000 fields, got 1001") as raised:
        read_object(json.dump({**body, "more": 1}))
    assert raised.value.param == "body"


def test_a_large_body_that_is_no_object_is_refused_like_a_small_one() -> None:
    with pytest.raises(InvalidRequest, match="got an array"):
        read_object(b"[" + b"1," * 2**20 + b"1]")
    with pytest.raises(InvalidRequest, match=r"not valid JSON: .* line 1"):
        read_object(b'{"a": 1,' + b" " * 2**20)


@pytest.mark.parametrize("body", [b"", b" \n"])
def test_an_empty_body_is_refused(body: bytes) -> None:
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
def test_every_type_of_json_value_has_a_name(value: object, name: str) -> None:
    assert kind(value) == name


def node(source: bytes, path: str = "a") -> Node:
    return Node(json.parse(source), source, path)


def test_members_and_elements_keep_their_bytes_and_path() -> None:
    members = node(b'{"x": [ 1.50,{"y":"\\u00fc"} ], "z": null}').members()
    assert list(members) == ["x"]
    first, other = members["x"].elements()
    assert first == Node(1.5, b"1.50", "a.x.0")
    text = other.members()["y"]
    assert text.path == "a.x.1.y"
    assert text.is_text
    assert text.text() == JsonText("ü", b'"\\u00fc"')
    assert not first.is_text


def test_the_path_of_a_top_level_member_is_its_name() -> None:
    source = b'{"x": 1}'
    assert nodes_in({"x": 1}, source) == {"x": Node(1, b"1", "x")}


@pytest.mark.parametrize(
    ("look", "expected"),
    [
        (lambda: node(b"1").members(), "a: Expected an object, got a number."),
        (lambda: node(b'"s"').elements(), "a: Expected an array, got a string."),
        (lambda: node(b"[]").text(), "a: Expected a string, got an array."),
        (lambda: node(b'{"x":null}').members().need("x"), "a.x: Field required"),
    ],
)
def test_the_error_for_a_value_of_the_wrong_kind_names_its_path(
    look: Callable[[], object], expected: str
) -> None:
    with pytest.raises(InvalidRequest) as refused:
        look()
    assert str(refused.value) == expected


def test_the_method_need_returns_a_required_member() -> None:
    assert node(b'{"x":1}').members().need("x") == Node(1, b"1", "a.x")


def test_join_lines_and_concatenate_join_json_texts_without_decoding() -> None:
    texts = [JsonText("ü", b'"\\u00fc"'), own_text('"'), own_text("")]
    assert join_lines(texts) == JsonText('ü\n"\n', b'"\\u00fc\\n\\"\\n"')
    assert concatenate(*texts) == JsonText('ü"', b'"\\u00fc\\""')
    assert json.parse(join_lines(texts).source) == 'ü\n"\n'
    assert join_lines([]) == concatenate() == JsonText("", b'""')
