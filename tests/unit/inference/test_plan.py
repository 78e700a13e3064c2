import pytest
from msgspec.structs import replace

from proxy.conversation import json
from proxy.conversation.messages import (
    Message,
    Messages,
    assistant_message,
    tool_result,
    user_message,
)
from proxy.conversation.requests import Parsing, UpstreamRequest
from proxy.conversation.tools import Tool, ToolCall, ToolUse
from proxy.facts import Compacted, Fact
from proxy.guardrails.model_quirks import Quirks, Template
from proxy.guardrails.offer import OfferedTools, TextPolicy
from proxy.guardrails.respond import make_respond_tool
from proxy.guardrails.retry import FIRST, Attempt, AttemptKind
from proxy.guardrails.tool_prompts.history import CONVENTIONS
from proxy.inference.plan import RESPONSE_FORMAT, Policy, PromptFormat, RequestPlan
from tests.fakes.playbook import CLOCK, WEATHER, make_request

RESPOND = make_respond_tool(())
HISTORY = (
    user_message("How late is it?"),
    assistant_message("", (ToolCall("a", "get_time", "{}"),)),
    tool_result("a", "noon"),
)
ADDED = (user_message("Go on."),)
REQUEST = make_request()


def upstream_of(messages: tuple[Message, ...], tools: tuple[Tool, ...]) -> UpstreamRequest:
    return UpstreamRequest(REQUEST, messages, tools, ToolUse.AUTO)


def test_a_chat_template_gets_messages_and_tools_unchanged() -> None:
    prompt_format = PromptFormat((WEATHER, CLOCK), RESPOND)
    tools = (WEATHER, CLOCK, RESPOND)
    assert prompt_format.upstream_request(REQUEST, HISTORY) == upstream_of(HISTORY, tools)
    assert prompt_format.offered == (WEATHER, CLOCK, RESPOND)
    plain = PromptFormat((WEATHER,))
    assert plain.upstream_request(REQUEST, HISTORY) == upstream_of(HISTORY, (WEATHER,))


def test_adjacent_messages_are_merged_for_a_template_with_alternating_roles() -> None:
    worded = PromptFormat((CLOCK,), template=Template(alternates=True)).upstream_request(
        REQUEST, (*HISTORY[:1], *ADDED)
    )
    assert [message.text for message in worded.messages] == ["How late is it?\n\nGo on."]


@pytest.mark.parametrize("convention", CONVENTIONS, ids=lambda convention: convention.name)
def test_a_convention_writes_tools_and_calls_and_results_into_the_messages(
    convention: object,
) -> None:
    (described,) = [item for item in CONVENTIONS if item is convention]
    worded = PromptFormat((WEATHER, CLOCK), RESPOND, described).upstream_request(REQUEST, HISTORY)
    assert worded.tools == ()
    assert worded.omits == {"tools", "tool_choice", "parallel_tool_calls"}
    assert [message.role for message in worded.messages] == ["system", "user", "assistant", "user"]
    assert all(not message.calls for message in worded.messages)
    everything = b"".join(message.source for message in worded.messages)
    assert all(word in everything for word in (b"get_weather", b"get_time", b"noon"))


@pytest.mark.parametrize("convention", CONVENTIONS, ids=lambda convention: convention.name)
def test_added_messages_do_not_change_earlier_messages_in_any_convention(
    convention: object,
) -> None:
    (described,) = [item for item in CONVENTIONS if item is convention]
    prompt_format = PromptFormat((WEATHER, CLOCK), RESPOND, described)
    before, after = (
        prompt_format.upstream_request(REQUEST, HISTORY).messages,
        prompt_format.upstream_request(REQUEST, HISTORY + ADDED).messages,
    )
    assert after[: len(before)] == before


HELLO = user_message("Hi")
NUDGE = user_message("Call a tool.")
POLICY = Policy(Quirks(resets_state=True, calls_in_parallel=False))
OFFER = OfferedTools((WEATHER, CLOCK), TextPolicy.AUTO, ())
PLAN = RequestPlan(make_request(HELLO), POLICY, (HELLO,), PromptFormat((WEATHER, CLOCK)), OFFER)


def test_a_nudge_is_appended_to_the_conversation() -> None:
    upstream_request = PLAN.request_for(FIRST, (NUDGE,), None)
    assert upstream_request.messages == (HELLO, NUDGE)
    assert upstream_request.tools == (WEATHER, CLOCK)
    assert upstream_request.omits == {RESPONSE_FORMAT}
    assert upstream_request.calls_singly


@pytest.mark.parametrize(
    ("messages", "attempt", "facts", "resets"),
    [
        ((HELLO,), "as_asked", (), True),
        (HISTORY, "as_asked", (), False),
        (HISTORY, "nudged", (), True),
        (HISTORY, "as_asked", (Compacted(1, 1, 0, 1, 9, 20, 10, is_new=True),), True),
        (HISTORY, "as_asked", (Compacted(1, 1, 0, 1, 9, 20, 10),), False),
    ],
)
def test_the_prompt_cache_is_reset_unless_the_prompt_extends_the_previous_prompt(
    messages: Messages, attempt: AttemptKind, facts: tuple[Fact, ...], *, resets: bool
) -> None:
    plan = replace(PLAN, messages=messages, facts=facts)
    assert plan.request_for(Attempt(attempt), (), None).resets_cache is resets
    plain = replace(plan, policy=Policy())
    assert not plain.request_for(Attempt(attempt), (), None).resets_cache


def test_the_request_for_an_attempt_has_its_parsing_its_schema_and_a_token_limit() -> None:
    attempt = Attempt("constrained", Parsing.OURS)
    upstream_request = PLAN.request_for(attempt, (), {"type": "object"}, 512)
    assert upstream_request.parsing is Parsing.OURS
    assert upstream_request.schema == {"type": "object"}
    assert upstream_request.resets_cache
    assert upstream_request.request.max_tokens == 512
    assert upstream_request.request.fields["max_tokens"] == json.dump(512)


def test_the_attempt_for_an_answer_has_the_response_format_of_the_client() -> None:
    assert RESPONSE_FORMAT not in PLAN.request_for(Attempt("answer"), (), None).omits
