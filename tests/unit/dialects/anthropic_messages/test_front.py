import pytest
from anthropic.types import ModelInfo

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.replies import ReplyEvent, ReplyFinished, ReplyStarted, TextDelta
from proxy.dialects.anthropic_messages.front import MessagesCatalogue, MessagesFront
from proxy.dialects.front import (
    Answering,
    Decoded,
    Front,
    IdsAndClock,
    ListedModel,
    Page,
    Problem,
    Sender,
)
from proxy.errors import InvalidRequest
from proxy.facts import Omitted
from tests.unit.dialects.anthropic_messages.conversations import PICTURE, TOOLS, body

CATALOGUE = MessagesCatalogue()
MODELS = [ListedModel(name, 8192, {"created": 1700000000}) for name in "abcde"]


def ids(page: JsonObject) -> list[object]:
    listed = page["data"]
    assert isinstance(listed, list)
    return [one["id"] for one in listed if isinstance(one, dict)]


def test_a_model_is_what_the_sdk_reads() -> None:
    described = CATALOGUE.model(MODELS[0])
    assert described == {
        "type": "model",
        "id": "a",
        "display_name": "a",
        "created_at": "2023-11-14T22:13:20Z",
        "max_input_tokens": 8192,
        "max_tokens": 8192,
        "lifecycle": "active",
    }
    assert ModelInfo.model_validate(described).created_at.timestamp() == 1700000000


def test_what_nobody_knows_of_a_model_is_null_and_its_birth_the_epoch() -> None:
    described = CATALOGUE.model(ListedModel("a"))
    assert described["created_at"] == "1970-01-01T00:00:00Z"
    assert described["max_input_tokens"] is described["max_tokens"] is None


@pytest.mark.parametrize(
    ("limit", "after", "before", "listed", "has_more"),
    [
        (None, "", "", "abcde", False),
        (1_000_000, "", "", "abcde", False),
        (2, "", "", "ab", True),
        (0, "", "", "a", True),
        (2, "b", "", "cd", True),
        (2, "c", "", "de", False),
        (2, "e", "", "", False),
        (2, "", "e", "cd", True),
        (9, "", "c", "ab", False),
        (9, "b", "c", "cde", False),
        (9, "gone", "gone", "abcde", False),
    ],
)
def test_the_list_comes_in_pages(
    limit: int | None, after: str, before: str, listed: str, has_more: bool
) -> None:
    page = CATALOGUE.models(MODELS, Page(limit, after, before))
    assert ids(page) == [*listed]
    assert page["has_more"] is has_more
    ends = (listed[0], listed[-1]) if listed else (None, None)
    assert (page["first_id"], page["last_id"]) == ends


def test_there_may_be_no_model() -> None:
    nothing = {"data": [], "has_more": False, "first_id": None, "last_id": None}
    assert CATALOGUE.models([], Page()) == nothing


HI: JsonObject = {"role": "user", "content": "Hi"}
FRONT = MessagesFront(IdsAndClock(now=lambda: 0.0, token=lambda: "abc"))
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


def test_an_answer_to_nobodys_model_tells_which_it_was() -> None:
    request = json.dump({"messages": [HI], "max_tokens": 9})
    answering = FRONT.decode(request, SENDER).answering
    assert whole(answering, ReplyStarted("c1", 0, "local"))["model"] == "local"
    assert whole(answering, TextDelta("a"))["model"] == ""


def test_a_prompt_that_is_only_to_be_read_is_answered_with_nothing() -> None:
    message = whole(decoded(max_tokens=0).answering, TextDelta("a"), ReplyFinished("length"))
    assert (message["content"], message["stop_reason"]) == ([], "max_tokens")


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
    assert FRONT.counted(17) == b'{"input_tokens":17}'
