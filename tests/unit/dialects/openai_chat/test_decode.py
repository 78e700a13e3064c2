import pytest

from proxy.conversation import json
from proxy.conversation.json import JsonObject
from proxy.conversation.messages import Message
from proxy.conversation.tools import ToolUse
from proxy.dialects.openai_chat.decode import (
    decode_messages,
    decode_request,
    read_choice,
)
from proxy.errors import InvalidRequest
from tests.fakes.arrivals import is_linear

USER: JsonObject = {"role": "user", "content": "Hello"}


def problem(body: bytes) -> str:
    with pytest.raises(InvalidRequest) as caught:
        decode_request(body)
    return str(caught.value)


def test_a_request_keeps_the_bytes_and_order_of_every_member() -> None:
    body = (
        b' {"temperature" : 1.50,"messages":[ {"content":"\\u00fc","role":"user" } ,\n'
        b'{"role":"assistant","content":null}],"x":{"b":1,  "a":[]},"m\\u006fdel":"m"}\n'
    )
    read = decode_request(body)

    assert list(read.fields.items()) == [
        ("temperature", b"1.50"),
        (
            "messages",
            b'[ {"content":"\\u00fc","role":"user" } ,\n{"role":"assistant","content":null}]',
        ),
        ("x", b'{"b":1,  "a":[]}'),
        ("model", b'"m"'),
    ]
    assert read.messages == (
        Message("user", "ü", b'{"content":"\\u00fc","role":"user" }'),
        Message("assistant", "", b'{"role":"assistant","content":null}'),
    )
    assert read.model == "m"


def test_decoding_takes_time_linear_in_the_history() -> None:
    def body(size: int) -> str:
        return json.dump_text({"messages": [{**USER, "n": n} for n in range(size)]})

    assert is_linear(lambda text: decode_request(text.encode()), body, 4_000)


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (b"", "body: Expected a JSON object, got nothing."),
        (b" \n", "body: Expected a JSON object, got nothing."),
        (b"[]", "body: Expected a JSON object, got an array."),
        (b"5", "body: Expected a JSON object, got a number."),
        (b"null", "body: Expected a JSON object, got null."),
        (b'{\n"a":}', "body: This is not valid JSON: expected value at line 2 column 5."),
        (
            b'{"a":1,"a":2}',
            'body: This is not valid JSON: Detected duplicate key "a" at line 1 column 12.',
        ),
        (b'{"a":NaN}', "body: This is not valid JSON: expected value at line 1 column 6."),
        (
            b'{"a":"\xff"}',
            "body: This is not valid JSON: invalid unicode code point at line 1 column 7.",
        ),
        (
            b"[" * 300,
            "body: This is not valid JSON: recursion limit exceeded at line 1 column 202.",
        ),
        (b"{}", "messages: This field is required, but missing."),
    ],
)
def test_the_error_for_an_invalid_request_body_explains_the_problem(
    body: bytes, sentence: str
) -> None:
    assert problem(body) == sentence


def test_messages_can_be_decoded_without_a_request() -> None:
    source = b'{ "role":"user", "content":"Hi" }'
    assert decode_messages([source]) == (Message("user", "Hi", source),)
    assert decode_messages([]) == ()
    with pytest.raises(InvalidRequest):
        decode_messages([b'{"content":"Hi"}'])


def test_without_tools_a_required_tool_choice_is_refused() -> None:
    assert read_choice(None, ()) == (ToolUse.AUTO, None)
    with pytest.raises(InvalidRequest, match="`tools` is empty"):
        read_choice("required", ())
