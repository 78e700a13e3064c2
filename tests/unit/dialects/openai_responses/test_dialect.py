"""Tests for decoding requests. The folder `captures` has shortened requests of Codex 0.169.0."""

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.replies import (
    ReasoningDelta,
    ReplyEvent,
    ReplyFinished,
    ReplyStarted,
    TextDelta,
)
from proxy.conversation.tools import ToolUse
from proxy.dialects.dialect import Decoded
from proxy.dialects.lenient_json import as_list, member
from proxy.dialects.openai_chat.decode import decode_request as decode_chat
from proxy.dialects.openai_responses.dialect import Inputs, add_ids, read_inputs
from proxy.dialects.openai_responses.store import ResponseStore, StoredResponse
from proxy.dialects.raw_json import nodes_in
from proxy.errors import InvalidRequest, PreviousResponseUnknown
from proxy.facts import Omitted
from tests.examples import examples
from tests.fakes.arrivals import is_linear
from tests.fakes.mutations import mutated
from tests.fakes.responses import OWNER, call, decode, make_dialect, make_store, result, tool, user

EARLIER = StoredResponse("resp_1", [b'{"id":"a","role":"user"}'], [b'{"id":"b"}'], b"{}")


def read(store: ResponseStore | None, **fields: JsonValue) -> Inputs:
    return read_inputs(nodes_in(fields, json.dump(fields)), store, "me")


def stored() -> ResponseStore:
    store = make_store()
    store.keep("me", EARLIER)
    return store


def test_a_string_input_is_read_as_one_user_message() -> None:
    inputs = read(None, input="Hi")
    assert inputs.sent == [b'{"type":"message","role":"user","content":"Hi"}']
    assert [node.source for node in inputs.items] == inputs.sent


def test_an_input_item_keeps_its_bytes() -> None:
    assert read(None, input=[{"role": "user"}]).sent == [b'{"role":"user"}']


def test_items_of_the_previous_response_come_first_and_are_not_stored_again() -> None:
    inputs = read(stored(), input=[{"role": "user"}], previous_response_id="resp_1")
    assert [node.source for node in inputs.items] == [*EARLIER.items, *inputs.sent]
    assert inputs.items[1].path == "previous_response_id.1"
    assert read(stored(), previous_response_id="resp_1").sent == []


def test_an_item_reference_is_replaced_by_the_stored_item() -> None:
    assert read(stored(), input=[{"type": "item_reference", "id": "b"}]).sent == [b'{"id":"b"}']


@pytest.mark.parametrize(
    "reference", [{"type": "item_reference", "id": "x"}, {"type": "item_reference"}]
)
@pytest.mark.parametrize("has_store", [True, False])
def test_an_item_reference_to_a_missing_item_is_an_error(
    reference: JsonObject, has_store: bool
) -> None:
    with pytest.raises(InvalidRequest, match="`store: false`") as caught:
        read(stored() if has_store else None, input=[reference])
    assert caught.value.param == "input.0.id"


@pytest.mark.parametrize("store", [None, stored()])
def test_an_unknown_previous_response_raises_previous_response_unknown(
    store: ResponseStore | None,
) -> None:
    with pytest.raises(PreviousResponseUnknown) as caught:
        read(store, input="Hi", previous_response_id="resp_2")
    assert caught.value.param == "previous_response_id"
    assert caught.value.response_id == "resp_2"


@pytest.mark.parametrize("fields", [{}, {"input": []}, {"input": None}])
def test_a_request_with_neither_input_nor_instructions_is_refused(fields: JsonObject) -> None:
    with pytest.raises(InvalidRequest) as caught:
        read(None, **fields)
    assert caught.value.param == "input"
    assert read(None, **fields, instructions="Be brief.").items == []


def test_add_ids_gives_an_id_to_each_item_without_an_id() -> None:
    items = [b'{"a": 1}', b'{"id": "x"}', b'{"id": null}']
    assert [json.parse(item) for item in add_ids(items, "resp_7")] == [
        {"a": 1, "id": "item_7_0"},
        {"id": "x"},
        {"id": "item_7_2"},
    ]


CAPTURES = Path(__file__).parent / "captures"
LOOP = [f"codex_{number}" for number in (1, 2, 3, 4)]
ROWS = ("messages", "tools")


def fields(**body: JsonValue) -> JsonObject:
    return {name: json.parse(raw) for name, raw in decode(**body).request.fields.items()}


def test_a_request_is_converted_to_an_equivalent_chat_request() -> None:
    items: JsonValue = [user("Hi"), call("f", "1", '{"a": 1}'), result("r", "1"), user("And?")]
    form: JsonObject = {"type": "json_schema", "name": "n", "schema": {"type": "array"}}
    read = decode(
        input=items,
        tools=[tool("f")],
        tool_choice="required",
        text={"format": form},
        stream=True,
        max_output_tokens=7,
    ).request
    chat = decode_chat(json.join_object(dict(read.fields)))
    assert chat.messages == read.messages
    assert chat.tools == read.tools
    for name in ("model", "tool_choice", "stream", "max_tokens", "answer_schema"):
        assert getattr(chat, name) == getattr(read, name)


