from base64 import b64encode

import pytest

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.dialects.foreign_history import Medium, Part, write_content
from proxy.dialects.openai_responses.contents import is_failure, read_content, result_in, texts_in
from proxy.dialects.raw_json import JsonText, Node, nodes_in, own_text
from proxy.errors import InvalidRequest
from proxy.facts import Fact, Omitted

PICTURE = "data:image/png;base64,AAAA"


def node(value: JsonValue) -> Node:
    return Node(value, json.dump(value), "input.0.content")


def read(value: JsonValue) -> list[Part]:
    facts: list[Fact] = []
    parts = read_content(node(value), facts)
    assert facts == []
    return parts


def test_a_content_is_a_string_or_parts_or_nothing() -> None:
    assert read("a") == [JsonText("a", b'"a"')]
    assert read([]) == []
    assert read_content(None, []) == []


@pytest.mark.parametrize(
    "part",
    [
        {"type": "input_text", "text": "a", "prompt_cache_breakpoint": {"mode": "explicit"}},
        {"type": "output_text", "text": "a", "annotations": []},
        {"type": "refusal", "refusal": "a"},
        {"type": "brand_new", "text": "a"},
    ],
)
def test_texts_are_texts_whatever_they_are_called(part: JsonObject) -> None:
    assert read([part]) == [own_text("a")]


def test_a_picture_travels_with_its_bytes() -> None:
    (part,) = read([{"type": "input_image", "image_url": PICTURE, "detail": "auto"}])
    assert isinstance(part, Medium)
    assert json.parse(part.source) == {"type": "image_url", "image_url": {"url": PICTURE}}


def test_a_sound_travels_as_it_is() -> None:
    sound: JsonObject = {"type": "input_audio", "input_audio": {"data": "AA", "format": "wav"}}
    assert read([sound]) == [Medium(json.dump(sound))]


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ("data:text/plain;base64," + b64encode(b"caf\xc3\xa9").decode(), "notes.txt:\ncafé"),
        ("data:text/plain,a%20b", "notes.txt:\na b"),
        (b64encode(b"a,b\n1,2\n").decode(), "notes.txt:\na,b\n1,2\n"),
    ],
)
def test_a_file_that_is_text_is_text_under_its_name(data: str, text: str) -> None:
    part: JsonObject = {"type": "input_file", "file_data": data, "filename": "notes.txt"}
    assert read([part]) == [own_text(text)]
    assert read([{"type": "input_file", "file_data": data}]) == [
        own_text(text.replace("notes.txt", "File"))
    ]


@pytest.mark.parametrize(
    ("part", "member"),
    [
        ({"type": "input_image", "image_url": "https://a/b.png"}, "image_url"),
        ({"type": "input_image", "file_id": "f"}, "file_id"),
        ({"type": "input_file", "file_url": "https://a/b.txt"}, "file_data"),
        ({"type": "input_file", "file_data": b64encode(b"%PDF-1.7 x").decode()}, "file_data"),
        ({"type": "input_file", "file_data": b64encode(b"a\x00b").decode()}, "file_data"),
        ({"type": "input_file", "file_data": b64encode(b"\xff\xfe").decode()}, "file_data"),
        ({"type": "input_file", "file_data": "A"}, "file_data"),
        ({"type": "input_text"}, "text"),
    ],
)
def test_what_cannot_be_read_is_refused_by_its_place(part: JsonObject, member: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        read([{"type": "input_text", "text": "a"}, part])
    assert caught.value.param == f"input.0.content.1.{member}"


@pytest.mark.parametrize("part", [{"type": "hologram"}, {}])
def test_what_nobody_knows_is_left_out_and_reported(part: JsonObject) -> None:
    facts: list[Fact] = []
    assert read_content(node([part, {"type": "input_text", "text": "a"}]), facts) == [own_text("a")]
    assert facts == [Omitted("content_part")]


def test_the_texts_alone_can_be_read() -> None:
    parts: JsonValue = [
        {"type": "input_image", "image_url": PICTURE},
        {"type": "input_text", "text": "a"},
    ]
    assert texts_in(node(parts), []) == [own_text("a")]


def text_of(kind: str, output: JsonValue) -> str:
    node = None if output is None else Node(output, json.dump(output), "input.0.output")
    return write_content(result_in(kind, node, []))[0]


@pytest.mark.parametrize(
    ("output", "text"),
    [
        ("12 degrees", "12 degrees"),
        (None, ""),
        ([{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}], "a\nb"),
        ({"degrees": 12}, '{"degrees":12}'),
    ],
)
def test_the_result_of_a_function_is_its_text(output: JsonValue, text: str) -> None:
    assert text_of("function_call_output", output) == text


@pytest.mark.parametrize(
    ("output", "text"),
    [
        ([{"stdout": "a\n", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}], "a"),
        (
            [{"stdout": "a\n", "stderr": "b\n", "outcome": {"type": "exit", "exit_code": 2}}],
            "a\nb\n[exit code 2]",
        ),
        ([{"stdout": "", "outcome": {"type": "timeout"}}, {"stdout": "b"}], "[timed out]\nb"),
    ],
)
def test_the_result_of_a_shell_is_what_it_printed_and_how_it_ended(
    output: JsonValue, text: str
) -> None:
    assert text_of("shell_call_output", output) == text


@pytest.mark.parametrize(
    ("kind", "members", "expected"),
    [
        ("apply_patch_call_output", {"status": "failed"}, True),
        ("apply_patch_call_output", {"status": "completed"}, False),
        ("apply_patch_call_output", {}, False),
        ("function_call_output", {"status": "failed"}, False),
    ],
)
def test_a_patch_tells_whether_it_has_failed(
    kind: str, members: JsonObject, expected: bool
) -> None:
    assert is_failure(kind, nodes_in(members, json.dump(members))) is expected
