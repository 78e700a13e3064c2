"""The state machine of a run: its states, the calls of a reply, and the reasons to end."""

import pytest

from proxy.conversation import json
from proxy.conversation.json import JsonObject
from proxy.conversation.messages import user_message
from proxy.conversation.replies import (
    PromptProgress,
    ReasoningDelta,
    ReplyEvent,
    ReplyFinished,
    ReplyStarted,
    TextDelta,
    ToolCallArgumentsDelta,
    ToolCalled,
    ToolCallStarted,
    UsageReported,
)
from proxy.conversation.tools import NamedTool, ToolUse
from proxy.conversation.workflows import Workflow
from proxy.facts import Dropped
from proxy.tools.executor import Outcome, Round, RoundContext, Status
from proxy.tools.run import ClientView, RunConfig, RunState, Stop
from tests.fakes.rounds import CONFIG, RunBook, called, done, reply


def test_the_client_view_omits_calls_and_usage_and_the_finish_reason() -> None:
    view = ClientView()
    events: list[ReplyEvent] = [
        ReplyStarted("a"),
        ReasoningDelta("Hm."),
        PromptProgress(2, 1, 1),
        TextDelta("3"),
    ]
    hidden_events: list[ReplyEvent] = [
        ToolCalled(0, called(1)),
        UsageReported({}),
        ReplyFinished("stop"),
    ]
    assert view.convert([*events, *hidden_events], is_aside=False) == events


def test_the_text_of_a_second_reply_begins_a_new_paragraph() -> None:
    view = ClientView()
    view.convert([TextDelta("One.")], is_aside=False)
    view.begin_next_reply()
    shown = view.convert([ReplyStarted(), TextDelta("T"), TextDelta("wo.")], is_aside=False)
    assert shown == [TextDelta("\n\n"), TextDelta("T"), TextDelta("wo.")]


def test_the_first_text_begins_without_a_blank_line() -> None:
    view = ClientView()
    view.convert([ReasoningDelta("Hm.")], is_aside=False)
    view.begin_next_reply()
    assert view.convert([TextDelta("One.")], is_aside=False) == [TextDelta("One.")]


CLIENT_CALL = called(9, "open_file")
USAGE: JsonObject = {"total_tokens": 0}


def test_an_answer_without_calls_ends_the_run() -> None:
    book = RunBook.of()
    assert book.run.config == CONFIG
    assert book.ask().request.messages == (user_message("What is 1 + 2?"),)
    book.receive(reply("3", reasoning="Easy."))
    assert book.seen == [
        ReplyStarted("id"),
        ReasoningDelta("Easy."),
        TextDelta("3"),
        UsageReported({"total_tokens": 1}),
        ReplyFinished("stop"),
    ]
    assert (book.run.stop, book.run.text, book.run.next_step()) == (Stop.ANSWERED, "3", None)
    assert json.parse(book.run.added[0].source) == {
        "role": "assistant",
        "content": "3",
        "reasoning_content": "Easy.",
    }


def test_operator_calls_are_executed_and_the_model_continues() -> None:
    book = RunBook.of()
    first = book.ask()
    assert book.receive(reply("", called(1), called(2, "show"))) == [ReplyStarted("id")]
    assert book.run.state is RunState.CALLED
    step = book.execute("3", "shown")
    assert step.calls == (called(1), called(2, "show"))
    assert step.context == RoundContext(1, first.request.messages, 16_000)
    second = book.ask()
    assert book.run.text == ""
    assert second.request.messages[:1] == first.request.messages
    assert [message.text for message in second.request.messages[1:]] == ["", "3", "shown"]
    assert second.request.messages[1:] == book.run.added
    assert "messages" not in second.request.fields
    book.receive(reply("It is 3."))
    assert book.run.rounds == (Round("", (done(called(1)), done(called(2, "show"), "shown"))),)
    assert [event for event in book.seen if isinstance(event, ReplyStarted)] == [ReplyStarted("id")]
    assert book.seen[-2:] == [UsageReported({"total_tokens": 8}), ReplyFinished("stop")]
    assert len(book.run.usages) == 2
    assert book.run.facts == ()


def test_a_reply_with_only_client_calls_ends_the_run() -> None:
    book = RunBook.of()
    book.ask()
    shown = book.receive(reply("Let me look.", CLIENT_CALL))
    assert shown[1:] == [
        TextDelta("Let me look."),
        ToolCalled(0, CLIENT_CALL),
        UsageReported({"total_tokens": 12}),
        ReplyFinished("tool_calls"),
    ]
    assert (book.run.stop, book.run.added) == (Stop.ANSWERED, ())


