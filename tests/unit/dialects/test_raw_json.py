from collections.abc import Callable

import pytest

from proxy.conversation import json
from proxy.dialects.raw_json import (
    Node,
    Text,
    concatenate,
    join_lines,
    needed,
    nodes_in,
    own_text,
)
from proxy.errors import InvalidRequest


def node(source: bytes, path: str = "a") -> Node:
    return Node(json.parse(source), source, path)


def test_members_and_elements_keep_their_bytes_and_know_their_place() -> None:
    members = node(b'{"x": [ 1.50,{"y":"\\u00fc"} ], "z": null}').members()
    assert list(members) == ["x"]
    one, other = members["x"].elements()
    assert one == Node(1.5, b"1.50", "a.x.0")
    text = other.members()["y"]
    assert text.path == "a.x.1.y"
    assert text.is_text
    assert text.text() == Text("ü", b'"\\u00fc"')
    assert not one.is_text


def test_a_document_has_no_name_in_its_paths() -> None:
    source = b'{"x": 1}'
    assert nodes_in({"x": 1}, source) == {"x": Node(1, b"1", "x")}


@pytest.mark.parametrize(
    ("look", "expected"),
    [
        (lambda: node(b"1").members(), "a: Expected an object, got a number."),
        (lambda: node(b'"s"').elements(), "a: Expected an array, got a string."),
        (lambda: node(b"[]").text(), "a: Expected a string, got an array."),
        (lambda: needed(node(b'{"x":null}').members(), "x", "a"), "a.x: Field required"),
    ],
)
def test_what_is_of_another_kind_is_refused_by_its_path(
    look: Callable[[], object], expected: str
) -> None:
    with pytest.raises(InvalidRequest) as refused:
        look()
    assert str(refused.value) == expected


def test_a_member_that_is_needed_is_found() -> None:
    assert needed(node(b'{"x":1}').members(), "x", "a") == Node(1, b"1", "a.x")


def test_texts_are_joined_as_they_were_written() -> None:
    texts = [Text("ü", b'"\\u00fc"'), own_text('"'), own_text("")]
    assert join_lines(texts) == Text('ü\n"\n', b'"\\u00fc\\n\\"\\n"')
    assert concatenate(*texts) == Text('ü"', b'"\\u00fc\\""')
    assert json.parse(join_lines(texts).source) == 'ü\n"\n'
    assert join_lines([]) == concatenate() == Text("", b'""')
