from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.replies import ReplyEvent, ReplyFinished, ReplyStarted, TextDelta
from proxy.conversation.requests import UNSAID, ThinkingOptions, UpstreamRequest
from proxy.conversation.workflows import Workflow
from proxy.dialects.anthropic_messages.table import FIELDS
from proxy.dialects.dialect import Answering, Client, Decoded, Dialect, Problem
from proxy.dialects.field_table import Handling
from proxy.dialects.openai_chat.encode import encode_question
from proxy.errors import InvalidRequest
from proxy.facts import Omitted
from tests.examples import examples
from tests.fakes.arrivals import is_linear
from tests.fakes.mutations import mutated
from tests.unit.dialects.anthropic_messages.conversations import (
    FRONT,
    PICTURE,
    TOOLS,
    body,
    decode_request,
)

HI: JsonObject = {"role": "user", "content": "Hi"}
SENDER = Client(request_id="req_1")


def read(headers: dict[str, str] | None = None, **members: JsonValue) -> Decoded:
    return FRONT.decode(body([HI], **members), Client("", headers or {}, "req_1"))


def whole(answering: Answering, *events: ReplyEvent) -> JsonObject:
    builder = answering.builder(events[0])
    for event in events:
        builder.add(event)
    message = json.parse(builder.build())
    assert isinstance(message, dict)
    return message


def test_it_is_a_front_end() -> None:
    dialect: Dialect = FRONT
    assert dialect.name == "messages"
    assert dialect.schemas().request["title"] == "MessagesRequest"


def test_a_request_is_read_with_what_was_left_out() -> None:
    unknown: JsonObject = {"role": "user", "content": [{"type": "brand_new"}]}
    found = FRONT.decode(body([HI, unknown]), SENDER)
    assert [message.text for message in found.request.messages] == ["Hi", ""]
    assert found.facts == (Omitted("unknown_block"),)
    assert found.compaction is None


def test_only_who_has_sent_pictures_may_hear_that_the_model_sees_none() -> None:
    quoting: JsonObject = {"role": "user", "content": '{"type":"image_url","image_url":{}}'}
    seen: JsonObject = {"role": "user", "content": [PICTURE]}
    assert FRONT.decode(body([HI, quoting]), SENDER).image_error == ""
    image_error = FRONT.decode(body([HI, seen]), SENDER).image_error
    assert image_error.startswith("capability_rejected: image_block (")


@pytest.mark.parametrize(
    ("headers", "members", "accepts"),
    [
        ({}, {}, True),
        ({}, {"tools": TOOLS}, False),
        ({"x-claude-code-request-class": "main"}, {"tools": TOOLS}, False),
        ({"x-claude-code-request-class": "compaction"}, {"tools": TOOLS}, True),
    ],
)
def test_a_summary_and_what_offers_no_tools_is_answered_in_prose(
    headers: dict[str, str], members: dict[str, JsonValue], accepts: bool
) -> None:
    assert read(headers, **members).accepts_prose is accepts


def test_an_answer_is_named_here_and_its_model_as_the_client_named_it() -> None:
    answering = read(context_management={"edits": []}).answering
    message = whole(answering, ReplyStarted("c1", 0, "local"), ReplyFinished("stop"))
    assert (message["id"], message["model"]) == ("msg_abc", "m")
    assert message["context_management"] == {"applied_edits": []}
    assert answering.new_call_id() == "toolu_abc"
    assert "context_management" not in whole(read().answering, ReplyFinished("stop"))


def test_an_answer_to_nobodys_model_tells_which_it_was() -> None:
    request = json.dump({"messages": [HI], "max_tokens": 9})
    answering = FRONT.decode(request, SENDER).answering
    assert whole(answering, ReplyStarted("c1", 0, "local"))["model"] == "local"
    assert whole(answering, TextDelta("a"))["model"] == ""


def test_a_prompt_that_is_only_to_be_read_is_answered_with_nothing() -> None:
    message = whole(read(max_tokens=0).answering, TextDelta("a"), ReplyFinished("length"))
    assert (message["content"], message["stop_reason"]) == ([], "max_tokens")
    message = whole(read(max_tokens=1).answering, TextDelta("a"), ReplyFinished("length"))
    assert message["content"] == [{"type": "text", "text": "a"}]


def test_a_stream_ends_well_or_with_an_error() -> None:
    stream = read().answering.begin(None)
    stream.encode_all([ReplyStarted(), ReplyFinished("stop")])
    assert FRONT.is_complete(stream.comment("x") + stream.end())
    broken = stream.fail(Problem(500, "server_error", "No."))
    assert not FRONT.is_complete(broken)
    assert b'"request_id":"req_1"' in broken


