import pytest
from msgspec.structs import replace

from proxy.conversation.json import JsonObject
from proxy.conversation.replies import (
    PromptProgress,
    ReasoningDelta,
    ReplyEvent,
    ReplyFinished,
    ReplyStarted,
    ReplyUnreadable,
    TextDelta,
    ToolCallArgumentsDelta,
    ToolCalled,
    ToolCallStarted,
    UsageReported,
)
from proxy.conversation.requests import Parsing
from proxy.conversation.tools import NamedTool, ToolCall, ToolUse
from proxy.errors import GuardrailsExhausted
from proxy.facts import (
    Asked,
    Dropped,
    LadderEnded,
    RejectedReply,
    ReplyOutcome,
    Rescued,
    attempts,
    outcome,
)
from proxy.guardrails.offer import Mode, TextPolicy
from proxy.guardrails.rescue.formats import FORMATS, Format
from proxy.guardrails.verdict import Accepted
from proxy.inference.plan import Policy
from proxy.inference.reply_reader import PassthroughReader
from proxy.inference.turn import Candidate, TurnState, annotate, choose_better
from tests.fakes.playbook import (
    WEATHER,
    CountedIds,
    Playbook,
    call,
    make_request,
    make_tool,
    shown_text,
    write,
)

NOTHING, ONE, TWO = Accepted(" "), Accepted("One."), Accepted("Two.")
CALL = Accepted("", (ToolCall("a", "get_time", "{}"),))


def best_of(*answers: Accepted, is_resumed: bool = False) -> Accepted:
    """Return the answer that `choose_better` keeps after it has compared all answers in order."""
    best: Candidate | None = None
    for answer in answers:
        candidate = Candidate(answer, PassthroughReader(CountedIds()), None)
        best = choose_better(best, candidate, is_resumed=is_resumed)
    assert best is not None
    return best.answer


@pytest.mark.parametrize(
    ("answers", "best"),
    [
        ((ONE,), ONE),
        ((NOTHING,), NOTHING),
        ((ONE, TWO), TWO),
        ((ONE, NOTHING), ONE),
        ((ONE, CALL), CALL),
        ((CALL, TWO), CALL),
    ],
)
def test_calls_are_preferred_to_text_and_later_text_to_earlier_text(
    answers: tuple[Accepted, ...], best: Accepted
) -> None:
    assert best_of(*answers) is best


def test_shown_text_is_not_replaced_by_later_text() -> None:
    assert best_of(ONE, TWO, is_resumed=True) is ONE
    assert best_of(ONE, CALL, is_resumed=True) is CALL


