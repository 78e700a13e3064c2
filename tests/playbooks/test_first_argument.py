"""Tests after which backend chunk the first byte of a call's arguments is sent, in each dialect.

A byte is sent with the chunk that makes its value certain. The tests count chunks, not seconds.
"""

import pytest

from proxy.backends.openai_compatible import ChatReplyDecoder
from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.replies import ReplyEvent
from proxy.dialects.anthropic_messages.dialect import MessagesDialect
from proxy.dialects.dialect import Client, Decoded, IdsAndClock
from proxy.dialects.lenient_json import as_text, member
from proxy.dialects.openai_chat.dialect import ChatDialect
from proxy.dialects.openai_chat.replies import ReplyPart, StreamedError
from proxy.dialects.openai_responses.dialect import ResponsesDialect
from proxy.dialects.sse import EventDecoder, encode_data
from proxy.inference.plan import Policy
from tests.fakes.playbook import CountedIds, prepare

SCHEMA: JsonObject = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "days": {"type": "integer"},
        "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
        "where": {"type": "object", "properties": {"name": {"type": "string"}}},
        "tags": {"type": "array", "items": {"type": "string"}},
        "exact": {"type": "boolean"},
    },
}
STAMP = IdsAndClock(lambda: 0.0, lambda: "0" * 24)


def _chat() -> Decoded:
    function: JsonObject = {"name": "get_weather", "parameters": SCHEMA}
    tool: JsonObject = {"type": "function", "function": function}
    body: JsonObject = {"messages": [{"role": "user", "content": "Hi"}], "tools": [tool]}
    return ChatDialect(STAMP).decode(json.dump({"model": "m", "stream": True, **body}), Client())


def _messages() -> Decoded:
    tool: JsonObject = {"name": "get_weather", "input_schema": SCHEMA}
    body: JsonObject = {"messages": [{"role": "user", "content": "Hi"}], "tools": [tool]}
    sent = json.dump({"model": "m", "stream": True, "max_tokens": 99, **body})
    return MessagesDialect(STAMP).decode(sent, Client())


def _responses() -> Decoded:
    tool: JsonObject = {"type": "function", "name": "get_weather", "parameters": SCHEMA}
    body: JsonObject = {"input": "Hi", "tools": [tool]}
    sent = json.dump({"model": "m", "stream": True, **body})
    return ResponsesDialect(STAMP, None).decode(sent, Client())


# the path of the arguments in an event of each dialect
_PATHS: dict[str, tuple[str | int, ...]] = {
    "chat": ("choices", 0, "delta", "tool_calls", 0, "function", "arguments"),
    "messages": ("delta", "partial_json"),
    "responses": ("delta",),
}
DIALECTS = {"chat": _chat, "messages": _messages, "responses": _responses}


def _arguments(dialect: str, event: JsonValue) -> str:
    kind = as_text(member(event, "type"))
    is_unrelated = kind.startswith("response.") and not kind.endswith("arguments.delta")
    return "" if is_unrelated else as_text(member(event, *_PATHS[dialect]))


def _chunks(tokens: list[str]) -> list[bytes]:
    """Return the chunks of a call from llama-server: its name, and then each token of arguments."""
    call: JsonObject = {"id": "c", "type": "function", "function": {"name": "get_weather"}}
    more: list[JsonObject] = [{"function": {"arguments": token}} for token in tokens]
    deltas: list[JsonObject] = [{"tool_calls": [{"index": 0, **delta}]} for delta in (call, *more)]
    choices: list[JsonObject] = [{"index": 0, "delta": delta} for delta in deltas]
    choices.append({"index": 0, "delta": {}, "finish_reason": "tool_calls"})
    return [encode_data(json.dump({"id": "r", "choices": [choice]})) for choice in choices]


def _arguments_after_each_token(dialect: str, tokens: list[str]) -> list[str]:
    """Return the argument text that is sent after each token, and at the end of the reply."""
    decoded = DIALECTS[dialect]()
    turn = prepare(decoded.request, Policy(), CountedIds())
    turn.next_request()
    decoder, client, encoder = ChatReplyDecoder(), EventDecoder(), decoded.answering.begin(None)
    sent: list[str] = []
    for chunk in (*_chunks(tokens), b""):
        parts: list[ReplyPart] = []
        shown: list[ReplyEvent] = []
        decoder.feed(chunk, parts) if chunk else decoder.finish(parts)
        turn.receive_all([part for part in parts if not isinstance(part, StreamedError)], shown)
        lines = [event.data for event in client.feed(encoder.encode_all(shown))]
        events_of = [json.parse(line) for line in lines if line.startswith("{")]
        sent.append("".join(_arguments(dialect, event) for event in events_of))
    return [*sent[1 : len(tokens) + 1], "".join(sent[len(tokens) + 1 :])]


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(
    ("tokens", "certain", "first"),
    [
        # A property without an enum accepts any string, so characters are sent as they arrive.
        (['{"', "city", '":', ' "', "Par", "is", '"}'], 3, '{"city": "'),
        (['{"', "city", '":', ' "Par', "is", '"}'], 3, '{"city": "Par'),
        (['{"', "note", '":"', "Hi", '","', "city", '":"x"}'], 2, '{"note":"'),
        # A number may get more digits, so it is sent with the first character after it.
        (['{"', "days", '":', " 1", "2", ",", ' "city": "x"}'], 5, '{"days": 12'),
        (['{"', "days", '":', "12", "}"], 4, '{"days":12'),
        # A string with an enum is sent once it is complete and the character after it arrived.
        (['{"unit": "', "cel", "sius", '"', ",", ' "city": "x"}'], 4, '{"unit": "celsius"'),
        (['{"unit": "celsius"', "}"], 1, '{"unit": "celsius"'),
        (['{"exact":', " true", "}"], 2, '{"exact": true'),
        # An object or array is checked when it is complete.
        (['{"where": {', '"name": ', '"x"', "}", "}"], 4, '{"where": {"name": "x"}'),
        (
            ['{"tags": [', '"a', '", "b"', "]", ', "city": "x"}'],
            4,
            '{"tags": ["a", "b"], "city": "x',
        ),
        # A call without arguments is sent at the end of the reply.
        (["{", "}"], 2, "{}"),
    ],
)
def test_first_byte_is_sent_once_its_value_is_certain(
    dialect: str, tokens: list[str], certain: int, first: str
) -> None:
    sent = _arguments_after_each_token(dialect, tokens)
    assert sent[: certain + 1] == [*[""] * certain, first]
    assert "".join(sent) == "".join(tokens)
    if '"city"' in "".join(tokens[:certain]):  # a string grows with each of its tokens
        assert sent[certain + 1 : -2] == tokens[certain + 1 : -1]
