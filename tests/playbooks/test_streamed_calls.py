"""Calls that are streamed to the client, and the end of those that turn out to be invalid."""

import pytest
from msgspec.structs import replace

from proxy.conversation import json
from proxy.conversation.messages import assistant_message, tool_result, user_message
from proxy.conversation.replies import (
    ReplyEvent,
    ReplyFinished,
    ReplyUnreadable,
    TextDelta,
    ToolCallArgumentsDelta,
    ToolCalled,
    ToolCallStarted,
)
from proxy.conversation.tools import ToolCall
from proxy.errors import CallBrokeOff, GuardrailsExhausted
from proxy.facts import BrokeOff, RejectedReply, ReplyOutcome, attempts, outcome
from proxy.guardrails.offer import Mode, TextPolicy
from proxy.inference.plan import Policy
from proxy.inference.turn import TurnState
from tests.fakes.playbook import CLOCK, WEATHER, Playbook, call, make_request, make_tool, write

PARIS = '{"city": "Paris"}'
WRITE = make_tool(
    "write",
    {
        "type": "object",
        "properties": {
            "path": {"type": "string"},
            "text": {"type": "string"},
            "mode": {"enum": ["new", "append"]},
        },
        "required": ["path", "text", "mode"],
    },
)


def begin_stream(
    policy: Policy | None = None, *, parallel: bool = True, stop_strings: bool = False
) -> Playbook:
    request = make_request(
        tools=(WEATHER, CLOCK, WRITE), stream=True, parallel=parallel, stop_strings=stop_strings
    )
    return Playbook.of(request, policy).ask()


def write_call(book: Playbook, name: str, arguments: str, index: int = 0) -> Playbook:
    book.receive(ToolCallStarted(index, f"id_{index}", name))
    for start in range(0, len(arguments), 5):
        book.receive(ToolCallArgumentsDelta(index, arguments[start : start + 5]))
    return book


def join_arguments(events: list[ReplyEvent], index: int = 0) -> str:
    text = ""
    for event in events:
        match event:
            case ToolCallArgumentsDelta(event_index, fragment) if event_index == index:
                text += fragment
            case ToolCalled(event_index, called) if event_index == index:
                text += called.arguments
            case _:
                pass
    return text


def test_a_valid_call_is_streamed_but_its_last_bytes_are_sent_after_validation() -> None:
    book = begin_stream()
    book.receive(ToolCallStarted(0, "x", "get_weather"), ToolCallArgumentsDelta(0, '{"city"'))
    assert (book.shown, book.turn.state) == ([], TurnState.LISTENING)
    book.receive(ToolCallArgumentsDelta(0, ': "Pa')).expect(
        ToolCallStarted(0, "x", "get_weather"), ToolCallArgumentsDelta(0, '{"city": "Pa')
    )
    assert book.turn.state is TurnState.COMMITTED
    book.receive(ToolCallArgumentsDelta(0, "ris")).expect(ToolCallArgumentsDelta(0, "ris"))
    book.receive(ToolCallArgumentsDelta(0, '"}'))
    book.receive(ReplyFinished("tool_calls"))
    book.expect(ToolCallArgumentsDelta(0, '"}'), ReplyFinished("tool_calls"))
    book.end()
    assert outcome(book.turn.facts) is ReplyOutcome.CLEAN


@pytest.mark.parametrize("prose", ["Let me see.\n\n", "\n", "Ah: ", "See `x`\n"])
def test_white_space_before_a_call_is_sent_before_the_call(prose: str) -> None:
    book = write_call(begin_stream().receive(TextDelta(prose)), "get_weather", PARIS)
    book.receive(ReplyFinished("tool_calls"))
    index = book.shown.index(ToolCallStarted(0, "id_0", "get_weather"))
    text = "".join(event.text for event in book.shown[:index] if isinstance(event, TextDelta))
    assert text == prose
    assert not any(isinstance(event, TextDelta) for event in book.shown[index:])


def test_white_space_before_a_rejected_call_is_not_sent() -> None:
    book = write_call(begin_stream().receive(TextDelta("\n\n")), "launch_rocket", "{}")
    book.receive(ReplyFinished("tool_calls"))
    assert book.shown == []
    write_call(book.ask(), "get_weather", PARIS).receive(ReplyFinished("tool_calls"))
    assert len([event for event in book.shown if isinstance(event, ToolCallArgumentsDelta)]) > 2