FIRST = UsageReported({"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15})
SECOND = UsageReported({"prompt_tokens": 20, "completion_tokens": 7, "total_tokens": 27}, {"x": 1})


def test_the_usage_of_one_attempt_is_unchanged() -> None:
    assert annotate(FIRST, [FIRST]) is FIRST


def test_the_usage_of_the_last_attempt_gets_a_member_with_the_sums_of_all_attempts() -> None:
    usage_event = annotate(SECOND, [FIRST, SECOND])
    sums = {"prompt_tokens": 30, "completion_tokens": 12, "total_tokens": 42}
    assert usage_event.timings == {"x": 1}
    assert usage_event.usage == {**SECOND.usage, "temper": {"attempts": 2, **sums}}


def test_missing_or_invalid_token_counts_are_summed_as_zero() -> None:
    usages: list[JsonObject] = [{}, {"completion_tokens": None}, {"completion_tokens": "7"}]
    sums = dict.fromkeys(("prompt_tokens", "completion_tokens", "total_tokens"), 0)
    usage_event = annotate(FIRST, [UsageReported(usage) for usage in usages])
    assert usage_event.usage["temper"] == {"attempts": 3, **sums}


ACCEPT = Policy(text_policy=TextPolicy.ACCEPT)
RESPOND = Policy(text_policy=TextPolicy.RESPOND)
REQUIRE = Policy(text_policy=TextPolicy.REQUIRE)
PARIS = '{"city": "Paris"}'
BAD_UNIT = '{"city": "Paris", "unit": "kelvin"}'
LEAKED = '<tool_call>{"name": "get_time", "arguments": {}}</tool_call>'


def test_a_valid_call_reaches_the_client_unchanged() -> None:
    book = Playbook.of(make_request()).ask()
    call(book, "get_weather", PARIS)
    book.expect(ToolCalled(0, ToolCall("backend_id", "get_weather", PARIS)))
    book.expect(ReplyFinished("tool_calls"))
    book.end()
    assert outcome(book.turn.facts) is ReplyOutcome.CLEAN


def test_without_tools_every_event_is_shown_unchanged() -> None:
    book = Playbook.of(make_request(tools=())).ask()
    book.receive(ReplyStarted("id")).expect(ReplyStarted("id"))
    book.receive(ReasoningDelta("hm")).expect(ReasoningDelta("hm"))
    book.receive(TextDelta("<tool_call>", [1])).expect(TextDelta("<tool_call>", [1]))
    book.receive(PromptProgress(3, 1, 2)).expect(PromptProgress(3, 1, 2))
    book.receive(UsageReported({"total_tokens": 3}))
    book.receive(ReplyFinished("length"))
    book.expect(UsageReported({"total_tokens": 3}), ReplyFinished("length"))
    book.end()


def test_with_guardrails_off_an_invalid_call_is_returned_unchanged() -> None:
    book = Playbook.of(make_request(), Policy(mode=Mode.OFF)).ask()
    call(book, "launch_rocket", "{broken")
    book.expect(ToolCalled(0, ToolCall("backend_id", "launch_rocket", "{broken")))
    book.expect(ReplyFinished("tool_calls"))
    book.end()


def test_text_like_a_call_is_returned_unchanged_if_tool_choice_is_none() -> None:
    book = Playbook.of(make_request(choice=ToolUse.NONE)).ask()
    book.receive(TextDelta(LEAKED)).expect(TextDelta(LEAKED))
    book.receive(ReplyFinished("stop")).expect(ReplyFinished("stop"))
    book.end()


def test_with_tool_choice_none_a_call_is_retried_but_dropped_if_text_was_shown() -> None:
    book = Playbook.of(make_request(choice=ToolUse.NONE)).ask()
    call(book, "get_weather", PARIS)
    book.ask()
    assert "words" in str(book.last_message["content"])
    write(book, "It is sunny.")
    assert shown_text(book) == "It is sunny."
    assert ReplyFinished("stop") in book.shown
    assert outcome(book.turn.facts) is ReplyOutcome.RETRIED
    again = Playbook.of(make_request(choice=ToolUse.NONE)).ask()
    again.receive(TextDelta("It is sunny.")).expect(TextDelta("It is sunny."))
    call(again, "get_weather", PARIS)
    again.expect(ReplyFinished("stop"))
    again.end()
    assert Dropped("forbidden_call") in again.turn.facts


def test_with_tool_choice_none_a_second_reply_with_a_call_ends_the_turn() -> None:
    book = Playbook.of(make_request(choice=ToolUse.NONE)).ask()
    call(book, "get_weather", PARIS)
    call(book.ask(), "get_weather", PARIS)
    assert "no usable reply" in shown_text(book)
    assert book.shown[-1] == ReplyFinished("stop")
    assert outcome(book.turn.facts) is ReplyOutcome.EXHAUSTED


PLANET: JsonObject = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "moons": {"type": "integer"}},
    "required": ["name", "moons"],
}
MARS = '{"name": "Mars",  "moons": 2}'


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("has_tools", [True, False])
@pytest.mark.parametrize(
    ("thoughts", "text"),
    [
        ("", MARS),
        ("", f"```json\n{MARS}\n```"),
        (MARS, ""),
        (f"It has two moons.\n{MARS}\n", ""),
        (f"It has two moons.\n```json\n{MARS}\n```", "\n"),
    ],
)
def test_a_structured_answer_in_reasoning_or_in_a_code_fence_is_returned(
    thoughts: str, text: str, has_tools: bool, stream: bool
) -> None:
    tools = (WEATHER,) if has_tools else ()
    request = make_request(tools=tools, answer_schema=PLANET, stream=stream)
    book = Playbook.of(request).ask()
    book.receive(*map(ReasoningDelta, thoughts))
    write(book, text)
    assert shown_text(book) == MARS
    assert book.shown[-1] == ReplyFinished("stop")
    assert (outcome(book.turn.facts) is ReplyOutcome.CLEAN) is (text == MARS)


@pytest.mark.parametrize("bad", ["Mars has two.", '{"name": "Mars"}', ""])
def test_without_tools_an_answer_that_violates_its_schema_is_retried(bad: str) -> None:
    book = Playbook.of(make_request(tools=(), answer_schema=PLANET)).ask()
    write(book, bad)
    assert shown_text(book) == ""
    write(book.ask(), MARS)
    assert shown_text(book) == MARS
    assert outcome(book.turn.facts) is ReplyOutcome.RETRIED


def test_without_tools_a_structured_answer_is_streamed() -> None:
    book = Playbook.of(make_request(tools=(), answer_schema=PLANET, stream=True)).ask()
    book.receive(TextDelta(" ")).expect()
    book.receive(TextDelta('{"name":')).expect(TextDelta(' {"name":'))
    book.receive(TextDelta(" 1}")).expect(TextDelta(" 1}"))
    book.receive(ReplyFinished("stop")).expect(ReplyFinished("stop"))
    book.end()


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("policy", [Policy(), ACCEPT])
@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("respond", '{"message": "It is sunny."}'),
        ("final_answer", '{"answer": "It is sunny."}'),
        ("functions.finish", '{"result": "It is sunny."}'),
    ],
)
def test_a_call_of_a_respond_tool_that_was_not_offered_becomes_text(
    name: str, arguments: str, policy: Policy, stream: bool
) -> None:
    book = Playbook.of(make_request(stream=stream), policy).ask()
    call(book, name, arguments)
    assert shown_text(book) == "It is sunny."
    assert book.shown[-1] == ReplyFinished("stop")
    book = Playbook.of(make_request(stream=stream), policy).ask()
    leaked = f'<tool_call>{{"name": "{name}", "arguments": {arguments}}}</tool_call>'
    assert shown_text(write(book, leaked)) == "It is sunny."
    assert book.turn.next_request() is None


