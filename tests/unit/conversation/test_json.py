import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.conversation import json
from proxy.conversation.json import JsonValue

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**60), 2**60)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(values)
def test_encoded_json_is_decoded_to_the_same_value(value: JsonValue) -> None:
    assert json.parse(json.dump(value)) == value
    assert json.parse(json.dump_text(value)) == value
    assert json.dump_text(value).encode() == json.dump(value)


def test_json_is_compact_utf_8() -> None:
    assert json.dump({"a": [1, "ü", None]}) == '{"a":[1,"ü",null]}'.encode()


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        (b"", "line 1 column 0"),
        (b'{"a":\n NaN}', "line 2 column 2"),
        (b"Infinity", "line 1 column 1"),
        (b'{"a":1,"a":2}', 'duplicate key "a"'),
        (b'{"b":{"a":1,"a":2}}', 'duplicate key "a"'),
        (b'"\\ud800"', "line 1 column"),
        (b'"\xff"', "invalid unicode"),
        ('"\ud800"', "invalid unicode"),
        (b"\xef\xbb\xbf{}", "line 1 column 1"),
        (b"{} {}", "trailing characters"),
        (b"[1,]", "trailing comma"),
        (b"01", "invalid number"),
        (b'"\n"', "control character"),
        (b"[" * 1000 + b"]" * 1000, "recursion limit"),
        (b"'a'", "line 1 column 1"),
    ],
)
def test_invalid_json_raises_value_error_with_its_position(
    document: bytes | str, problem: str
) -> None:
    with pytest.raises(ValueError, match=problem):
        json.parse(document)


@given(st.dictionaries(st.text(), values, max_size=5), st.sampled_from(["", " ", "\n\t "]))
def test_an_object_is_split_into_the_bytes_of_its_members(
    members: dict[str, JsonValue], space: str
) -> None:
    encoded = {name: json.dump(value) for name, value in members.items()}
    gap = space.encode()
    body = b",".join(
        gap + json.dump(name) + gap + b":" + gap + raw + gap for name, raw in encoded.items()
    )

    assert list(json.split_object(b"{" + body + b"}").items()) == list(encoded.items())
    assert json.parse(json.join_object(encoded)) == members


@given(st.lists(values, max_size=5))
def test_an_array_is_split_into_the_bytes_of_its_elements(elements: list[JsonValue]) -> None:
    encoded = [json.dump(value) for value in elements]

    assert json.split_array(b"[ " + b" , ".join(encoded) + b" ]") == encoded
    assert json.join_array(encoded) == json.dump(elements)


def test_split_object_and_join_object_keep_the_formatting_of_values() -> None:
    document = b'{"a": 1.50, "b" : [ 1,2 ] ,"c":"\\u00fc"}'

    assert json.split_object(document) == {"a": b"1.50", "b": b"[ 1,2 ]", "c": b'"\\u00fc"'}
    assert json.join_object(json.split_object(document)) == (
        b'{"a":1.50,"b":[ 1,2 ],"c":"\\u00fc"}'
    )


@given(st.lists(values))
def test_dump_lines_writes_each_value_on_one_line(values: list[JsonValue]) -> None:
    assert json.dump_lines(values) == b"".join(json.dump(value) + b"\n" for value in values)