@pytest.mark.parametrize("text_policy", list(TextPolicy))
def test_calls_stream_under_every_text_policy(text_policy: TextPolicy) -> None:
    book = write_call(begin_stream(Policy(text_policy=text_policy)), "get_weather", PARIS)
    book.receive(ReplyFinished("tool_calls"))
    assert join_arguments(book.shown) == PARIS
    assert len(book.shown) > 3


@pytest.mark.parametrize("policy", [Policy(streams_calls=False), None])
def test_a_call_is_one_event_if_the_request_or_the_policy_does_not_stream_calls(
    policy: Policy | None,
) -> None:
    book = begin_stream(policy) if policy else Playbook.of(make_request()).ask()
    write_call(book, "get_weather", PARIS).receive(ReplyFinished("tool_calls"))
    book.expect(ToolCalled(0, ToolCall("id_0", "get_weather", PARIS)), ReplyFinished("tool_calls"))


def test_with_guardrails_off_calls_are_streamed_unchanged() -> None:
    for mode in (Mode.OFF, Mode.OBSERVE):
        book = write_call(begin_stream(Policy(mode=mode)), "launch_rocket", "{broken")
        assert join_arguments(book.shown) == "{broken"
        book.receive(ReplyFinished("tool_calls"))
        assert book.shown[-1] == ReplyFinished("tool_calls")


def test_a_coerced_argument_is_streamed_in_its_final_form() -> None:
    book = write_call(begin_stream(), "get_weather", '{"days": "3", "city": "Paris", "unit": "C"}')
    book.receive(ReplyFinished("tool_calls"))
    assert join_arguments(book.shown) == '{"days": 3, "city": "Paris", "unit": "c"}'
    assert outcome(book.turn.facts) is ReplyOutcome.REPAIRED


def test_a_misspelled_tool_name_is_streamed_corrected() -> None:
    book = begin_stream()
    book.receive(ToolCallStarted(0, "x", "functions.get-weather"))
    book.receive(ToolCallArgumentsDelta(0, '{"city": "'))
    book.expect(ToolCallStarted(0, "x", "get_weather"))


def test_repaired_arguments_continue_the_streamed_prefix() -> None:
    book = write_call(
        begin_stream(), "write", '{"path": "a", "mode": "new", "text": "say "hi" now"}'
    )
    book.receive(ReplyFinished("tool_calls"))
    value = json.parse(join_arguments(book.shown))
    assert value == {"path": "a", "mode": "new", "text": 'say "hi" now'}
    assert book.shown[-1] == ReplyFinished("tool_calls")


def test_two_calls_stream_one_after_the_other() -> None:
    book = write_call(begin_stream(), "get_weather", PARIS)
    write_call(book, "get_time", "{}", 1).receive(ReplyFinished("tool_calls"))
    assert join_arguments(book.shown, 0) == PARIS
    assert join_arguments(book.shown, 1) == "{}"
    assert book.shown[-1] == ReplyFinished("tool_calls")
    assert attempts(book.turn.facts) == 1


def show_invalid_call(tail: str = '"mode": "old"}') -> Playbook:
    """Return a turn with an invalid call; the client has received its first two members."""
    book = write_call(begin_stream(), "write", '{"path": "a.txt", "text": "Hello", ' + tail)
    book.receive(ReplyFinished("tool_calls"))
    assert join_arguments(book.shown) == '{"path": "a.txt", "text": "Hello'
    book.shown.clear()
    return book.ask()


def test_the_nudge_after_a_streamed_call_demands_the_streamed_arguments_again() -> None:
    book = show_invalid_call()
    content = str(book.last_message["content"])
    assert "/mode" in content
    assert 'begin its arguments exactly with {"path": "a.txt", "text": "Hello' in content


def test_a_retry_with_the_streamed_members_completes_the_call() -> None:
    book = show_invalid_call()
    call(book, "write", '{"path": "a.txt", "text": "Hello", "mode": "new"}')
    book.expect(ToolCallArgumentsDelta(0, '", "mode": "new"}'), ReplyFinished("tool_calls"))
    book.end()
    assert outcome(book.turn.facts) is ReplyOutcome.RETRIED