CALL_WITHOUT_ITS_START = "<arg_key>city</arg_key><arg_value>Paris</arg_value></tool_call>"


def test_text_that_is_the_end_of_a_call_is_not_shown_with_the_structured_call() -> None:
    book = Playbook.of(make_request()).ask()
    for start in range(0, len(CALL_WITHOUT_ITS_START), 5):
        book.receive(TextDelta(CALL_WITHOUT_ITS_START[start : start + 5]))
    call(book, "get_weather", PARIS)
    book.expect(ToolCalled(0, ToolCall("backend_id", "get_weather", PARIS)))
    book.expect(ReplyFinished("tool_calls")).end()
    assert outcome(book.turn.facts) is ReplyOutcome.REPAIRED
    book = Playbook.of(make_request()).ask()
    book.receive(TextDelta(CALL_WITHOUT_ITS_START))
    call(book, "get_weather", "{}")
    call(book.ask(), "get_weather", PARIS)
    assert shown_text(book) == ""


@pytest.mark.parametrize("stream", [True, False])
def test_a_call_with_a_closing_mark_in_a_value_is_retried_once(stream: bool) -> None:
    book = Playbook.of(make_request(stream=stream)).ask()
    call(book, "get_weather", '{"city": "Paris</parameter>"}')
    book.shown.clear()
    call(book.ask(), "get_weather", PARIS)
    assert outcome(book.turn.facts) is ReplyOutcome.RETRIED
    book = Playbook.of(make_request(stream=stream)).ask()
    for _ in range(2):
        call(book, "get_weather", '{"city": "Paris</parameter>"}')
        book.shown.clear()
        if book.turn.state is TurnState.ASKING:
            book.ask()
    assert outcome(book.turn.facts) is ReplyOutcome.RETRIED
    book = Playbook.of(make_request(stream=stream)).ask()
    call(book, "get_weather<arg_key>city</arg_key><arg_value>Paris</arg_value>", "{}")
    assert any("Paris" in str(event) for event in book.shown)
    assert outcome(book.turn.facts) is ReplyOutcome.REPAIRED


def test_a_client_tool_with_the_name_of_an_answer_tool_is_called() -> None:
    tool = make_tool("finish", {"type": "object", "properties": {"result": {"type": "string"}}})
    book = Playbook.of(make_request(tools=(tool,))).ask()
    call(book, "finish", '{"result": "Done."}')
    book.expect(ToolCalled(0, ToolCall("backend_id", "finish", '{"result": "Done."}')))
    book = Playbook.of(make_request(tools=(WEATHER,))).ask()
    call(book, "finish", '{"result": "Done.", "code": "0"}')
    assert RejectedReply("unknown_tool") in book.turn.facts


@pytest.mark.parametrize("is_text", [True, False])
def test_the_message_of_a_respond_tool_that_was_not_offered_is_streamed(is_text: bool) -> None:
    book = Playbook.of(make_request(stream=True)).ask()
    if is_text:
        book.receive(TextDelta('<tool_call>{"name": "respond", "arguments": {"mess'))
    else:
        book.receive(ToolCallStarted(0, "x", "respond"))
        book.receive(ToolCallArgumentsDelta(0, '{"mess'))
    for piece, shown in (('age": "It is', "It is"), (" sunny.", " sunny."), ('"}', None)):
        delta = TextDelta(piece) if is_text else ToolCallArgumentsDelta(0, piece)
        book.receive(delta).expect(*([] if shown is None else [TextDelta(shown)]))
    end = [TextDelta("}</tool_call>")] if is_text else []
    book.receive(*end, ReplyFinished("stop")).expect(ReplyFinished("stop"))
    book.end()


# These formats are read only for an offered tool: `repeated_result` copies a tool result, and the
# other formats need the parameters of the tool.
NEED_A_TOOL = ("repeated_result", "tool_attributes", "tool_pairs", "inline_calls")


@pytest.mark.parametrize("row", [row for row in FORMATS.values() if row.shape != "quoted"])
def test_a_call_of_an_answer_tool_that_was_not_offered_is_read_in_every_format(row: Format) -> None:
    reply = row.example.removeprefix("\n").replace("get_weather", "final_answer")
    reply = reply.replace("city", "answer").replace("Paris", "It is sunny.")
    for pieces in ([reply], [*reply]):
        book = Playbook.of(make_request(stream=True)).ask()
        book.receive(*map(TextDelta, pieces), ReplyFinished("stop"))
        is_read = shown_text(book).endswith("It is sunny.") and book.turn.next_request() is None
        assert is_read is (row.name not in NEED_A_TOOL)


