"""Checks every row of the wire tables; `wire_tables` describes the format."""

import pytest
from anthropic.types import Message
from ollama import ChatResponse, GenerateResponse
from openai.types.chat import ChatCompletion
from openai.types.responses import Response
from pydantic import BaseModel

from proxy.conversation import json
from proxy.dialects.anthropic_messages.upstream.decode import EventReader
from proxy.dialects.dialect import Client
from proxy.dialects.openai_chat.replies import ChunkDecoder, decode_error
from proxy.dialects.sse import Event
from proxy.errors import InvalidRequest
from tests.unit.dialects.wire_tables import (
    DIALECTS,
    PLAIN,
    TABLES,
    WRITERS,
    Row,
    answer_of,
    complete_body,
    events_of,
    read_table,
    result_of,
    upstream_request,
)

ROWS = [(table, row) for table in TABLES for row in read_table(table)]


@pytest.mark.parametrize(
    ("table", "row"), ROWS, ids=[f"{table}: {row.behavior}" for table, row in ROWS]
)
def test_converting_the_input_of_a_table_row_gives_the_result_of_the_row(
    table: str, row: Row
) -> None:
    assert result_of(table, row.sent) == row.result


# The body for each engine's plain request; a row shows only the differences from this body.
HI, HI_BLOCKS = b'"messages":[{"role":"user","content":"Hi"}]', b'[{"type":"text","text":"Hi"}]'
PLAIN_BODIES = {
    "chat": b'{"model":"m",%b,"stream":true,"stream_options":{"include_usage":true}}' % HI,
    "ollama": b'{"model":"m",%b,"stream":true,"truncate":false,"shift":false}' % HI,
    "messages": b'{"model":"m","max_tokens":4096,"stream":true,"messages":'
    b'[{"role":"user","content":%b}]}' % HI_BLOCKS,
    "messages_count": b'{"model":"m","messages":[{"role":"user","content":%b}]}' % HI_BLOCKS,
    "thinking": b"{}",
}


@pytest.mark.parametrize("engine", WRITERS)
def test_the_body_of_a_plain_request_has_only_required_fields(engine: str) -> None:
    assert WRITERS[engine](upstream_request("", {}), {}) == PLAIN_BODIES[engine]


@pytest.mark.parametrize(
    ("name", "members"),
    [
        ("chat", b""),
        ("messages", b',"max_tokens":100'),
        ("ollama", b',"stream":true'),
        ("ollama_text", b',"stream":true'),
        ("responses", b""),
    ],
)
def test_a_plain_request_becomes_a_plain_chat_completion_request(name: str, members: bytes) -> None:
    request = DIALECTS[name].decode(PLAIN[name], Client()).request
    assert json.join_object({**request.fields}) == b'{"model":"m",%b%b}' % (HI, members)


@pytest.mark.parametrize("name", DIALECTS)
@pytest.mark.parametrize(("body", "kind"), [(b"", "nothing"), (b"[]", "an array")])
def test_a_body_that_is_no_object_is_refused(name: str, body: bytes, kind: str) -> None:
    with pytest.raises(InvalidRequest, match=f"Expected a JSON object, got {kind}") as refused:
        DIALECTS[name].decode(body, Client())
    assert refused.value.param == "body"


PLAIN_ANSWERS = {
    "chat": b'{"id":"chatcmpl-abc","object":"chat.completion","created":7,"model":"m","choices":'
    b'[{"index":0,"message":{"role":"assistant","content":""},"finish_reason":"stop"}],'
    b'"usage":{"prompt_tokens":0,"completion_tokens":0,"total_tokens":0}}',
    "messages": b'{"id":"msg_abc","type":"message","role":"assistant","model":"m","content":[],'
    b'"stop_reason":"end_turn","stop_sequence":null,"stop_details":null,"usage":{"input_tokens":0,'
    b'"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"cache_creation":'
    b'{"ephemeral_5m_input_tokens":0,"ephemeral_1h_input_tokens":0},"output_tokens":0,'
    b'"service_tier":"standard"}}',
    "ollama": b'{"model":"m","created_at":"1970-01-01T00:00:07.000000Z","message":'
    b'{"role":"assistant","content":""},"done":true,"done_reason":"stop","total_duration":0,'
    b'"load_duration":0,"prompt_eval_duration":0,"eval_duration":0,"prompt_eval_count":0,'
    b'"eval_count":0}\n',
    "ollama_text": b'{"model":"m","created_at":"1970-01-01T00:00:07.000000Z","response":"",'
    b'"done":true,"done_reason":"stop","total_duration":0,"load_duration":0,'
    b'"prompt_eval_duration":0,"eval_duration":0,"prompt_eval_count":0,"eval_count":0}\n',
    "responses": b'{"id":"resp_abc","object":"response","created_at":7,"completed_at":7,"status":'
    b'"completed","error":null,"incomplete_details":null,"model":"m","output":[],"usage":'
    b'{"input_tokens":0,"input_tokens_details":{"cached_tokens":0,"cache_write_tokens":0},'
    b'"output_tokens":0,"output_tokens_details":{"reasoning_tokens":0},"total_tokens":0},'
    b'"store":false,"instructions":null,"tools":[],"tool_choice":"auto","parallel_tool_calls":true,'
    b'"temperature":null,"top_p":null,"max_output_tokens":null,"max_tool_calls":null,'
    b'"previous_response_id":null,"reasoning":{"effort":null,"summary":null},"text":{"format":'
    b'{"type":"text"}},"truncation":"disabled","metadata":{},"user":null,"prompt_cache_key":null,'
    b'"safety_identifier":null,"top_logprobs":0,"background":false,"service_tier":"default"}',
}


@pytest.mark.parametrize("name", DIALECTS)
def test_an_empty_answer_has_every_required_member(name: str) -> None:
    assert answer_of(name, PLAIN[name], []) == PLAIN_ANSWERS[name]


# The SDK's type of each answer. Two kinds of answers do not satisfy it: those that show calls which
# the server executed, and those with the engine's usage, which Temper forwards unchanged.
ANSWERS: dict[str, type[BaseModel]] = {
    "chat": ChatCompletion,
    "messages": Message,
    "ollama": ChatResponse,
    "ollama_text": GenerateResponse,
    "responses": Response,
}


@pytest.mark.parametrize("name", ANSWERS)
def test_answers_satisfy_the_types_of_the_sdk(name: str) -> None:
    for row in read_table(f"answer_{name}"):
        members, _, script = row.sent.partition(" | ")
        answer = answer_of(name, complete_body(PLAIN[name], members), events_of(script))
        if row.behavior not in ("calls that Temper executed", "usage with few members"):
            ANSWERS[name].model_validate_json(answer)


def test_every_table_has_rows() -> None:
    assert {table for table, _ in ROWS} == TABLES.keys()


@pytest.mark.parametrize("blank", ["", " ", "\n"])
def test_an_event_without_data_is_ignored(blank: str) -> None:
    assert ChunkDecoder().feed(blank) == EventReader().feed(Event(blank)) == []


@pytest.mark.parametrize(
    ("body", "message"), [(b"Not \xff Found\n", "Not \ufffd Found"), (b"", "")]
)
def test_an_error_body_that_is_not_json_becomes_the_message(body: bytes, message: str) -> None:
    assert decode_error(body) == {"message": message}