def test_after_a_retry_with_other_values_the_next_schema_requires_the_streamed_values() -> None:
    book = show_invalid_call()
    call(book, "write", '{"path": "b.txt", "text": "Hello", "mode": "new"}')
    book.ask()
    assert RejectedReply("not_continued") in book.turn.facts
    schema = book.schema()
    assert schema is not None
    assert '"path":{"const":"a.txt"}' in json.dump_text(schema)
    assert "get_time" not in json.dump_text(schema)
    write(book, '{"name":"write","arguments":{"mode":"new","text":"Hello you","path":"a.txt"}}')
    book.expect(ToolCallArgumentsDelta(0, ' you","mode":"new"}'), ReplyFinished("tool_calls"))
    book.end()


@pytest.mark.parametrize("is_strict", [False, True])
def test_a_streamed_call_raises_call_broke_off_if_no_attempt_completes_it(
    is_strict: bool,
) -> None:
    book = show_invalid_call()
    write(book, "I cannot.")
    book.ask()
    with pytest.raises(CallBrokeOff) as raised:
        write(book, "{}")
    assert book.shown == []
    assert "write" in str(raised.value)
    assert BrokeOff("write") in book.turn.facts
    assert outcome(book.turn.facts) is ReplyOutcome.EXHAUSTED
    book.end()


def test_in_strict_mode_an_invalid_streamed_call_raises_guardrails_exhausted() -> None:
    book = write_call(
        begin_stream(Policy(attempts=1, is_strict=True)), "get_weather", '{"days": 1}'
    )
    with pytest.raises(GuardrailsExhausted) as raised:
        book.receive(ReplyFinished("tool_calls"))
    assert not isinstance(raised.value, CallBrokeOff)


def test_an_invalid_streamed_call_without_retries_raises_call_broke_off() -> None:
    book = write_call(begin_stream(Policy(attempts=1)), "get_weather", '{"days": 1}')
    with pytest.raises(CallBrokeOff):
        book.receive(ReplyFinished("tool_calls"))


def test_the_retry_of_an_unparsable_reply_completes_the_streamed_call() -> None:
    book = write_call(begin_stream(), "get_weather", '{"city": "Par')
    book.shown.clear()
    book.receive(ReplyUnreadable("peg-native"))
    book.ask()
    write(book, '<tool_call>{"name": "get_weather", "arguments": {"city": "Paris"}}</tool_call>')
    book.expect(ToolCallArgumentsDelta(0, 'is"}'), ReplyFinished("tool_calls"))


@pytest.mark.parametrize("reason", ["length", "content_filter"])
def test_a_truncated_streamed_call_stays_incomplete(reason: str) -> None:
    book = write_call(begin_stream(), "get_weather", '{"city": "Par')
    book.receive(ReplyFinished(reason))
    assert join_arguments(book.shown) == '{"city": "Par'
    assert book.shown[-1] == ReplyFinished(reason)
    book.shown.clear()
    book.end()


def test_a_truncated_second_call_ends_with_finish_reason_length() -> None:
    for stop_strings, reason in ((False, "length"), (True, "tool_calls")):
        book = write_call(begin_stream(stop_strings=stop_strings), "get_weather", PARIS)
        write_call(book, "get_weather", '{"city": "Ro', 1).receive(ReplyFinished(reason))
        assert join_arguments(book.shown, 0) == PARIS
        assert join_arguments(book.shown, 1) == '{"city": "Ro'
        assert book.shown[-1] == ReplyFinished("length")


def test_a_complete_call_of_a_truncated_reply_finishes_with_tool_calls() -> None:
    book = write_call(begin_stream(), "get_weather", PARIS)
    book.receive(ReplyFinished("length"))
    assert join_arguments(book.shown) == PARIS
    assert book.shown[-1] == ReplyFinished("tool_calls")


def test_a_reply_cut_off_within_a_call_ends_with_finish_reason_length() -> None:
    book = write_call(begin_stream(), "get_weather", '{"city": "Par')
    book.shown.clear()
    book.shown += book.turn.cut_off()
    book.expect(ReplyFinished("length"))


def test_nothing_can_be_returned_after_a_backend_failure_within_a_streamed_call() -> None:
    book = write_call(begin_stream(), "get_weather", '{"city": "Par')
    assert book.turn.abandon() == ()


def test_nothing_can_be_returned_after_a_backend_failure_in_the_retry_of_a_streamed_call() -> None:
    book = show_invalid_call()
    assert book.turn.abandon() == ()