def test_a_call_is_kept_if_it_follows_a_call_of_a_respond_tool_that_was_not_offered() -> None:
    book = Playbook.of(make_request()).ask()
    book.receive(ToolCallStarted(0, "x", "respond"))
    book.receive(ToolCallArgumentsDelta(0, '{"message": "I look."}'))
    book.receive(ToolCallStarted(1, "y", "get_weather"))
    book.receive(ToolCallArgumentsDelta(1, PARIS), ReplyFinished("tool_calls"))
    assert shown_text(book) == "I look."
    assert ToolCalled(0, ToolCall("y", "get_weather", PARIS)) in book.shown
    assert book.turn.next_request() is None


@pytest.mark.parametrize(
    "arguments", ['{"message": "It is "noon"."}', '{"message": "It is "noon".']
)
def test_the_streamed_message_of_a_broken_respond_call_is_the_answer(arguments: str) -> None:
    book = Playbook.of(make_request(stream=True)).ask()
    call(book, "respond", arguments)
    assert shown_text(book) == 'It is "noon".'
    assert book.turn.next_request() is None


def test_an_answer_tool_that_was_not_offered_is_rejected_if_there_is_a_response_format() -> None:
    book = Playbook.of(make_request(answer_schema=PLANET)).ask()
    call(book, "final_answer", '{"name": "Mars"}')
    assert RejectedReply("unknown_tool") in book.turn.facts


def test_accepted_prose_is_shown_while_it_arrives() -> None:
    book = Playbook.of(make_request(), ACCEPT).ask()
    book.receive(TextDelta("It is")).expect(TextDelta("It is"))
    assert book.turn.state is TurnState.COMMITTED
    book.receive(TextDelta(" sunny.")).expect(TextDelta(" sunny."))
    book.receive(ReplyFinished("stop")).expect(ReplyFinished("stop"))
    book.end()


def test_the_message_of_respond_is_streamed_while_it_arrives() -> None:
    book = Playbook.of(make_request(), RESPOND).ask()
    book.receive(ToolCallStarted(0, "x", "respond"))
    book.receive(ToolCallArgumentsDelta(0, '{"mess'))
    book.receive(ToolCallArgumentsDelta(0, 'age": "It is')).expect(TextDelta("It is"))
    book.receive(ToolCallArgumentsDelta(0, " 20\\u00b")).expect(TextDelta(" 20"))
    book.receive(ToolCallArgumentsDelta(0, '0."}')).expect(TextDelta("°."))
    book.receive(ReplyFinished("tool_calls")).expect(ReplyFinished("stop"))
    book.end()


def test_the_message_of_a_respond_call_written_as_text_is_streamed() -> None:
    book = Playbook.of(make_request(), RESPOND).ask()
    book.receive(TextDelta('<tool_call>{"name": "respond", "arguments": {"message": "Good'))
    book.expect(TextDelta("Good"))
    book.receive(TextDelta(' day."}}</tool_call>')).expect(TextDelta(" day."))
    book.receive(ReplyFinished("stop")).expect(ReplyFinished("stop"))
    book.end()
    assert outcome(book.turn.facts) is ReplyOutcome.REPAIRED


def test_a_call_written_as_text_becomes_a_call() -> None:
    book = Playbook.of(make_request(), RESPOND).ask()
    write(book, f"Let me look.\n{LEAKED}")
    book.expect(TextDelta("Let me look."), ToolCalled(0, ToolCall("made_1", "get_time", "{}")))
    book.expect(ReplyFinished("tool_calls"))
    book.end()
    assert Rescued("hermes", "get_time") in book.turn.facts


def test_a_call_after_respond_is_returned_with_the_message_of_respond() -> None:
    book = Playbook.of(make_request(), RESPOND).ask()
    book.receive(ToolCallStarted(0, "a", "respond"))
    book.receive(ToolCallArgumentsDelta(0, '{"message": "Looking."}')).expect(TextDelta("Looking."))
    book.receive(ToolCallStarted(1, "b", "get_time"), ToolCallArgumentsDelta(1, "{}"))
    book.receive(ReplyFinished("tool_calls"))
    book.expect(ToolCalled(0, ToolCall("b", "get_time", "{}")), ReplyFinished("tool_calls"))
    book.end()


def test_under_the_policy_respond_prose_is_nudged_and_then_the_message_is_returned() -> None:
    book = Playbook.of(make_request(), RESPOND).ask()
    write(book, "It is sunny.")
    book.ask()
    assert book.last_message["role"] == "user"
    assert "respond" in str(book.last_message["content"])
    call(book, "respond", '{"message": "Sunny."}')
    assert "".join(part.text for part in book.shown[:-1] if isinstance(part, TextDelta)) == "Sunny."
    book.shown.clear()
    book.end()
    assert outcome(book.turn.facts) is ReplyOutcome.RETRIED