def test_a_previous_response_id_gives_the_same_bytes_as_its_items() -> None:
    store = make_store()
    proxy = make_dialect(store)
    first = proxy.decode(json.dump({"model": "m", "input": "Hi"}), OWNER)
    builder = first.answering.builder(None)
    answer = json.parse(builder.build())
    assert isinstance(answer, dict)
    later: list[JsonValue] = [user("And?")]
    output = answer["output"]
    assert isinstance(output, list)
    whole: list[JsonValue] = [user("Hi"), *output, *later]
    chained = decode(store, input=later, previous_response_id=answer["id"]).request
    assert chained.messages == decode(input=whole).request.messages
    assert chained.fields["messages"] == decode(input=whole).request.fields["messages"]


def captured(name: str) -> Decoded:
    return make_dialect().decode((CAPTURES / f"{name}.json").read_bytes(), OWNER)


def write_capture(fields: dict[str, bytes]) -> bytes:
    """Write a request as in `captures`, with one line for each message and each tool."""
    rows = {
        name: b"[\n" + b",\n".join(json.split_array(raw)) + b"\n]" if name in ROWS else raw
        for name, raw in fields.items()
    }
    return (
        b"{\n" + b",\n".join(json.dump(name) + b":" + raw for name, raw in rows.items()) + b"\n}\n"
    )


@pytest.mark.parametrize("name", LOOP)
def test_codex_requests_are_converted_to_the_captured_bytes(name: str) -> None:
    rows = write_capture({**captured(name).request.fields})
    assert rows == (CAPTURES / f"{name}.chat.json").read_bytes()


def test_each_request_of_an_agent_loop_begins_with_the_messages_of_the_previous_request() -> None:
    """The requests of an agent loop: a command, a patch, and a search that adds two tools."""
    loop = [captured(name).request for name in LOOP]
    for earlier, later in pairwise(loop):
        assert later.messages[: len(earlier.messages)] == earlier.messages
        assert later.tools[: len(earlier.tools)] == earlier.tools
    assert len(loop[-1].tools) == len(loop[0].tools) + 2
    assert all(captured(name).facts == (Omitted("web_search"),) for name in LOOP)


ANYTHING: st.SearchStrategy[JsonValue] = st.sampled_from(
    (None, True, 0, -1.5, "", "x", [], [None], {}, {"type": "x"}, [{"type": "input_text"}])
)


MUTATED = mutated((CAPTURES / "codex_4.json").read_bytes(), ANYTHING)


@settings(max_examples=examples(300))
@given(MUTATED)
def test_an_error_for_a_mutated_request_names_a_field(document: bytes) -> None:
    try:
        make_dialect().decode(document, OWNER)
    except InvalidRequest as refused:
        assert refused.param  # noqa: PT017 - most mutated requests are valid


def test_decoding_takes_linear_time() -> None:
    def body(count: int) -> str:
        items: list[JsonValue] = [user("Hi " * 50)]
        for number in range(count):
            items += [call("f", f"{number}", '{"a": 1}'), result("r" * 200, f"{number}")]
        return json.dump_text({"input": items, "tools": [tool("f")]})

    assert is_linear(lambda text: make_dialect().decode(text.encode(), OWNER), body, 500)


@pytest.mark.parametrize("sent", [5, True, {"role": "user", "content": "Hi"}])
def test_an_input_that_is_not_a_string_or_an_array_is_an_error(sent: JsonValue) -> None:
    with pytest.raises(InvalidRequest, match="Send a string, or an array of items") as refused:
        read(None, input=sent)
    assert refused.value.param == "input"


def answer_compaction(*, stream: bool) -> tuple[Decoded, JsonObject]:
    """Answer a compaction request; return the decoded request and the item with the summary."""
    request = decode(
        input=[{"role": "user", "content": "Read both."}, {"type": "compaction_trigger"}],
        tools=[tool("f")],
        tool_choice="required",
    )
    parts = (ReasoningDelta("Hm."), TextDelta("Two files "), TextDelta("were read."))
    events: list[ReplyEvent] = [ReplyStarted(), *parts, ReplyFinished("stop")]
    if stream:
        encoder = request.answering.begin(events[0])
        body = b"".join(encoder.encode_all([event]) for event in events) + encoder.end()
        assert b"output_text" not in body
        assert body.count(b"event: response.output_item.done\n") == 1
        whole = member(json.parse(body.rpartition(b"data: ")[2]), "response")
    else:
        builder = request.answering.builder(events[0])
        for event in events:
            builder.add(event)
        whole = json.parse(builder.build())
    (item,) = as_list(member(whole, "output"))
    assert isinstance(item, dict)
    return request, item


@pytest.mark.parametrize("stream", [True, False])
def test_a_compaction_trigger_is_answered_with_a_reusable_summary(*, stream: bool) -> None:
    request, item = answer_compaction(stream=stream)
    assert request.accepts_prose
    assert request.request.tool_choice is ToolUse.NONE
    assert [message.role for message in request.request.messages] == ["user", "user"]
    assert item["type"] == "compaction"
    later = decode(input=[item, {"role": "user", "content": "Go on."}]).request
    assert "Two files were read." in later.messages[0].text
    assert later.messages[0].role == "user"


@pytest.mark.parametrize("content", ["gAAA", "temper-summary1:%%%", "temper-summary1:/w=="])
def test_a_compaction_item_with_an_unreadable_summary_is_dropped(content: str) -> None:
    item: JsonObject = {"type": "compaction", "encrypted_content": content}
    read = decode(input=[item, {"role": "user", "content": "Go on."}])
    assert [message.text for message in read.request.messages] == ["Go on."]
    assert read.facts == (Omitted("compaction"),)
