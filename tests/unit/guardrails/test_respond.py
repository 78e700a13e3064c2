import json as stdlib_json
import time
from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.conversation import json
from proxy.conversation.json import JsonValue
from proxy.guardrails.respond import MessageDecoder, extract_message, make_respond_tool
from tests.examples import mostly_deep

REPLACED = "\N{REPLACEMENT CHARACTER}"

VALID = [
    ('{"message": "Four."}', "Four."),
    ('{"message":""}', ""),
    (' { "message" : "a" , "tone" : 1 } ', "a"),
    ('{"tone": {"message": "no", "x": ["}", "\\""]}, "n": -1.5e3, "message": "yes"}', "yes"),
    ('{"a": [{"message": "no"}], "b": null, "c": "message", "message": "yes"}', "yes"),
    ('{"a": {}, "b": [], "": 0, "message": "yes"}', "yes"),
    ('{"m\\u0065ssage": "escaped key"}', "escaped key"),
    (
        '{"message": "q\\" b\\\\ s\\/ n\\n r\\r t\\t f\\f b\\b u\\u00e9"}',
        'q" b\\ s/ n\n r\r t\t f\f b\b ué',
    ),
    ('{"message": "\\ud83d\\ude00 and 😀 and \\u4e2d"}', "😀 and 😀 and 中"),
    ('{"message": "a, } b: {", "x": "\\\\"}', "a, } b: {"),
    ('{"": "x", "message": "yes"}', "yes"),
]
BROKEN = [
    ('{"message": "cut o', "cut o"),
    ('{"message": "unclosed"', "unclosed"),
    ('{"message": "tail"} and more', "tail"),
    ('{"message": "two\nlines"}', "two\nlines"),
    ('{"message": "He said "hi" to me."}', 'He said "hi" to me.'),
    ('{"message": "He said "hi"  there"}', 'He said "hi"  there'),
    (
        '{"message": "Not <tool_call>{"name": "f", "arguments": {"a": "}"}}</tool_call>\\n\\n ok"}',
        'Not <tool_call>{"name": "f", "arguments": {"a": "}"}}</tool_call>\n\n ok',
    ),
    ('{"message": "like {"a": ["b", {"c": ""}]}"}', 'like {"a": ["b", {"c": ""}]}'),
    ('{"message": "["a", "b"], and {"a": 1}, yes", "x": "y"}', '["a", "b"], and {"a": 1}, yes'),
    ('{"message": "with { "a": "b" } space"  }', 'with { "a": "b" } space'),
    ('{"message": "open {"name": to start"}', 'open {"name": to start'),
    ('{"message": "open {"name": "f", "x"} }', 'open {"name": "f", "x'),
    ('{"message": "a set {", "x": "y"}', "a set {"),
    ('{"message": "lone \\ud83d and \\ude00."}', f"lone {REPLACED} and {REPLACED}."),
    ('{"message": "\\ud83d\\ud83d\\ude00\\ud83d"}', f"{REPLACED}😀{REPLACED}"),
    ('{"message": "\\ud83dx\\ud83d\\n"}', f"{REPLACED}x{REPLACED}\n"),
    ('{"message": "C:\\users \\d \\u12g"}', "C:\\users \\d \\u12g"),
    ("{'message': 'It\\'s \"fine\"'}", 'It\'s "fine"'),
    ("{message: 'bare', x: 1,}", "bare"),
    ("{ tone : warm, message: 'bare'}", "bare"),
    ('{"message": "a", "message": "b"}', "a"),
    ("{'text': 'another key'}", "another key"),
    ("{'text': 'another key'", "another key"),
    ("{'text': 'a', 'title': 'b'}", '{"text":"a","title":"b"}'),
    ("{'message' = 'x'}", "{'message' = 'x'}"),
    ('{"a": 1], "message": "x"}', '{"a": 1], "message": "x"}'),
    ("{[", "{["),
    ("{", "{"),
    ("Four.\n", "Four."),
    (" ", ""),
]
OTHER = [
    ("", ""),
    ("null", ""),
    ("{}", ""),
    ("5", "5"),
    ('["a"]', '["a"]'),
    ("true", "true"),
    ('"Four."', "Four."),
    ('"{\\"message\\": \\"Four.\\"}"', "Four."),
    ('{"message": null}', ""),
    ('{"message": 5}', "5"),
    ('{"message": {"text": "a"}}', '{"text":"a"}'),
    ('{"message": ["a"], "text": "b"}', "b"),
    ('{"text": "only"}', "only"),
    ('{"text": "a", "title": "b"}', '{"text":"a","title":"b"}'),
]


def decode(chunks: Iterable[str]) -> str:
    decoder = MessageDecoder()
    message = "".join([decoder.feed(chunk) for chunk in chunks])
    assert decoder.text == message
    return message


def chunkings(text: str) -> list[Iterable[str]]:
    splits = [(text[:cut], "", text[cut:]) for cut in range(len(text) + 1)]
    return [[text], text, *splits]


@pytest.mark.parametrize(("arguments", "message"), VALID)
def test_valid_arguments_are_decoded_entirely_at_every_chunking(
    arguments: str, message: str
) -> None:
    assert stdlib_json.loads(arguments)["message"] == message
    assert extract_message(arguments) == message
    for chunks in chunkings(arguments):
        assert decode(chunks) == message