def test_an_error_has_its_shape() -> None:
    reply = FRONT.error(Problem(404, "invalid_request_error", "No."), "req_1")
    assert b'"not_found_error"' in reply.body


def test_tokens_are_counted_of_the_same_prompt() -> None:
    document = json.dump({"model": "m", "messages": [HI], "tools": TOOLS, "system": "Be kind."})
    with pytest.raises(InvalidRequest):
        FRONT.decode(document, SENDER)
    counted = FRONT.decode_count(document, SENDER).request
    answered = read(tools=TOOLS, system="Be kind.").request
    assert (counted.messages, counted.tools) == (answered.messages, answered.tools)
    assert FRONT.encode_count(17) == b'{"input_tokens":17}'


CAPTURES = Path(__file__).parent / "captures"
ROWS = ("messages", "tools")
LOOK: JsonObject = {"name": "look", "input_schema": {"type": "object"}}
PLAIN: dict[str, JsonValue] = {"model": "m", "messages": [HI], "max_tokens": 100}


def decoded(**members: JsonValue) -> Decoded:
    return decode_request(body([HI], **members))


def fields(**members: JsonValue) -> dict[str, JsonValue]:
    return {name: json.parse(raw) for name, raw in decoded(**members).request.fields.items()}


def refused(document: bytes) -> str:
    with pytest.raises(InvalidRequest) as raised:
        decode_request(document)
    return str(raised.value)


@pytest.mark.parametrize(
    ("metadata", "session"),
    [
        ({"user_id": '{"device_id": "d", "session_id": "s1"}'}, "s1"),
        ({"user_id": '{"session_id": 5}'}, ""),
        ({"user_id": "[1]"}, ""),
        ({"user_id": "alice"}, ""),
        ({"user_id": None}, ""),
        ({}, ""),
        (None, ""),
    ],
)
def test_a_session_in_the_users_id_is_known_and_goes_nowhere(
    metadata: JsonValue, session: str
) -> None:
    assert decoded(metadata=metadata).request.session == session
    assert "metadata" not in fields(metadata=metadata)


def test_a_request_is_written_in_an_order_that_is_always_the_same() -> None:
    request = (
        b'{"stream":true,"top_k":4,"top_p":0.50,"temperature":1.0,"stop_sequences":[ "\\u00e4" ],'
        b'"tool_choice":{"type":"any","disable_parallel_tool_use":true},"thinking":{"type":'
        b'"disabled"},"output_config":{"format":{"type":"json_schema","schema":{ "type":"object"}}}'
        b',"tools":[{"name":"f"}],"messages":[{"role":"user","content":"Hi"}],"max_tokens":9,'
        b'"model":"\\u00e4"}'
    )
    read = decode_request(request).request
    assert json.join_object({**read.fields}) == (
        b'{"model":"\\u00e4","messages":[{"role":"user","content":"Hi"}],'
        b'"tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":"required",'
        b'"parallel_tool_calls":false,"max_tokens":9,"stream":true,"temperature":1.0,'
        b'"top_p":0.50,"top_k":4,"stop":[ "\\u00e4" ],"response_format":{"type":"json_schema",'
        b'"json_schema":{"name":"answer","schema":{ "type":"object"}}}}'
    )
    assert (read.model, read.stream, read.stop_strings) == ("ä", True, True)
    assert read.answer_schema == {"type": "object"}


