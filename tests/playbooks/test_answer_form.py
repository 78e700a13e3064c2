"""A request with tools and a response format: the model may call, or answer in the format."""

import pytest

from proxy.conversation import json
from proxy.conversation.json import JsonSchema
from proxy.conversation.replies import ReplyFinished, TextDelta, ToolCalled
from proxy.conversation.requests import Parsing, UpstreamRequest
from proxy.conversation.tools import NamedTool, ToolCall, ToolChoice, ToolUse
from proxy.errors import GuardrailsExhausted
from proxy.facts import Dropped, RejectedReply, ReplyOutcome, outcome
from proxy.guardrails.offer import Mode, TextPolicy
from proxy.inference.plan import Policy
from tests.fakes.playbook import Playbook, call, make_request, write

CITY: JsonSchema = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
}
PARIS = '{"city": "Paris"}'
LIKE_A_CALL = '{"name": "get_time", "arguments": {}}'


def begin(policy: Policy | None = None, choice: ToolChoice = ToolUse.AUTO) -> Playbook:
    return Playbook.of(make_request(answer_schema=CITY, choice=choice), policy).ask()


def sent_request(book: Playbook) -> UpstreamRequest:
    assert book.upstream_request is not None
    return book.upstream_request


def test_the_response_format_is_not_sent_upstream_if_the_request_has_tools() -> None:
    book = begin()
    assert sent_request(book).omits == {"response_format"}
    assert [tool.name for tool in sent_request(book).tools] == ["get_weather", "get_time"]
    call(book, "get_weather", PARIS)
    book.expect(ToolCalled(0, ToolCall("backend_id", "get_weather", PARIS)))
    book.expect(ReplyFinished("tool_calls"))
    book.end()


def test_an_answer_that_satisfies_the_response_format_is_returned_unchanged() -> None:
    book = begin()
    write(book, PARIS).expect(TextDelta(PARIS), ReplyFinished("stop"))
    book.end()
    assert outcome(book.turn.facts) is ReplyOutcome.CLEAN


def test_a_code_fence_around_a_json_answer_is_removed() -> None:
    book = begin()
    write(book, f"```json\n{PARIS}\n```").expect(TextDelta(PARIS), ReplyFinished("stop"))
    book.end()
    assert Dropped("code_fence") in book.turn.facts


@pytest.mark.parametrize("policy", TextPolicy)
def test_an_invalid_answer_is_retried_with_the_response_format_sent_upstream(
    policy: TextPolicy,
) -> None:
    book = begin(Policy(text_policy=policy))
    write(book, "It is Paris.")
    book.ask()
    assert sent_request(book).omits == frozenset()
    assert (sent_request(book).parsing, sent_request(book).schema) == (
        Parsing.OURS,
        None,
    )
    assert "not valid JSON" in str(book.last_message["content"])
    write(book, PARIS).expect(TextDelta(PARIS), ReplyFinished("stop"))
    book.end()
    assert RejectedReply("invalid_answer") in book.turn.facts


def test_an_answer_that_violates_the_schema_is_retried_with_the_path_of_the_error() -> None:
    book = begin()
    write(book, '{"city": 5}')
    book.ask()
    assert "/city: " in str(book.last_message["content"])


def test_json_that_looks_like_a_call_is_the_answer_if_the_request_has_a_response_format() -> None:
    book = Playbook.of(make_request(answer_schema=True)).ask()
    write(book, LIKE_A_CALL).expect(TextDelta(LIKE_A_CALL), ReplyFinished("stop"))
    book.end()


def test_two_invalid_calls_are_followed_by_a_constrained_attempt() -> None:
    book = begin()
    call(book, "get_weather", "{}")
    book.ask()
    call(book, "get_weather", "{}")
    book.ask()
    assert book.schema() is not None
    text = json.dump_text({"name": "get_weather", "arguments": {"city": "Paris"}})
    write(book, text)
    assert [type(event) for event in book.shown] == [ToolCalled, ReplyFinished]


def test_an_answer_that_is_invalid_in_all_attempts_is_returned_as_exhausted() -> None:
    book = begin(Policy(attempts=2))
    write(book, "Paris.")
    book.ask()
    write(book, "Still Paris.").expect(TextDelta("Still Paris."), ReplyFinished("stop"))
    book.end()
    assert outcome(book.turn.facts) is ReplyOutcome.EXHAUSTED


def test_in_strict_mode_an_invalid_answer_raises_guardrails_exhausted() -> None:
    book = begin(Policy(attempts=1, is_strict=True))
    with pytest.raises(GuardrailsExhausted, match="invalid_answer"):
        write(book, "Paris.")


def test_truncated_answer_is_not_retried() -> None:
    book = begin()
    write(book, '{"city": "Pa', "length").expect(TextDelta('{"city": "Pa'), ReplyFinished("length"))
    book.end()


@pytest.mark.parametrize("choice", [ToolUse.REQUIRED, NamedTool("get_time")])
def test_response_format_is_ignored_for_a_required_call(choice: ToolChoice) -> None:
    book = begin(choice=choice)
    assert sent_request(book).omits == {"response_format"}
    write(book, LIKE_A_CALL)
    assert [type(event) for event in book.shown] == [ToolCalled, ReplyFinished]


@pytest.mark.parametrize("mode", [Mode.OFF, Mode.OBSERVE])
def test_without_guardrails_the_response_format_is_sent_upstream(mode: Mode) -> None:
    book = begin(Policy(mode=mode))
    assert sent_request(book).omits == frozenset()


def test_the_response_format_is_sent_upstream_if_tool_choice_is_none() -> None:
    book = begin(choice=ToolUse.NONE)
    assert sent_request(book).omits == frozenset()