@pytest.mark.parametrize(("arguments", "message"), BROKEN + OTHER)
def test_the_decoded_text_is_a_prefix_of_the_message_at_every_chunking(
    arguments: str, message: str
) -> None:
    assert extract_message(arguments) == message
    for chunks in chunkings(arguments):
        assert message.startswith(decode(chunks))


@pytest.mark.parametrize(
    ("arguments", "message"), [case for case in BROKEN if "message" in case[0]]
)
def test_broken_arguments_give_the_same_text_at_every_chunking(
    arguments: str, message: str
) -> None:
    at_once = decode([arguments])
    assert at_once in {message, ""}
    for chunks in chunkings(arguments):
        assert decode(chunks) == at_once


@settings(deadline=None)
@given(
    st.dictionaries(st.sampled_from(["a", "message", "é\n"]), st.text()), st.booleans(), st.data()
)
def test_any_string_message_is_decoded_unchanged(
    arguments: dict[str, str], ascii_only: bool, data: st.DataObject
) -> None:
    arguments = {"first": "x", **arguments, "message": data.draw(st.text())}
    text = stdlib_json.dumps(arguments, ensure_ascii=ascii_only)
    cut = data.draw(st.integers(0, len(text)))
    assert decode([text]) == decode([text[:cut], text[cut:]]) == arguments["message"]
    assert extract_message(text) == arguments["message"]


@settings(deadline=None)
@given(
    st.lists(
        st.sampled_from(['"', "'", "{", "}", "[", ":", ",", "\\", "u", "d83d", " ", "message"])
    )
)
def test_the_decoded_text_is_a_prefix_of_the_message_for_any_input(pieces: list[str]) -> None:
    for start in ("", '{"message": "', "{"):
        text = start + "".join(pieces)
        message = extract_message(text)
        assert message.startswith(decode([start, *pieces]))
        assert decode([start, *pieces]) == decode(text)


@settings(deadline=None)
@given(st.text())
def test_incomplete_arguments_are_decoded_to_a_prefix_of_the_message(message: str) -> None:
    text = json.dump_text({"message": message})
    for cut in range(len(text)):
        assert message.startswith(decode([text[:cut]]).rstrip(REPLACED))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(None, ""), ({"message": "a"}, "a"), (["a"], '["a"]'), (True, "true"), ({"m": "a"}, "a")],
)
def test_the_message_of_parsed_arguments_is_extracted(arguments: JsonValue, message: str) -> None:
    assert extract_message(arguments) == message


@pytest.mark.parametrize("arguments", ['{"', '{"m', ' { "message', '{"message"', '{"message": '])
def test_arguments_that_end_before_the_message_give_an_empty_message(arguments: str) -> None:
    """The simulation (seed 1577) found that a client received `{"m` after the deadline."""
    assert extract_message(arguments) == ""


def test_a_character_is_emitted_as_soon_as_it_is_certain() -> None:
    decoder = MessageDecoder()
    fragments = ['{"mess', 'age": "', "He", "llo\\", "n", "\\ud83d", "\\ude00", "!", '"', "}"]
    pieces = [decoder.feed(fragment) for fragment in fragments]
    assert pieces == ["", "", "He", "llo", "\n", "", "😀", "!", "", ""]
    assert decoder.has_begun
    assert decoder.feed("more") == ""


def test_the_respond_tool_is_the_same_for_every_request() -> None:
    tool = make_respond_tool(())
    assert tool == make_respond_tool(("get_weather",))
    source = json.parse(tool.source)
    assert source == {
        "type": "function",
        "function": {
            "name": "respond",
            "description": "Answer the user in words. Call this when no other tool is needed, "
            "or once you know the answer.",
            "parameters": tool.parameters,
        },
    }
    assert tool.parameters == {
        "type": "object",
        "properties": {"message": {"type": "string", "description": "The complete answer."}},
        "required": ["message"],
        "additionalProperties": False,
    }


def test_the_respond_tool_gets_a_name_that_no_client_tool_has() -> None:
    names: tuple[str, ...] = ("respond",)
    for name in ("respond_to_user", "respond_2", "respond_3"):
        assert make_respond_tool(names).name == name
        names += (name,)


@pytest.mark.parametrize(
    ("start", "unit"),
    mostly_deep(
        [
            ('{"message": "', "ab"),
            ('{"message": "', "\\n"),
            ('{"message": "', '" '),
            ('{"message": "', '{"a": "b"} '),
            ('{"message": "{"', '"} '),
            ('{"message": "a"', " "),
            ('{"x": ', "[{"),
            ("{", "ab"),
            ("Hello", " you"),
        ]
    ),
)
def test_decoding_a_message_takes_linear_time(start: str, unit: str) -> None:
    def seconds(count: int) -> float:
        begin = time.process_time()
        decode([start, *[unit] * count])
        return time.process_time() - begin

    # The measurements alternate, so that a slow machine affects both.
    few, many = zip(*((seconds(2_000), seconds(8_000)) for _ in range(5)), strict=True)
    assert min(many) / min(few) < 9  # quadratic work gives 16