def test_operator_calls_next_to_client_calls_are_executed_first() -> None:
    book = RunBook.of()
    book.ask()
    book.receive(reply("", CLIENT_CALL, called(1)))
    assert book.execute().calls == (called(1),)
    message, postponed, result = book.run.added
    assert message.calls == (CLIENT_CALL, called(1))
    assert (postponed.tool_call_id, postponed.failed) == (CLIENT_CALL.id, True)
    assert postponed.text.startswith("Not run yet")
    assert (result.tool_call_id, result.text, result.failed) == ("call_1", "3", False)
    book.ask()
    book.receive(reply("", CLIENT_CALL))
    assert book.seen[-3:-1] == [ToolCalled(0, CLIENT_CALL), UsageReported(USAGE)]


def test_operator_calls_of_a_second_reply_with_client_calls_are_dropped() -> None:
    book = RunBook.of()
    book.round(CLIENT_CALL, called(1))
    book.ask()
    shown = book.receive(reply("Both.", called(2), CLIENT_CALL))
    assert shown[0] == TextDelta("Both.")
    assert shown[1] == ToolCalled(0, CLIENT_CALL)
    assert shown[-1] == ReplyFinished("tool_calls")
    assert book.run.facts == (Dropped("owned_call"),)
    assert book.run.stop is Stop.ANSWERED


@pytest.mark.parametrize("choice", [ToolUse.REQUIRED, NamedTool("add")])
def test_after_a_required_operator_call_the_tool_choice_is_auto(
    choice: ToolUse | NamedTool,
) -> None:
    book = RunBook.of(choice=choice)
    assert book.ask().request.tool_choice == choice
    book.receive(reply("", called(1)))
    book.execute()
    request = book.ask().request
    assert (request.tool_choice, request.fields["tool_choice"]) == (ToolUse.AUTO, b'"auto"')


def test_a_tool_choice_that_names_a_client_tool_applies_until_this_tool_is_called() -> None:
    book = RunBook.of(choice=NamedTool("open_file"))
    book.round()
    assert book.ask().request.tool_choice == NamedTool("open_file")


def test_no_call_is_executed_if_tool_choice_is_none() -> None:
    book = RunBook.of(choice=ToolUse.NONE)
    book.ask()
    book.receive([ReplyStarted(), ToolCalled(0, called(1))])
    assert book.receive([TextDelta("3")]) == [TextDelta("3")]
    book.receive([ReplyFinished("tool_calls")])
    assert book.seen[-1] == ReplyFinished("stop")
    assert book.run.stop is Stop.ANSWERED


def test_text_released_with_or_after_an_operator_call_is_sent_as_reasoning() -> None:
    book = RunBook.of()
    book.ask()
    assert book.receive([ReplyStarted(), TextDelta("Let me")]) == [
        ReplyStarted(),
        TextDelta("Let me"),
    ]
    start = ToolCallStarted(0, "call_1", "add")
    assert book.receive([TextDelta(" add."), start]) == [ReasoningDelta(" add.")]
    assert book.receive([ToolCallArgumentsDelta(0, "{}"), TextDelta("!")]) == [ReasoningDelta("!")]
    book.receive([ReplyFinished("tool_calls")])
    book.execute()
    book.ask()
    book.receive([ReplyStarted(), PromptProgress(9, 5, 7), TextDelta("It is "), TextDelta("3.")])
    assert book.content == "Let me\n\nIt is 3."
    assert PromptProgress(9, 5, 7) in book.seen
    assert book.run.added[0].text == "Let me add.!"
    assert book.run.added[0].calls == (called(1),)


def test_a_second_event_reply_started_discards_the_partial_reply() -> None:
    book = RunBook.of()
    book.ask()
    book.receive([ReplyStarted("a"), TextDelta("It"), ToolCalled(0, called(1))])
    book.receive(reply("It is 3."))
    assert book.seen.count(ReplyStarted("id")) == 1
    assert book.run.added[0].text == "It is 3."


def test_a_successful_terminal_tool_ends_the_run_with_its_result() -> None:
    book = RunBook.of(workflow=Workflow(terminal_tools=("show",)))
    book.ask()
    book.receive(reply("", called(1), called(2, "show")))
    book.execute("3", "The page shows 3.")
    assert book.run.stop is Stop.TERMINAL
    assert book.run.output == done(called(2, "show"), "The page shows 3.")
    assert book.content == "The page shows 3."
    assert book.seen[-1] == ReplyFinished("stop")
    assert book.run.next_step() is None


def test_a_failed_terminal_tool_does_not_end_the_run() -> None:
    book = RunBook.of(workflow=Workflow(terminal_tools=("add",)))
    book.round(status=Status.FAILED)
    assert book.ask().is_last is False


def test_after_the_last_round_an_answer_is_requested() -> None:
    book = RunBook.of(RunConfig(CONFIG.owned, rounds=2))
    book.round()
    book.round()
    assert book.ask().is_last is True
    book.receive([ReplyStarted(), ToolCalled(0, called(7)), TextDelta("It is 3.")])
    book.receive([ReplyFinished("tool_calls")])
    assert book.run.stop is Stop.ROUNDS
    assert book.content == "It is 3."
    assert book.roles == ["assistant", "tool", "assistant", "tool", "assistant"]
    assert book.seen[-1] == ReplyFinished("stop")