def test_prose_in_the_reply_to_a_nudge_is_the_answer_and_is_streamed() -> None:
    book = Playbook.of(make_request(), RESPOND).ask()
    write(book, "It is sunny.")
    book.ask()
    book.receive(TextDelta("As I")).expect(TextDelta("As I"))
    book.receive(TextDelta(" said.")).expect(TextDelta(" said."))
    book.receive(ReplyFinished("stop")).expect(ReplyFinished("stop"))
    book.end()
    assert attempts(book.turn.facts) == 2
    assert outcome(book.turn.facts) is ReplyOutcome.RETRIED


def test_two_empty_replies_end_the_turn_with_a_message() -> None:
    book = Playbook.of(make_request()).ask()
    book.receive(ReplyFinished("stop"))
    book.ask()
    book.receive(ReplyFinished("stop"))
    message = "The model gave no usable reply in 2 attempts: an empty reply."
    book.expect(TextDelta(message), ReplyFinished("stop"))
    book.end()


def test_prose_for_a_required_call_is_retried_until_the_constrained_attempt() -> None:
    book = Playbook.of(make_request(), REQUIRE).ask()
    write(book, "No.")
    book.ask()
    assert book.schema() is None
    write(book, "Never.")
    book.ask()
    assert book.schema() is not None
    assert book.upstream_request is not None
    assert book.upstream_request.parsing is Parsing.OURS
    write(book, '{"name": "get_time", "arguments": {}}')
    book.expect(ToolCalled(0, ToolCall("made_1", "get_time", "{}")), ReplyFinished("tool_calls"))
    book.end()


def test_prose_and_other_calls_are_retried_until_the_named_tool_is_called() -> None:
    book = Playbook.of(make_request(choice=NamedTool("get_time")), ACCEPT).ask()
    write(book, "Noon.")
    book.ask()
    call(book, "get_weather", PARIS)
    book.ask()
    assert book.upstream_request is not None
    assert "get_weather" not in str(book.upstream_request.schema)
    write(book, '{"name": "get_time", "arguments": {}}')
    book.expect(ToolCalled(0, ToolCall("made_1", "get_time", "{}")), ReplyFinished("tool_calls"))
    book.end()


def test_a_call_outside_of_the_allowed_tools_is_retried_and_not_returned() -> None:
    request = replace(make_request(), allowed_tools=frozenset(("get_time",)))
    book = Playbook.of(request, ACCEPT).ask()
    call(book, "get_weather", PARIS)
    book.ask()
    assert book.upstream_request is not None
    assert "must not be called now. Call get_time." in book.upstream_request.messages[-1].text
    assert book.upstream_request.tools == request.tools  # unchanged tools keep the prompt cache
    call(book, "get_weather", PARIS)
    book.ask()
    assert "get_weather" not in str(book.schema())
    write(book, '{"name": "get_time", "arguments": {}}')
    book.expect(ToolCalled(0, ToolCall("made_1", "get_time", "{}")), ReplyFinished("tool_calls"))
    book.end()


def test_the_error_of_a_schema_violation_is_sent_as_a_tool_result() -> None:
    book = Playbook.of(make_request()).ask()
    call(book, "get_weather", BAD_UNIT)
    book.ask()
    assert book.last_message["role"] == "tool"
    assert book.last_message["tool_call_id"] == "backend_id"
    assert "/unit" in str(book.last_message["content"])
    call(book, "get_weather", PARIS)
    book.expect(ToolCalled(0, ToolCall("backend_id", "get_weather", PARIS)))
    book.expect(ReplyFinished("tool_calls"))
    book.end()


def test_each_retry_appends_messages_without_changing_earlier_messages() -> None:
    book = Playbook.of(make_request(), REQUIRE).ask()
    assert book.upstream_request is not None
    first = book.upstream_request.messages
    write(book, "No.")
    book.ask()
    second = book.upstream_request.messages
    call(book, "get_weather", BAD_UNIT)
    book.ask()
    third = book.upstream_request.messages
    assert second[: len(first)] == first
    assert third[: len(second)] == second
    assert len(third) > len(second) > len(first)


def test_after_three_invalid_calls_the_answer_says_the_reason_and_has_no_call() -> None:
    book = Playbook.of(make_request()).ask()
    call(book, "get_weather", BAD_UNIT)
    book.ask()
    call(book, "get_weather", BAD_UNIT)
    book.ask()
    book.receive(TextDelta("Sorry."))
    call(book, "get_weather", BAD_UNIT)
    message = (
        "The model gave no usable reply in 3 attempts: invalid arguments (get_weather: "
        '/unit: expected one of "c", "f", got "kelvin").'
    )
    book.expect(TextDelta(message), ReplyFinished("stop"))
    book.end()
    assert LadderEnded("invalid_arguments") in book.turn.facts
    assert outcome(book.turn.facts) is ReplyOutcome.EXHAUSTED


