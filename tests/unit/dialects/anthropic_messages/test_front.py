import pytest

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.replies import ReplyEvent, ReplyFinished, ReplyStarted, TextDelta
from proxy.dialects.front import Answering, Decoded, Front, Problem, Sender
from proxy.errors import InvalidRequest
from proxy.facts import Omitted
from tests.unit.dialects.anthropic_messages.conversations import FRONT, PICTURE, TOOLS, body

HI: JsonObject = {"role": "user", "content": "Hi"}
SENDER = Sender(request_id="req_1")


def decoded(headers: dict[str, str] | None = None, **members: JsonValue) -> Decoded:
    return FRONT.decode(body([HI], **members), Sender("", headers or {}, "req_1"))


def whole(answering: Answering, *events: ReplyEvent) -> JsonObject:
    builder = answering.builder(events[0])
    for event in events:
        builder.add(event)
    message = json.parse(builder.build())
    assert isinstance(message, dict)
    return message


def test_it_is_a_front_end() -> None:
    front: Front = FRONT
    assert front.name == "messages"
    assert front.schemas().request["title"] == "MessagesRequest"


def test_a_request_is_read_with_what_was_left_out() -> None:
    unknown: JsonObject = {"role": "user", "content": [{"type": "brand_new"}]}
    read = FRONT.decode(body([HI, unknown]), SENDER)
    assert [message.text for message in read.request.messages] == ["Hi", ""]
    assert read.facts == (Omitted("unknown_block"),)
    assert read.compaction is None


def test_only_who_has_sent_pictures_may_hear_that_the_model_sees_none() -> None:
    quoting: JsonObject = {"role": "user", "content": '{"type":"image_url","image_url":{}}'}
    seen: JsonObject = {"role": "user", "content": [PICTURE]}
    assert FRONT.decode(body([HI, quoting]), SENDER).blindness == ""
    blindness = FRONT.decode(body([HI, seen]), SENDER).blindness
    assert blindness.startswith("capability_rejected: image_block (")


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
    assert decoded(headers, **members).accepts_prose is accepts


def test_an_answer_is_named_here_and_its_model_as_the_client_named_it() -> None:
    answering = decoded(context_management={"edits": []}).answering
    message = whole(answering, ReplyStarted("c1", 0, "local"), ReplyFinished("stop"))
    assert (message["id"], message["model"]) == ("msg_abc", "m")
    assert message["context_management"] == {"applied_edits": []}
    assert answering.new_call_id() == "toolu_abc"
    assert "context_management" not in whole(decoded().answering, ReplyFinished("stop"))


def test_an_answer_to_nobodys_model_tells_which_it_was() -> None:
    request = json.dump({"messages": [HI], "max_tokens": 9})
    answering = FRONT.decode(request, SENDER).answering
    assert whole(answering, ReplyStarted("c1", 0, "local"))["model"] == "local"
    assert whole(answering, TextDelta("a"))["model"] == ""


def test_a_prompt_that_is_only_to_be_read_is_answered_with_nothing() -> None:
    message = whole(decoded(max_tokens=0).answering, TextDelta("a"), ReplyFinished("length"))
    assert (message["content"], message["stop_reason"]) == ([], "max_tokens")
    message = whole(decoded(max_tokens=1).answering, TextDelta("a"), ReplyFinished("length"))
    assert message["content"] == [{"type": "text", "text": "a"}]


def test_a_stream_ends_well_or_with_an_error() -> None:
    stream = decoded().answering.begin(None)
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
    answered = decoded(tools=TOOLS, system="Be kind.").request
    assert (counted.messages, counted.tools) == (answered.messages, answered.tools)
    assert FRONT.encode_count(17) == b'{"input_tokens":17}'
