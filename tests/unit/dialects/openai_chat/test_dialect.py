from itertools import count

import pytest

from proxy.conversation import json
from proxy.conversation.replies import ReplyFinished, ReplyStarted, TextDelta
from proxy.dialects.dialect import Client, IdsAndClock, ListedModel, Page, Problem
from proxy.dialects.openai_chat.dialect import ChatCatalogue, ChatDialect
from proxy.errors import InvalidRequest

CATALOGUE = ChatCatalogue()


def test_models_are_listed_with_their_known_details() -> None:
    known = ListedModel("m", 4096, {"owned_by": "someone", "context_window": 4096})
    model = {
        "created": 0,
        "owned_by": "someone",
        "context_length": 4096,
        "max_model_len": 4096,
        "context_window": 4096,
        "id": "m",
        "object": "model",
    }
    assert CATALOGUE.model(known) == model
    assert CATALOGUE.models([known], Page(limit=1)) == {"object": "list", "data": [model]}


def test_a_model_without_known_details_is_owned_by_temper() -> None:
    described = CATALOGUE.model(ListedModel("m"))
    assert described == {"created": 0, "owned_by": "temper", "id": "m", "object": "model"}


NUMBERS = count()
DIALECT = ChatDialect(IdsAndClock(lambda: 7.9, lambda: f"{next(NUMBERS):024x}"))
BODY = b'{"model":"m","messages":[{"role":"user","content":"Hi"}],"stream":true}'


def test_a_count_request_is_decoded_like_a_chat_request() -> None:
    decoded = DIALECT.decode(BODY, Client())
    assert decoded.request.model == "m"
    assert (decoded.facts, decoded.accepts_prose, decoded.compaction) == ((), False, None)
    assert DIALECT.decode_count(BODY, Client()).request == decoded.request
    with pytest.raises(InvalidRequest, match="got nothing"):
        DIALECT.decode(b"", Client())


def test_the_schema_of_requests_has_a_title() -> None:
    assert DIALECT.schemas().request["title"] == "ChatCompletionRequest"


def test_an_answer_has_the_id_of_the_backend_or_a_new_id() -> None:
    answering = DIALECT.decode(BODY, Client()).answering
    for first, identity in (
        (ReplyStarted("own", 5, "served"), ("own", 5, "served")),
        (TextDelta("x"), None),
    ):
        builder = answering.builder(first)
        builder.add(TextDelta("x"))
        builder.add(ReplyFinished("stop"))
        whole = json.parse(builder.build())
        assert isinstance(whole, dict)
        identifiers = (whole["id"], whole["created"], whole["model"])
        assert identifiers == identity or (str(identifiers[0])[:9], *identifiers[1:]) == (
            "chatcmpl-",
            7,
            "m",
        )
    assert b'"object":"chat.completion.chunk"' in answering.begin(None).keep_alive()


def test_the_ids_of_two_calls_differ() -> None:
    answering = DIALECT.decode(BODY, Client()).answering
    first, second = answering.new_call_id(), answering.new_call_id()
    assert first != second
    assert first.startswith("call_")


def test_an_error_keeps_its_status_and_headers() -> None:
    problem = Problem(429, "rate_limit_error", "later", "queue_full", headers={"retry-after": "2"})
    reply = DIALECT.error(problem, "req_1")
    assert (reply.status, dict(reply.headers)) == (429, {"retry-after": "2"})
    assert b'"code":"queue_full"' in reply.body


@pytest.mark.parametrize(
    ("end", "is_complete"), [(b"x\n\ndata: [DONE]\n\n", True), (b'data: {"error":{}}\n\n', False)]
)
def test_a_stream_is_complete_only_after_done(end: bytes, is_complete: bool) -> None:
    assert DIALECT.is_complete(end) is is_complete


def test_token_counts_have_the_openai_format() -> None:
    count = b'{"object":"response.input_tokens","input_tokens":7'
    assert DIALECT.encode_count(7, is_estimated=False) == count + b"}"
    assert DIALECT.encode_count(7, is_estimated=True) == count + b',"temper":{"estimated":true}}'