CUT = '{"name": "get_weather", "arguments": {"ci'
BROKEN = "<tool_call>" + CUT
MARKUP = f"tool get_weather json{PARIS}"


@pytest.mark.parametrize(
    ("replies", "message"),
    [
        ([BROKEN, BROKEN, CUT], "broken arguments (get_weather)"),
        ([f"One moment. {BROKEN}", BROKEN, CUT], "broken arguments (get_weather)"),
        ([MARKUP, MARKUP], "a call in an unknown syntax (get_weather)"),
        (["", ""], "an empty reply"),
    ],
)
@pytest.mark.parametrize("explains", [True, False])
def test_after_broken_or_empty_replies_the_answer_contains_no_markup(
    replies: list[str], message: str, explains: bool
) -> None:
    book = Playbook.of(make_request(), Policy(explains=explains)).ask()
    shown: list[ReplyEvent] = []
    for number, reply in enumerate(replies):
        if number:
            book.ask()
        write(book, reply)
        shown += book.shown
        book.shown.clear()
    book.end()
    text = "".join(event.text for event in shown if isinstance(event, TextDelta))
    assert shown[-1] == ReplyFinished("stop")
    before = "One moment." if "One" in replies[0] else ""
    expected = f"The model gave no usable reply in {len(replies)} attempts: {message}."
    assert text.strip() == f"{before}\n\n{expected * explains}".strip()
    assert outcome(book.turn.facts) is ReplyOutcome.EXHAUSTED


@pytest.mark.parametrize(
    "leftover", ['You are "}}\n</tool_call>', '<tool_response>{"a": 1}</tool_call>']
)
def test_the_end_of_a_call_or_a_copied_result_is_not_the_answer(leftover: str) -> None:
    """Small models write such text if no grammar constrains them."""
    book = Playbook.of(make_request(choice=ToolUse.REQUIRED)).ask()
    for _ in range(2):
        write(book, leftover)
        book.ask()
    call(book, "delete_file", "{}")
    message = "The model gave no usable reply in 3 attempts: an unknown tool (delete_file)."
    book.expect(TextDelta(message), ReplyFinished("stop"))
    book.end()


FENCED = f'```json\n{{"name": "get_weather", "arguments": {PARIS}}}\n```'


def test_only_a_constrained_attempt_reads_calls_in_text_if_rescue_is_disabled() -> None:
    policy = Policy(without=frozenset({"rescue"}), text_policy=TextPolicy.REQUIRE)
    book = Playbook.of(make_request(), policy).ask()
    for reply in (FENCED, f"<tool_call>{FENCED[8:-4]}</tool_call>"):
        write(book, reply)
        assert RejectedReply("prose") in book.turn.facts
        book.ask()
    assert not any(isinstance(fact, Rescued) for fact in book.turn.facts)
    assert book.schema() is not None
    write(book, FENCED[8:-4])
    book.expect(ToolCalled(0, ToolCall("made_1", "get_weather", PARIS.replace(": ", ":"))))
    book.expect(ReplyFinished("tool_calls"))
    book.end()


def test_the_nudge_after_a_truncated_call_says_that_the_call_was_cut_off() -> None:
    book = Playbook.of(make_request(), REQUIRE).ask()
    write(book, BROKEN, "length")
    book.ask()
    assert "cut off before the call was complete" in str(book.last_message["content"])
    book.receive(ToolCallStarted(0, "a", "get_weather"), ToolCallArgumentsDelta(0, '{"city": '))
    book.receive(ReplyFinished("length"))
    book.ask()
    write(book, CUT, "length")
    message = "The model gave no usable reply in 3 attempts: a truncated reply (get_weather)."
    book.expect(TextDelta(message), ReplyFinished("length"))
    book.end()


def test_a_strict_turn_raises_guardrails_exhausted_after_its_last_attempt() -> None:
    book = Playbook.of(make_request(), Policy(is_strict=True, attempts=1)).ask()
    with pytest.raises(GuardrailsExhausted) as raised:
        call(book, "launch_rocket", "{}")
    assert raised.value.attempts == 1
    assert raised.value.defect == "unknown_tool"
    book.end()


def test_a_strict_turn_with_one_attempt_accepts_prose() -> None:
    book = Playbook.of(make_request(), Policy(is_strict=True, attempts=1)).ask()
    write(book, "Yes.")
    book.expect(TextDelta("Yes."), ReplyFinished("stop"))
    book.end()


def test_a_reply_that_the_engine_cannot_parse_is_requested_as_raw_text() -> None:
    book = Playbook.of(make_request()).ask()
    book.receive(ReplyStarted("one")).expect(ReplyStarted("one"))
    book.receive(ReplyUnreadable("peg-native"))
    book.ask()
    assert book.upstream_request is not None
    assert book.upstream_request.parsing is Parsing.OURS
    book.receive(ReplyStarted("two"))
    write(book, LEAKED)
    book.expect(ToolCalled(0, ToolCall("made_1", "get_time", "{}")), ReplyFinished("tool_calls"))
    book.end()
    assert [fact for fact in book.turn.facts if isinstance(fact, Asked)] == [
        Asked("as_asked"),
        Asked("raw"),
    ]