def test_a_question_to_a_backend_is_made_of_it() -> None:
    request = decoded(tools=[LOOK]).request
    upstream_request = UpstreamRequest(
        request, request.messages, request.tools, request.tool_choice
    )
    assert json.parse(encode_question(upstream_request, {})) == {
        "model": "m",
        "messages": [HI],
        "tools": [
            {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
        ],
        "max_tokens": 100,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


@pytest.mark.parametrize(
    "name",
    [name for name, row in FIELDS.items() if row.handling is Handling.IGNORED] + ["brand_new"],
)
def test_what_is_ignored_leaves_no_trace(name: str) -> None:
    plain = decoded()
    members: dict[str, JsonValue] = {name: {"a": 1}}
    ignored = decoded(**members)
    assert ignored.request == plain.request
    assert (
        ignored.request.fields
        == plain.request.fields
        == {name: json.dump(value) for name, value in PLAIN.items()}
    )


@pytest.mark.parametrize(
    "name", [name for name, row in FIELDS.items() if row.handling is Handling.REFUSED]
)
def test_what_is_refused_is_refused_by_name_unless_it_asks_for_nothing(name: str) -> None:
    members: dict[str, JsonValue] = {name: {"a": 1}}
    assert refused(body([HI], **members)) == f"{name}: {FIELDS.remedy(name)}"
    nothing: list[JsonValue] = [None, [], {}]
    for one in nothing:
        assert decoded(**{name: one}).request == decoded().request


class TestTheLimit:
    @pytest.mark.parametrize(
        ("limit", "reserve"), [(1, None), (1_024, None), (1_025, 0), (32_000, 0), (128_000, 0)]
    )
    def test_of_a_long_answer_is_a_ceiling_that_takes_no_room(
        self, limit: int, reserve: int | None
    ) -> None:
        request = decoded(max_tokens=limit).request
        assert (request.max_tokens, request.answer_reserve) == (limit, reserve)
        assert request.fields["max_tokens"] == json.dump(limit)

    def test_of_nothing_lets_the_model_write_one_token_that_nobody_sees(self) -> None:
        warm = decoded(max_tokens=0)
        assert (warm.request.max_tokens, warm.request.fields["max_tokens"]) == (1, b"1")

    def test_is_required_but_where_tokens_are_counted(self) -> None:
        document = json.dump({"model": "m", "messages": [HI]})
        assert refused(document) == "max_tokens: Field required"
        counted = decode_request(document, is_count=True)
        assert counted.request.max_tokens is counted.request.answer_reserve is None
        assert counted.request.messages == decoded().request.messages


class TestThinking:
    @pytest.mark.parametrize("kind", ["adaptive", "between_tools", "brand_new"])
    def test_is_left_to_the_model(self, kind: str) -> None:
        assert decoded(thinking={"type": kind, "budget_tokens": 1024}).request.thinking == UNSAID

    @pytest.mark.parametrize(
        ("said", "thinking"),
        [
            ({"type": "enabled", "budget_tokens": 1024}, ThinkingOptions(is_on=True, budget=1024)),
            ({"type": "enabled"}, ThinkingOptions(is_on=True)),
            ({"type": "disabled", "budget_tokens": 1024}, ThinkingOptions(is_on=False)),
        ],
    )
    def test_is_switched_in_whatever_words_the_engine_has(
        self, said: JsonObject, thinking: ThinkingOptions
    ) -> None:
        assert decoded(thinking=said).request.thinking == thinking
        assert fields(thinking=said) == PLAIN

    def test_has_an_effort_that_does_not_switch_it(self) -> None:
        request = decoded(output_config={"effort": "max"}).request
        assert request.thinking == ThinkingOptions(effort="max")
        assert fields(output_config={"effort": "max"}) == PLAIN


FORM: JsonObject = {"type": "json_schema", "schema": {"type": "array"}}


class TestTheForm:
    @pytest.mark.parametrize(
        "members",
        [
            {"output_config": {"format": FORM, "effort": "high"}},
            {"output_format": FORM},
            {"output_config": {"format": FORM}, "output_format": {"type": "json_schema"}},
            {"output_config": {"effort": "low"}, "output_format": FORM},
        ],
    )
    def test_of_the_answer_has_an_old_and_a_new_name(self, members: dict[str, JsonValue]) -> None:
        assert decoded(**members).request.answer_schema == {"type": "array"}
        described = {"name": "answer", "schema": {"type": "array"}}
        form = {"type": "json_schema", "json_schema": described}
        assert fields(**members) == {**PLAIN, "response_format": form}

    def test_without_a_schema_is_any_object(self) -> None:
        members: dict[str, JsonValue] = {"output_format": {"type": "json_schema"}}
        assert decoded(**members).request.answer_schema == {"type": "object"}
        form = {"type": "json_schema", "json_schema": {"name": "answer"}}
        assert fields(**members)["response_format"] == form

    @pytest.mark.parametrize("config", [{"effort": "high"}, {"task_budget": {"total": 9}}, {}])
    def test_is_free_where_only_the_effort_is_told(self, config: JsonObject) -> None:
        assert fields(output_config=config) == PLAIN


def test_rules_of_order_are_read_as_in_chat() -> None:
    rules: JsonObject = {"workflow": {"required_steps": ["look"]}}
    request = decoded(tools=[LOOK], temper=rules).request
    assert request.workflow == Workflow(("look",))
    assert json.parse(request.fields["temper"]) == rules


def test_which_of_several_stop_sequences_ended_it_is_asked_for() -> None:
    assert decoded(stop_sequences=["a"]).request.wants_stop
    assert not decoded().request.wants_stop


def test_rounds_are_shown_to_who_asks_for_them() -> None:
    assert decoded(temper={"tool_rounds": True}).request.shows_rounds
    assert not decoded(temper={}).request.shows_rounds


def test_stop_sequences_may_be_none() -> None:
    assert fields(stop_sequences=[]) == fields(stop_sequences=[""]) == PLAIN
    assert fields(stop_sequences=["END"]) == {**PLAIN, "stop": ["END"]}


def test_a_model_need_not_be_named() -> None:
    request = decode_request(json.dump({"messages": [HI], "max_tokens": 9})).request
    assert request.model == ""
    assert "model" not in request.fields


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        (b"", "body: Expected a JSON object, got nothing."),
        (b"[]", "body: Expected a JSON object, got an array."),
        (b'{"max_tokens":1}', "messages: This member is required"),
        (b'{"messages":[],"max_tokens":1}', "messages: Expected at least 1 element"),
        (body([{"role": "tool"}]), "messages.0.role: Expected 'user', 'assistant' or 'system'"),
        (body([{"role": "user", "content": 5}]), "messages.0.content: Expected a string or an ar"),
        (body([{"role": "user", "content": [{}]}]), "messages.0.content.0.type: This member"),
        (body([HI], max_tokens=-1), "max_tokens: Expected a number of at least 0"),
        (body([HI], system=5), "system: Expected a string or an array of blocks"),
        (body([HI], stream="yes"), "stream: Expected true or false"),
        (body([HI], stop_sequences="a"), "stop_sequences: Expected an array"),
        (body([HI], thinking={}), "thinking.type: This member is required"),
        (body([HI], output_format={"type": "xml"}), "output_format.type: Expected 'json_schema'"),
        (body([HI], temper={"x": 1}), "temper.x: There is no such option."),
    ],
)
def test_what_is_wrong_is_named(document: bytes, problem: str) -> None:
    assert refused(document).startswith(problem)