def test_consecutive_failed_rounds_end_the_run() -> None:
    book = RunBook.of(RunConfig(CONFIG.owned, failed_rounds=2))
    book.round(status=Status.FAILED)
    book.round()
    book.round(status=Status.TIMED_OUT)
    assert book.run.state is RunState.READY
    book.round(status=Status.REFUSED)
    assert book.run.stop is Stop.FAILURES
    assert "2 times in a row" in book.content
    assert book.seen[-1] == ReplyFinished("stop")


def test_an_uncounted_failure_does_not_end_the_run() -> None:
    book = RunBook.of(RunConfig(CONFIG.owned, failed_rounds=1))
    book.ask()
    book.receive(reply("", called(1)))
    book.run.next_step()
    nothing = Outcome(called(1), "Error: no such file", Status.FAILED, counted=False)
    assert book.run.finish_round([nothing]) == ()
    assert book.run.added[-1].failed is True
    assert book.run.stop is None


def test_client_calls_are_sent_but_no_operator_call_is_executed_after_exhausted_retries() -> None:
    book = RunBook.of()
    book.ask()
    book.receive(reply("I would add.", called(1), CLIENT_CALL), defect="invalid_arguments")
    assert (book.run.stop, book.run.defect) == (Stop.EXHAUSTED, "invalid_arguments")
    assert book.content == "I would add."
    assert book.seen[-1] == ReplyFinished("tool_calls")
    assert ToolCalled(0, CLIENT_CALL) in book.seen
    assert book.run.added == ()


def test_calls_of_a_truncated_reply_are_not_executed() -> None:
    book = RunBook.of()
    book.ask()
    book.receive(reply("", called(1), reason="length"))
    assert (book.run.stop, book.run.defect) == (Stop.EXHAUSTED, "cut_off")
    assert book.seen[-1] == ReplyFinished("length")


def test_an_empty_answer_is_not_added_to_the_history() -> None:
    book = RunBook.of()
    book.ask()
    assert book.receive(()) == []
    book.receive(reply(" "))
    assert (book.run.stop, book.run.added) == (Stop.ANSWERED, ())


def test_a_failed_turn_ends_the_run_with_its_defect() -> None:
    book = RunBook.of()
    book.round()
    book.ask()
    book.run.fail("steps_missing")
    assert (book.run.stop, book.run.defect) == (Stop.EXHAUSTED, "steps_missing")
    assert book.roles == ["assistant", "tool"]


def play_to(state: RunState) -> RunBook:
    """Start a run and advance it until it is in `state`."""
    book = RunBook.of()
    if state is not RunState.READY:
        book.ask()
    if state in (RunState.CALLED, RunState.EXECUTING):
        book.receive(reply("", CLIENT_CALL, called(1)))
    if state is RunState.EXECUTING:
        book.run.next_step()
    assert book.run.state is state
    return book


@pytest.mark.parametrize(
    ("state", "texts"),
    [
        (RunState.READY, []),
        (RunState.ASKING, []),
        (RunState.CALLED, ["Not run yet", "Not run: "]),
        (RunState.EXECUTING, ["Not run yet", "Error: cancelled"]),
    ],
)
def test_a_run_can_be_canceled_in_any_state_and_pending_calls_get_a_note(
    state: RunState, texts: list[str]
) -> None:
    book = play_to(state)
    book.run.cancel()
    assert (book.run.stop, book.run.next_step()) == (Stop.CANCELLED, None)
    notes = [message for message in book.run.added if message.role == "tool"]
    assert [note.text.startswith(text) for note, text in zip(notes, texts, strict=True)] == [
        True for _ in texts
    ]
    assert all(note.failed for note in notes)
    book.run.cancel()
    assert len(book.run.added) == len(texts) + bool(texts)


def test_a_result_that_arrived_before_a_cancellation_is_kept() -> None:
    book = RunBook.of()
    book.ask()
    book.receive(reply("", called(1), called(2)))
    assert book.run.next_step() is not None
    book.run.finish(done(called(2), "it is booked"))
    book.run.cancel()
    texts = [message.text for message in book.run.added if message.role == "tool"]
    assert [text[:16] for text in texts] == ["Error: cancelled", "it is booked"]
    assert [outcome.status for outcome in book.run.rounds[0].outcomes] == [
        Status.CANCELLED,
        Status.DONE,
    ]


@pytest.mark.parametrize(
    ("window", "calls", "chars"),
    [
        (None, 1, 16_000),
        (None, 8, 16_000),
        (8_192, 1, 6_144),
        (8_192, 3, 2_048),
        (8_192, 100, 200),
        (131_072, 1, 16_000),
        (8_192, 0, 6_144),
    ],
)
def test_the_results_of_a_round_share_a_quarter_of_the_window(
    window: int | None, calls: int, chars: int
) -> None:
    assert RunConfig(frozenset(), window=window).chars_for(calls) == chars