def test_the_text_of_a_retry_is_dropped_if_text_was_shown_before() -> None:
    book = Playbook.of(make_request(), ACCEPT).ask()
    book.receive(TextDelta("Looking.")).expect(TextDelta("Looking."))
    call(book, "get_weather", BAD_UNIT)
    book.ask()
    assert book.turn.state is TurnState.COMMITTED
    book.receive(TextDelta("Sorry, again."))
    call(book, "get_weather", PARIS)
    book.expect(ToolCalled(0, ToolCall("backend_id", "get_weather", PARIS)))
    book.expect(ReplyFinished("tool_calls"))
    book.end()


def test_a_call_truncated_by_the_token_limit_is_never_completed() -> None:
    book = Playbook.of(make_request()).ask()
    call(book, "get_weather", '{"city": "Par', "length")
    book.expect(ReplyFinished("length"))
    book.end()


def test_a_leaked_call_truncated_by_the_token_limit_is_not_shown() -> None:
    book = Playbook.of(make_request()).ask()
    write(book, 'Well. <tool_call>{"name": "get_weather", "arguments": {"ci', "length")
    book.expect(TextDelta("Well."), ReplyFinished("length"))
    book.end()
    assert Dropped("cut_off_call") in book.turn.facts


def test_a_call_truncated_by_a_stop_string_is_never_completed() -> None:
    book = Playbook.of(make_request(stop_strings=True)).ask()
    call(book, "get_weather", '{"city": "Par')
    book.expect(ReplyFinished("length"))
    book.end()


def test_prose_truncated_by_the_token_limit_is_not_retried() -> None:
    book = Playbook.of(make_request()).ask()
    write(book, "It is", "length")
    book.expect(TextDelta("It is"), ReplyFinished("length"))
    book.end()


def test_the_usage_of_the_last_attempt_is_reported_with_the_sum_of_all_attempts() -> None:
    book = Playbook.of(make_request(), RESPOND).ask()
    book.receive(UsageReported({"total_tokens": 1}))
    write(book, "Prose.")
    book.ask()
    book.receive(UsageReported({"total_tokens": 2}))
    call(book, "get_time", "{}")
    book.expect(ToolCalled(0, ToolCall("backend_id", "get_time", "{}")))
    (usage, end) = book.shown
    assert isinstance(usage, UsageReported)
    assert usage.usage["total_tokens"] == 2
    assert usage.usage["temper"] == {
        "attempts": 2, "prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 3
    }  # fmt: skip
    assert end == ReplyFinished("tool_calls")


@pytest.mark.parametrize(("first_tokens", "bound"), [(100, 512), (400, 800), (None, None)])
def test_max_tokens_of_the_constrained_attempt_depend_on_the_tokens_of_the_first_attempt(
    first_tokens: int | None, bound: int | None
) -> None:
    book = Playbook.of(make_request(), REQUIRE).ask()
    for tokens in (first_tokens, 9_000):
        book.receive(UsageReported({"completion_tokens": tokens}))
        write(book, "No.")
        book.ask()
    assert book.schema() is not None
    assert book.upstream_request is not None
    assert book.upstream_request.request.max_tokens == bound


def test_text_of_a_constrained_attempt_does_not_replace_earlier_prose() -> None:
    book = Playbook.of(make_request(), REQUIRE).ask()
    write(book, "No.")
    book.ask()
    write(book, "I cannot.")
    book.ask()
    write(book, "It is noon.")
    book.expect(TextDelta("I cannot."), ReplyFinished("stop"))
    book.end()


def test_abandon_returns_the_earlier_answer_if_a_retry_fails() -> None:
    book = Playbook.of(make_request(), RESPOND).ask()
    write(book, "It is sunny.")
    book.ask()
    book.shown += book.turn.abandon()
    book.expect(TextDelta("It is sunny."), ReplyFinished("stop"))
    book.end()


def test_abandon_returns_nothing_if_the_first_attempt_fails() -> None:
    book = Playbook.of(make_request()).ask()
    assert book.turn.abandon() == ()


def test_abandon_returns_nothing_after_a_call_of_an_unknown_tool() -> None:
    book = Playbook.of(make_request()).ask()
    call(book, "launch_rocket", "{}")
    book.ask()
    assert book.turn.abandon() == ()


def test_abandon_returns_nothing_after_text_of_the_retry_was_shown() -> None:
    book = Playbook.of(make_request(), RESPOND).ask()
    write(book, "It is sunny.")
    book.ask()
    book.receive(TextDelta("It")).expect(TextDelta("It"))
    assert book.turn.abandon() == ()


def test_the_method_cut_off_ends_shown_text_with_the_finish_reason_length() -> None:
    book = Playbook.of(make_request(tools=())).ask()
    book.receive(TextDelta("and on")).expect(TextDelta("and on"))
    book.shown += book.turn.cut_off()
    book.expect(ReplyFinished("length"))
    book.end()


