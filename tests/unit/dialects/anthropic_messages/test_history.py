from itertools import count, pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.backends.affinity import conversation_key
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.messages import Message
from proxy.conversation.requests import Request
from proxy.dialects.foreign_history import write_arguments
from proxy.dialects.raw_json import Node
from proxy.guardrails.history_repair.history import replay_thoughts
from proxy.guardrails.transcript import list_completed_calls, rounds_since_user
from tests.examples import examples
from tests.unit.dialects.anthropic_messages.conversations import (
    MARK,
    TOOLS,
    body,
    decode_request,
    histories,
    rewritten,
    words,
)


def text(content: str) -> JsonObject:
    return {"type": "text", "text": content}


def test_the_input_of_a_call_keeps_its_bytes() -> None:
    assert write_arguments(Node({"a": 1.0}, b'{ "a":1.0 }', "")).text == '{ "a":1.0 }'
    assert write_arguments(None).text == "{}"


MARKS = count()


def decoded(messages: list[JsonObject], **members: JsonValue) -> Request:
    return decode_request(body(messages, **members)).request


def message_of(role: str, *blocks: JsonValue) -> JsonObject:
    return {"role": role, "content": [*blocks]}


@settings(max_examples=examples(40))
@given(histories(), words, st.data())
def test_equivalent_histories_become_the_same_bytes(
    messages: list[JsonObject], system: str, data: st.DataObject
) -> None:
    def choose() -> bool:
        return data.draw(st.booleans())

    plain = decoded(messages, system=system, tools=TOOLS)
    marked = [{**tool, "cache_control": MARK} for tool in TOOLS if isinstance(tool, dict)]
    other: JsonObject = {
        "system": [{**text(system), "cache_control": MARK}] if choose() else system,
        "tools": [*marked] if choose() else TOOLS,
    }
    if choose():
        other["cache_control"] = MARK
    again = decoded(rewritten(messages, choose), **other)
    assert again == plain
    assert again.fields == plain.fields


@settings(max_examples=examples(25))
@given(histories(), words)
def test_decoding_a_request_a_second_time_from_the_cache_gives_the_same_result(
    messages: list[JsonObject], system: str
) -> None:
    never_read: list[JsonObject] = [{**message, "mark": next(MARKS)} for message in messages]
    fields: JsonObject = {"system": system, "tools": TOOLS}
    first = decode_request(body(never_read, **fields))
    again = decode_request(body(never_read, **fields))
    assert (again.request, again.facts) == (first.request, first.facts)


@settings(max_examples=examples(40))
@given(histories(), words)
def test_the_messages_of_a_conversation_begin_with_those_of_each_earlier_request(
    messages: list[JsonObject], system: str
) -> None:
    roles = [message["role"] for message in messages]
    requests = [index for index, role in enumerate(roles) if role == "assistant"]
    turns = [
        index + 1 for index, (role, next_) in enumerate(pairwise(roles)) if role == "assistant"
    ]
    whole = decoded(messages, system=system, tools=TOOLS)
    for cut in {*requests, *turns}:
        part = decoded(messages[:cut], system=system, tools=TOOLS)
        assert whole.messages[: len(part.messages)] == part.messages
        assert whole.tools[: len(part.tools)] == part.tools


@settings(max_examples=examples(25))
@given(histories())
def test_system_text_after_a_result_changes_neither_rounds_nor_results(
    messages: list[JsonObject],
) -> None:
    def reminded(note: str) -> list[JsonObject]:
        results: list[JsonObject] = []
        for message in messages:
            if message["role"] != "system":
                results.append(message)
            content = message["content"]
            if isinstance(content, list) and any(
                isinstance(block, dict) and block["type"] == "tool_result" for block in content
            ):
                results.append(message_of("system", text(f"{note} {len(results)}")))
        return results

    with_notes, without = decoded(reminded("Left:")), decoded(reminded(""))
    plain = decoded([message for message in messages if message["role"] != "system"])
    assert conversation_key(with_notes, {}) == conversation_key(plain, {})
    for noted in (with_notes, without):
        assert rounds_since_user(noted.messages) == rounds_since_user(plain.messages)
        assert _results(noted.messages) == _results(plain.messages)
        assert _thinking(noted.messages) == _thinking(plain.messages)


def _results(messages: tuple[Message, ...]) -> list[tuple[str, bool, int]]:
    return [(call.name, call.has_failed, call.turn) for call in list_completed_calls(messages)]


def _thinking(messages: tuple[Message, ...]) -> list[bool]:
    return [b"reasoning" in message.source for message in replay_thoughts(messages, "last")]
