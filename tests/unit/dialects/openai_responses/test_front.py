import pytest

from proxy.conversation import json
from proxy.conversation.replies import ReplyEvent, ReplyFinished, ReplyStarted, TextDelta
from proxy.dialects.front import Front, Problem, Sender
from proxy.dialects.openai_responses.store import ResponseStore
from tests.fakes.responses import OWNER, decode, make_front, make_store, member, streamed, whole

HI: list[ReplyEvent] = [TextDelta("Hi"), ReplyFinished("stop")]


def test_it_is_a_front() -> None:
    front: Front = make_front()
    assert front.name == "responses"
    assert front.is_complete(b"event: response.completed\ndata: {}\n\n")
    assert not front.is_complete(b"data: [DONE]\n\n")


def test_a_request_is_counted_as_it_is_answered() -> None:
    front, body = make_front(), b'{"model":"m","input":"Hi"}'
    counted = front.decode_count(body, Sender()).request
    assert counted == front.decode(body, Sender()).request
    assert json.parse(front.encode_count(7)) == {
        "object": "response.input_tokens",
        "input_tokens": 7,
    }
    assert front.schemas().request["title"] == "ResponseRequest"


def test_the_tokens_of_a_prompt_are_told() -> None:
    assert make_front().encode_count(7) == b'{"object":"response.input_tokens","input_tokens":7}'


def test_errors_look_as_in_chat_completions() -> None:
    problem = Problem(400, "invalid_request_error", "No.", "c", "input", {"x-a": "b"}, {"n_ctx": 5})
    reply = make_front().error(problem, "req_1")
    assert (reply.status, reply.headers) == (400, {"x-a": "b"})
    assert json.parse(reply.body) == {
        "error": {
            "message": "No.",
            "type": "invalid_request_error",
            "param": "input",
            "code": "c",
            "n_ctx": 5,
        }
    }


def test_ids_are_made_of_tokens() -> None:
    answering = decode().answering
    assert answering.new_call_id() == "call_000000000000000000000001"
    answer = whole(decode(), HI)
    assert f"{answer['id']}".startswith("resp_")


@pytest.mark.parametrize(("asked", "model"), [("m", "m"), ("absent", "backend-model")])
def test_the_answer_names_the_model_that_was_asked_for(asked: str, model: str) -> None:
    decoded = decode(model=asked)
    builder = decoded.answering.builder(ReplyStarted(model="backend-model"))
    assert member(json.parse(builder.build()), "model") == model


def kept(store: ResponseStore, answer_id: object) -> bool:
    return store.find(OWNER.owner, f"{answer_id}") is not None


def test_an_answer_that_ended_well_is_kept_for_its_owner() -> None:
    store = make_store()
    answer = whole(decode(store), HI)
    found = store.find(OWNER.owner, f"{answer['id']}")
    assert found is not None
    assert json.parse(found.whole) == answer
    assert [json.parse(item) for item in found.output] == answer["output"]
    assert found.inputs == [
        b'{"type":"message","role":"user","content":"Hi","id":"item_000000000000000000000001_0"}'
    ]
    assert store.find("other", f"{answer['id']}") is None


def test_a_stream_is_kept_when_it_has_ended_well() -> None:
    store = make_store()
    answering = decode(store, stream=True).answering
    encoder = answering.begin(None)
    encoder.encode_all(HI)
    broken = answering.begin(None)
    broken.fail(Problem(502, "server_error", "Gone."))
    assert len(store.history("somebody", "resp_000000000000000000000001") or []) == 0
    encoder.end()
    assert kept(store, "resp_000000000000000000000001")
    assert not kept(store, "resp_000000000000000000000003")


def test_nothing_is_kept_that_nobody_wants_kept() -> None:
    store = make_store()
    answer = whole(decode(store, store=False), HI)
    assert not kept(store, answer["id"])
    assert answer["store"] is False
    assert whole(decode(None), HI)["store"] is False
    assert whole(decode(store), HI)["store"] is True


def test_a_conversation_goes_on_from_a_stored_response() -> None:
    store = make_store()
    first = whole(decode(store), HI)
    front = make_front(store, first_id=50)
    body = json.dump({"input": "And?", "previous_response_id": first["id"], "instructions": "Go."})
    second = front.decode(body, OWNER)
    roles = [(message.role, message.text) for message in second.request.messages]
    assert roles == [("system", "Go."), ("user", "Hi"), ("assistant", "Hi"), ("user", "And?")]
    assert b'"previous_response_id":"resp_' in streamed(second, HI)
    with pytest.raises(Exception, match="not found"):
        front.decode(body, Sender(owner="other"))