def test_the_method_cut_off_shows_held_text_without_a_partial_call() -> None:
    book = Playbook.of(make_request()).ask()
    book.receive(TextDelta("Let me see.\n"), TextDelta('<tool_call>\n{"name": "get_ti'))
    book.shown += book.turn.cut_off()
    assert book.shown.pop() == ReplyFinished("length")
    assert all(isinstance(event, TextDelta) for event in book.shown)


def test_the_method_cut_off_returns_prose_even_if_a_call_is_required() -> None:
    book = Playbook.of(make_request(choice=ToolUse.REQUIRED)).ask()
    book.receive(TextDelta("and on"))
    book.shown += book.turn.cut_off()
    book.expect(TextDelta("and on"), ReplyFinished("length"))
    book.end()


def test_the_method_cut_off_returns_nothing_before_the_first_content() -> None:
    book = Playbook.of(make_request())
    assert book.turn.cut_off() == ()
    book.ask()
    assert book.turn.cut_off() == ()


def test_an_invalid_call_after_a_shown_respond_message_ends_the_turn() -> None:
    book = Playbook.of(make_request(), RESPOND).ask()
    book.receive(ToolCallStarted(0, "a", "get_time"), ToolCallArgumentsDelta(0, "{}"))
    book.receive(ToolCallStarted(1, "b", "launch_rocket"), ToolCallArgumentsDelta(1, "{}"))
    book.receive(ReplyFinished("tool_calls"))
    book.ask()
    book.receive(ToolCallStarted(0, "c", "respond"))
    book.receive(ToolCallArgumentsDelta(0, '{"message": "Hm."}')).expect(TextDelta("Hm."))
    call(book, "launch_rocket", "{}")
    assert book.shown[-1] == ReplyFinished("stop")


def test_an_event_after_the_end_raises_assertion_error() -> None:
    book = Playbook.of(make_request(tools=())).ask()
    book.receive(ReplyFinished("stop"))
    with pytest.raises(AssertionError):
        book.turn.receive(ReplyFinished("stop"))


def test_a_broken_call_is_retried_and_never_shown() -> None:
    book = Playbook.of(make_request(), ACCEPT).ask()
    book.receive(TextDelta("Looking.\n")).expect(TextDelta("Looking."))
    write(book, '<tool_call>{"name": "get_weather", "arguments": {"city": }}</tool_call>')
    book.ask()
    assert "could not be read" in str(book.last_message["content"])
    call(book, "get_weather", PARIS)
    book.expect(ToolCalled(0, ToolCall("backend_id", "get_weather", PARIS)))
    book.expect(ReplyFinished("tool_calls"))
    book.end()


def test_text_before_a_lone_closing_reasoning_tag_is_shown_as_reasoning() -> None:
    book = Playbook.of(make_request(), RESPOND).ask()
    call(book, "get_weather", BAD_UNIT)
    book.ask()
    for text in ("Hm, Paris.\n", "</think>\n\n", "It is sunny."):
        book.receive(TextDelta(text))
    assert book.shown == []
    book.receive(ReplyFinished("stop")).expect(ReasoningDelta("Hm, Paris."))
    book.ask()
    write(book, '<tool_call>{"name": "respond", "arguments": {"message": "Sunny."}}</tool_call>')
    assert book.shown[0] == TextDelta("Sunny.")


def test_a_lone_closing_reasoning_tag_in_shown_text_is_kept() -> None:
    book = Playbook.of(make_request(), ACCEPT).ask()
    book.receive(TextDelta("Hm.\n</think>\nIt is sunny."), ReplyFinished("stop"))
    shown = "".join(event.text for event in book.shown if isinstance(event, TextDelta))
    assert shown == "Hm.\n</think>\nIt is sunny."


def test_observe_mode_shows_the_reply_unchanged_and_reports_the_rescue() -> None:
    book = Playbook.of(make_request(), Policy(mode=Mode.OBSERVE)).ask()
    assert book.upstream_request is not None
    assert [tool.name for tool in book.upstream_request.tools] == ["get_weather", "get_time"]
    book.receive(TextDelta(LEAKED)).expect(TextDelta(LEAKED))
    book.receive(ReplyFinished("stop")).expect(ReplyFinished("stop"))
    book.end()
    assert Rescued("hermes", "get_time") in book.turn.facts


def test_observe_mode_shows_an_invalid_call_and_reports_the_defect() -> None:
    book = Playbook.of(make_request(), Policy(mode=Mode.OBSERVE, is_strict=True)).ask()
    call(book, "get_weather", BAD_UNIT)
    book.expect(ToolCalled(0, ToolCall("backend_id", "get_weather", BAD_UNIT)))
    book.expect(ReplyFinished("tool_calls"))
    book.end()
    assert RejectedReply("invalid_arguments") in book.turn.facts
    assert attempts(book.turn.facts) == 1