def show_valid_and_invalid_call() -> Playbook:
    """Return a turn with a valid call, which the client has received, and an invalid one."""
    book = write_call(begin_stream(), "get_weather", PARIS)
    write_call(book, "launch_rocket", "{}", 1).receive(ReplyFinished("tool_calls"))
    assert join_arguments(book.shown) == PARIS
    book.shown.clear()
    return book.ask()


def test_of_a_valid_and_an_invalid_call_only_the_invalid_call_is_retried() -> None:
    book = show_valid_and_invalid_call()
    assert book.upstream_request is not None
    results = [message.text for message in book.upstream_request.messages if message.role == "tool"]
    assert results[0].startswith("Noted")
    assert "launch_rocket" in results[1]
    call(book, "get_time", "{}")
    book.expect(ToolCalled(1, ToolCall("backend_id", "get_time", "{}")))
    book.expect(ReplyFinished("tool_calls"))


def test_a_retry_that_repeats_the_valid_call_does_not_send_it_again() -> None:
    book = show_valid_and_invalid_call()
    write_call(book, "get_weather", PARIS)
    write_call(book, "get_time", "{}", 1).receive(ReplyFinished("tool_calls"))
    book.expect(ToolCalled(1, ToolCall("id_1", "get_time", "{}")), ReplyFinished("tool_calls"))


def test_a_retry_with_only_text_keeps_the_valid_call() -> None:
    book = show_valid_and_invalid_call()
    write(book, "That is all.")
    book.expect(TextDelta("That is all."), ReplyFinished("tool_calls"))


def test_the_valid_call_is_kept_if_the_retry_fails() -> None:
    book = show_valid_and_invalid_call()
    book.shown += book.turn.abandon()
    book.expect(ReplyFinished("tool_calls"))
    book.end()


def test_the_valid_call_is_kept_after_the_last_attempt() -> None:
    book = show_valid_and_invalid_call()
    for last in (False, True):
        call(book, "launch_rocket", "{}")
        if not last:
            book.ask()
    book.expect(ReplyFinished("tool_calls"))
    book.end()
    assert outcome(book.turn.facts) is ReplyOutcome.EXHAUSTED


def test_a_call_of_an_unknown_tool_is_not_streamed() -> None:
    book = write_call(begin_stream(), "launch_rocket", "{}")
    book.receive(ReplyFinished("tool_calls"))
    assert book.shown == []
    book.ask()
    write_call(book, "get_weather", PARIS).receive(ReplyFinished("tool_calls"))
    assert book.shown[0] == ToolCallStarted(0, "id_0", "get_weather")
    assert join_arguments(book.shown) == PARIS


def test_text_after_a_streamed_call_is_sent_after_the_end_of_the_call() -> None:
    book = write_call(begin_stream(), "get_weather", PARIS)
    book.receive(TextDelta("Let me see."), ReplyFinished("tool_calls"))
    assert book.shown[-3:-1] == [ToolCallArgumentsDelta(0, '"}'), TextDelta("Let me see.")]


def test_only_the_first_call_is_returned_if_parallel_calls_are_disabled() -> None:
    book = write_call(begin_stream(parallel=False), "get_weather", PARIS)
    write_call(book, "get_time", "{}", 1).receive(ReplyFinished("tool_calls"))
    assert join_arguments(book.shown, 0) == PARIS
    assert not any(
        isinstance(event, ToolCallStarted | ToolCalled) and event.index for event in book.shown
    )


def test_call_in_text_precedes_a_later_structured_call() -> None:
    book = begin_stream()
    book.receive(TextDelta('<tool_call>{"name": "get_time", "arguments": {}}</tool_call>\n'))
    write_call(book, "get_weather", PARIS).receive(ReplyFinished("tool_calls"))
    calls = [event.call.name for event in book.shown if isinstance(event, ToolCalled)]
    assert calls == ["get_time", "get_weather"]


def test_a_call_that_continues_a_loop_is_not_streamed() -> None:
    ran = (assistant_message("", (ToolCall("a", "get_time", "{}"),)), tool_result("a", "noon"))
    request = replace(make_request(user_message("Hi"), *ran, *ran, *ran), stream=True)
    book = write_call(Playbook.of(request).ask(), "get_time", "{}")
    assert book.shown == []
