import pytest

from proxy.conversation import json
from proxy.conversation.json import JsonObject
from proxy.dialects.dialect import Problem
from proxy.dialects.openai_responses.client_tools import Origin, ToolKind
from proxy.dialects.openai_responses.response import (
    AnswerTerms,
    ResponseState,
    echo_of,
    ending_of,
    response_object,
    stream_error,
    usage_of,
)


def test_what_was_asked_for_is_repeated_and_what_was_not_gets_its_usual_value() -> None:
    echo = echo_of({"temperature": b"0.50", "metadata": b'{"a": "b"}', "user": b"null"})
    assert (echo["temperature"], echo["metadata"]) == (b"0.50", b'{"a": "b"}')
    assert (echo["user"], echo["tools"], echo["truncation"]) == (b"null", b"[]", b'"disabled"')
    assert (echo["service_tier"], echo["background"]) == (b'"default"', b"false")
    assert "prompt_cache_retention" not in echo
    assert echo_of({"prompt_cache_retention": b'"24h"'})["prompt_cache_retention"] == b'"24h"'


def test_what_is_repeated_stands_on_one_line() -> None:
    echo = echo_of({"tools": b'[\r\n{"name": "a\\nb"}\n]'})
    assert echo["tools"] == b'[  {"name": "a\\nb"} ]'


def test_a_call_leads_to_the_tool_that_the_client_knows() -> None:
    origin = Origin(ToolKind.CUSTOM, "run")
    terms = AnswerTerms({"previous_response_id": b'"resp_1"'}, {"run": origin})
    assert terms.origin_of("run") is origin
    assert terms.origin_of("f") == Origin(ToolKind.FUNCTION, "f")
    assert terms.previous_id == "resp_1"
    assert AnswerTerms({"previous_response_id": b"null"}, {}).previous_id is None


def test_the_object_says_how_far_it_is() -> None:
    terms = AnswerTerms(echo_of({}), {}, is_stored=True)
    state = ResponseState("resp_1", 5, "m")
    begun = json.parse(response_object(terms, state))
    assert isinstance(begun, dict)
    assert (begun["status"], begun["output"], begun["usage"]) == ("in_progress", [], None)
    assert (begun["id"], begun["created_at"], begun["store"]) == ("resp_1", 5, True)
    state = ResponseState(
        "resp_1", 5, "m", "incomplete", [b'{"a":1}'], usage_of({}), None, "max_output_tokens"
    )
    ended = json.parse(response_object(terms, state))
    assert isinstance(ended, dict)
    assert ended["output"] == [{"a": 1}]
    assert ended["incomplete_details"] == {"reason": "max_output_tokens"}


@pytest.mark.parametrize(
    ("reported", "counts"),
    [
        (None, (0, 0, 0, 0, 0)),
        (
            {
                "prompt_tokens": 10,
                "completion_tokens": 4,
                "total_tokens": 14,
                "prompt_tokens_details": {"cached_tokens": 8},
                "completion_tokens_details": {"reasoning_tokens": 3},
            },
            (10, 8, 4, 3, 14),
        ),
        ({"prompt_tokens": 10, "completion_tokens": 4}, (10, 0, 4, 0, 14)),
        ({"prompt_tokens": True, "prompt_tokens_details": None}, (0, 0, 0, 0, 0)),
    ],
)
def test_usage_is_told_in_full_whatever_a_backend_tells(
    reported: JsonObject | None, counts: tuple[int, ...]
) -> None:
    read, cached, made, thought, total = counts
    assert usage_of(reported) == {
        "input_tokens": read,
        "input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": 0},
        "output_tokens": made,
        "output_tokens_details": {"reasoning_tokens": thought},
        "total_tokens": total,
    }


@pytest.mark.parametrize(
    ("reason", "ending"),
    [
        ("stop", ("completed", None)),
        ("tool_calls", ("completed", None)),
        ("length", ("incomplete", "max_output_tokens")),
        ("cut_off", ("incomplete", "max_output_tokens")),
        ("content_filter", ("incomplete", "content_filter")),
    ],
)
def test_a_finish_reason_is_a_status(reason: str, ending: tuple[str, str | None]) -> None:
    assert ending_of(reason) == ending


@pytest.mark.parametrize(
    ("problem", "code", "message"),
    [
        (
            Problem(400, "invalid_request_error", "Too long.", "context_length_exceeded"),
            "context_length_exceeded",
            "Too long.",
        ),
        (
            Problem(429, "rate_limit_error", "Busy.", "queue_full", headers={"retry-after": "7"}),
            "rate_limit_exceeded",
            "Busy. Please try again in 7s.",
        ),
        (Problem(429, "rate_limit_error", "Busy."), "rate_limit_exceeded", "Busy."),
        (Problem(503, "server_error", "Loading", "model_loading"), "server_error", "Loading"),
        (Problem(400, "invalid_request_error", "Bad."), "server_error", "Bad."),
    ],
)
def test_an_error_amid_a_stream_has_a_code_that_clients_know(
    problem: Problem, code: str, message: str
) -> None:
    assert stream_error(problem) == {"code": code, "message": message}