class TestWhatClaudeCodeSends:
    """Requests of version 2.1.330, shortened: two loops of tools, one of them a tour of them."""

    @pytest.mark.parametrize("name", ["loop_1", "loop_2", "loop_3", "tour_1", "tour_2"])
    def test_is_written_as_it_always_was(self, name: str) -> None:
        request = decode_request((CAPTURES / f"{name}.json").read_bytes()).request
        stored = (CAPTURES / f"{name}.chat.json").read_bytes()
        members = json.split_object(stored)
        rows = {name: json.join_array(json.split_array(members.pop(name))) for name in ROWS}
        assert request.fields == {**members, **rows}
        assert [*request.fields] == [*json.split_object(stored)]

    @pytest.mark.parametrize(
        ("earlier", "later"), [("loop_1", "loop_2"), ("loop_2", "loop_3"), ("tour_1", "tour_2")]
    )
    def test_goes_on_where_it_stopped(self, earlier: str, later: str) -> None:
        first = decode_request((CAPTURES / f"{earlier}.json").read_bytes()).request
        second = decode_request((CAPTURES / f"{later}.json").read_bytes()).request
        assert second.messages[: len(first.messages)] == first.messages
        assert second.tools == first.tools


ANYTHING: st.SearchStrategy[JsonValue] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-1, 9),
    st.sampled_from(("", "text", "image", "document", "tool_use", "tool_result", "tool_reference")),
    st.builds(list[JsonValue]),
    st.builds(dict[str, JsonValue]),
)


MUTATED = st.one_of(
    *(mutated((CAPTURES / f"{name}.json").read_bytes(), ANYTHING) for name in ("loop_1", "tour_2"))
)


@settings(max_examples=examples(300))
@given(MUTATED)
def test_what_is_refused_of_a_request_is_named(document: bytes) -> None:
    try:
        decode_request(document)
    except InvalidRequest as refused:
        assert refused.param  # noqa: PT017 - most of them are read


@given(st.binary() | st.text().map(str.encode))
def test_nonsense_is_refused_and_no_accident(document: bytes) -> None:
    assert refused(document)


def test_a_long_history_takes_linear_time() -> None:
    def history(rounds: int) -> str:
        call: JsonObject = {"type": "tool_use", "id": "c", "name": "f", "input": {"a": "x" * 500}}
        result: JsonObject = {"type": "tool_result", "tool_use_id": "c", "content": "word " * 300}
        turn: list[JsonObject] = [
            {"role": "assistant", "content": [call]},
            {"role": "user", "content": [result]},
            {"role": "system", "content": "Mind the gap."},
        ]
        return body([HI, *turn * rounds]).decode()

    assert is_linear(lambda text: decode_request(text.encode()), history, 400)
