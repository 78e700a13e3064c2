from collections.abc import Callable
from contextlib import suppress

import pytest
from msgspec.structs import replace

from proxy.conversation.replies import (
    PromptProgress,
    ReasoningDelta,
    ReplyEvent,
    TextDelta,
    ToolCallArgumentsDelta,
    ToolCallStarted,
)
from proxy.conversation.tools import ToolUse, WrittenCall
from proxy.facts import Dropped, EndedThoughts, Refused, Rescued
from proxy.guardrails.offer import OfferedTools, TextPolicy
from proxy.guardrails.reading import ReadReply, ReplyReader
from proxy.guardrails.reasoning import EnoughHeardError
from proxy.guardrails.reply_text import ReplyPart, RespondText, WithheldText
from proxy.guardrails.rescue.findings import Prose
from proxy.guardrails.rescue.marks import REASONING, RESULTS
from proxy.guardrails.rescue.registry import order_syntaxes
from proxy.guardrails.rescue.syntax import MOST_CALLS
from proxy.guardrails.respond import make_respond_tool
from proxy.guardrails.tool_prompts.react import REACT_CONTRACT
from tests.fakes.arrivals import chunkings
from tests.fakes.playbook import CLOCK, WEATHER

OFFER = OfferedTools(
    (WEATHER, CLOCK), TextPolicy.RESPOND, order_syntaxes(()), make_respond_tool(())
)
PLAIN_CALL = '{"name": "get_time", "arguments": {}}'
CALL = f"<tool_call>{PLAIN_CALL}</tool_call>"
# How a model may write a mark.
CASES: list[Callable[[str], str]] = [
    str,
    str.upper,
    str.title,
    lambda mark: mark.replace(">", " >"),
]
RESPOND = '<tool_call>{"name": "respond", "arguments": {"message": "Hi \\u00e9!"}}</tool_call>'


def read(
    *events: ReplyEvent, offer: OfferedTools = OFFER, reason: str = "stop"
) -> tuple[list[ReplyPart], ReadReply]:
    reader = ReplyReader(offer)
    heard = [one for event in events for one in reader.read(event)]
    rest, reply = reader.finish(reason)
    return merge(heard + rest), reply


def merge(heard: list[ReplyPart]) -> list[ReplyPart]:
    """Join neighbours of one kind, so that results can be compared whatever the chunks were."""
    merged: list[ReplyPart] = []
    for one in heard:
        if merged and type(merged[-1]) is type(one):
            merged[-1] = replace(one, text=merged[-1].text + one.text)
        else:
            merged.append(one)
    return merged


def text_of(heard: list[ReplyPart]) -> str:
    return "".join(one.text for one in heard if not isinstance(one, ReasoningDelta))


@pytest.mark.parametrize(
    "written",
    [
        "Just prose.",
        CALL,
        f"Looking.\n{CALL}",
        f"{CALL}\nDone.",
        RESPOND,
        f"First.\n{RESPOND}",
        f"{RESPOND}\n{CALL}",
        f"<think>hm</think>\n{CALL}",
        "Use `<tool_call>` like this: `" + CALL + "`.",
        '<tool_call>{"name": "respond", "arguments": {"message": "Hi',
        '{"name": "get_time", "arguments": {}}',
    ],
)
def test_what_is_heard_does_not_depend_on_the_chunks(written: str) -> None:
    whole = read(TextDelta(written))
    assert text_of(whole[0]) == whole[1].text
    assert read(*(TextDelta(one) for one in written)) == whole
    for cut in range(1, len(written)):
        assert read(TextDelta(written[:cut]), TextDelta(written[cut:])) == whole


def test_prose_around_a_call_is_kept() -> None:
    _, reply = read(TextDelta(f"Looking.\n{CALL}\nDone."))
    assert reply.calls == (WrittenCall("get_time", {}),)
    assert reply.text.split() == ["Looking.", "Done."]
    assert reply.facts == (Rescued("hermes", "get_time"),)


def test_a_structured_call_is_collected() -> None:
    heard, reply = read(
        ToolCallStarted(1, "b", "get_weather"),
        ToolCallStarted(1, "c", "repeated"),
        ToolCallArgumentsDelta(1, '{"city":'),
        ToolCallArgumentsDelta(1, '"Paris"}'),
        ToolCallArgumentsDelta(7, "nobody's"),
        PromptProgress(1, 1, 1),
    )
    assert heard == []
    assert reply.calls == (WrittenCall("get_weather", '{"city":"Paris"}', "b"),)
    assert not reply.has_responded


def test_a_structured_respond_call_is_heard_as_a_message() -> None:
    heard, reply = read(
        TextDelta("Well."),
        ToolCallStarted(0, "a", "respond"),
        ToolCallArgumentsDelta(0, '{"message": "Hi'),
        ToolCallArgumentsDelta(0, '!"}'),
    )
    assert heard == [Prose("Well."), RespondText("\n\nHi!")]
    assert reply.text == "Well.\n\nHi!"
    assert reply.has_responded
    assert reply.calls == ()


@pytest.mark.parametrize("written", ["Well.\n\n", " \n", "Well. "])
def test_white_space_before_a_structured_call_is_heard_before_it(written: str) -> None:
    reader = ReplyReader(OFFER)
    heard = reader.read(TextDelta(written))
    heard += reader.read(ToolCallStarted(0, "a", "get_time"))
    assert text_of(heard) == written
    assert reader.finish("tool_calls")[1].text == written


def test_white_space_before_a_message_is_left_out() -> None:
    message = ToolCallArgumentsDelta(0, '{"message": "Hi!"}')
    heard, reply = read(TextDelta("\n\n"), ToolCallStarted(0, "a", "respond"), message)
    assert heard == [RespondText("Hi!")]
    assert reply.text == "Hi!"


def test_so_many_structured_calls_are_collected_and_no_more() -> None:
    events: list[ReplyEvent] = []
    for index in range(MOST_CALLS + 2):
        events += [
            ToolCallStarted(index, None, "get_time"),
            ToolCallArgumentsDelta(index, f'{{"at": {index}}}'),
        ]
    assert len(read(*events[: 2 * MOST_CALLS])[1].calls) == MOST_CALLS
    assert read(*events[: 2 * MOST_CALLS])[1].facts == ()
    reply = read(*events)[1]
    assert reply.calls[-1] == WrittenCall("get_time", f'{{"at": {MOST_CALLS - 1}}}')
    assert len(reply.calls) == MOST_CALLS
    assert reply.facts == (Dropped("too_many_calls"),)


def test_too_many_calls_in_the_text_are_reported() -> None:
    calls = (CALL.replace("{}", f'{{"at": {number}}}') for number in range(MOST_CALLS + 1))
    reply = read(TextDelta("\n".join(calls)))[1]
    assert len(reply.calls) == MOST_CALLS
    assert reply.facts[-1] == Dropped("too_many_calls")


OTHER = CALL.replace("get_time", "get_weather")


@pytest.mark.parametrize("times", [4, 20])
@pytest.mark.parametrize("end", ["", OTHER, "And so on."])
def test_a_call_that_is_written_again_and_again_counts_once(times: int, end: str) -> None:
    heard, reply = read(TextDelta("\n".join((OTHER, *[CALL] * times, end))))
    assert [call.name for call in reply.calls] == ["get_weather", "get_time"]
    assert reply.facts.count(Dropped("repeated_call")) == 1
    assert "And so on" not in reply.text or heard


@pytest.mark.parametrize(("times", "count"), [(1, 1), (2, 2), (3, 1)])
def test_three_copies_of_a_call_count_once(times: int, count: int) -> None:
    assert len(read(TextDelta(f"{CALL}\n" * times))[1].calls) == count


def test_structured_calls_are_never_counted() -> None:
    events = [ToolCallStarted(index, None, "get_time") for index in range(20)]
    assert len(read(*events)[1].calls) == 20


def test_who_repeats_itself_is_not_listened_to() -> None:
    reader = ReplyReader(OFFER)
    for _ in range(3):
        reader.read(TextDelta(f"{CALL}\n"))
    with pytest.raises(EnoughHeardError):
        reader.read(TextDelta(CALL))
    assert len(reader.finish("stop")[1].calls) == 1


ACTED = "Action: get_time\nAction Input: {}\n"
REACT = replace(OFFER, syntaxes=(REACT_CONTRACT, *order_syntaxes(())), respond=None)
TOLD = "<|start|>assistant<|channel|>commentary to=functions.get_time<|message|>{}<|call|>"
ANALYSIS = "<|start|>assistant<|channel|>analysis<|message|>It is noon.<|end|>"


def read_until_enough(pieces: list[str], offer: OfferedTools) -> tuple[list[ReplyPart], ReadReply]:
    reader = ReplyReader(offer)
    heard: list[ReplyPart] = []
    with suppress(EnoughHeardError):
        for piece in pieces:
            heard += reader.read(TextDelta(piece))
    rest, reply = reader.finish("stop")
    return merge(heard + rest), reply


@pytest.mark.parametrize(
    ("offer", "said", "behind"),
    [
        (OFFER, f"{CALL}\n", "That was an example."),
        (OFFER, TOLD, ANALYSIS),
        (OFFER, f"So.\n{CALL}\n", CALL),
        (REACT, f"{CALL}\n", "Thought: It is noon.\n"),
        (REACT, ACTED, ""),
    ],
)
def test_nothing_behind_one_call_too_many_counts_however_it_arrives(
    offer: OfferedTools, said: str, behind: str
) -> None:
    whole, *others = (read_until_enough(pieces, offer) for pieces in chunkings(said * 5 + behind))
    assert whole[1].calls == (WrittenCall("get_time", {}),)
    assert "noon" not in text_of(whole[0])
    assert not any(isinstance(one, ReasoningDelta) for one in whole[0])
    assert all(one == whole for one in others)


def test_a_malformed_respond_call_is_salvaged() -> None:
    heard, reply = read(
        ToolCallStarted(0, "a", "respond"), ToolCallArgumentsDelta(0, '{"answer": "Hi!"}')
    )
    assert heard == [RespondText("Hi!")]
    assert reply.has_responded


BOTCHED = '{"open": "None of!", "Palval", "priority": "high"}}'  # of the model of tests/engines


@pytest.mark.parametrize("said", ["", "Well.", "<tool_call>{,</tool_call>"])
def test_a_respond_call_that_nobody_can_read_is_no_message(said: str) -> None:
    heard, reply = read(
        TextDelta(said), ToolCallStarted(0, "a", "respond"), ToolCallArgumentsDelta(0, BOTCHED)
    )
    assert isinstance(heard[-1], WithheldText)
    assert heard[-1].text.endswith(BOTCHED)
    assert reply.is_broken
    assert BOTCHED not in reply.text_without_calls


def test_a_respond_call_that_was_cut_off_keeps_even_what_nobody_can_read() -> None:
    call = (ToolCallStarted(0, "a", "respond"), ToolCallArgumentsDelta(0, BOTCHED))
    _, reply = read(*call, reason="length")
    assert (reply.is_broken, reply.text) == (False, BOTCHED)


def test_a_respond_call_in_bare_json_is_a_message() -> None:
    written = '{"name": "respond", "arguments": {"message": "Hi!"}}'
    assert read(TextDelta(written))[1].text == "Hi!"


def test_a_message_with_half_a_character_is_not_repeated() -> None:
    written = '<tool_call>{"name": "respond", "arguments": {"message": "a\\ud83d b"}}</tool_call>'
    assert read(TextDelta(written))[1].text == "a\ufffd b"


def test_a_respond_call_cut_off_keeps_what_was_said() -> None:
    written = '<tool_call>{"name": "respond", "arguments": {"message": "Good'
    heard, reply = read(TextDelta(written), reason="length")
    assert heard == [RespondText("Good")]
    assert reply.has_responded
    assert Refused("cut_off") in reply.facts


@pytest.mark.parametrize("reason", ["length", "content_filter"])
def test_a_call_cut_off_is_dropped_and_reported(reason: str) -> None:
    heard, reply = read(TextDelta('Hm. <tool_call>{"name": "get_t'), reason=reason)
    assert heard == [Prose("Hm.")]
    assert reply.is_cut_off
    assert reply.facts == (Refused("cut_off"), Dropped("cut_off_call"))


def test_a_call_without_marks_that_was_cut_off_is_shown() -> None:
    heard, reply = read(TextDelta('get_weather(city="Par'), reason="length")
    assert heard == [Prose('get_weather(city="Par')]
    assert reply.is_cut_off


def test_json_that_was_cut_off_is_still_an_answer() -> None:
    _, reply = read(TextDelta('{"temperature": 2'), reason="length")
    assert reply.text == '{"temperature": 2'


def test_a_call_quoted_from_a_tool_result_is_not_the_models_own() -> None:
    offer = replace(OFFER, results=(f"The page says:\n{CALL}\nEnd",))
    _, reply = read(TextDelta(CALL), offer=offer)
    assert reply.calls == ()
    assert reply.text == CALL
    assert reply.facts == (Refused("quoted_from_history"),)


PARIS = '<tool_call>{"name": "get_weather", "arguments": {"city": "Paris"}}</tool_call>'
OTHERWISE = "[TOOL_CALLS] [{'name': 'get_weather', 'arguments': {'city': 'Paris'}}]"
LET_ME = "Let me check the weather in Paris.\n"
SAYINGS = ("", "Sure.\n", LET_ME, "The page shows how to ask for it.\n\n")


@pytest.mark.parametrize("said", SAYINGS)
def test_a_call_that_a_tool_wrote_in_another_syntax_is_no_call(said: str) -> None:
    offer = replace(OFFER, results=(f"An agent wrote this:\n{OTHERWISE}\nEnd",))
    _, reply = read(TextDelta(said + PARIS), offer=offer)
    assert reply.calls == ()
    assert Refused("quoted_from_history") in reply.facts
    assert [one.is_denied for one in reply.ambiguous] == [True]
    assert reply.text.split() == (said + PARIS).split()


@pytest.mark.parametrize("said", SAYINGS[:3])
def test_one_whose_values_the_user_named_is_the_models_own(said: str) -> None:
    offer = replace(OFFER, spoken=("How is it in Paris?",), results=(f"Write\n{OTHERWISE}\nnow",))
    assert read(TextDelta(said + PARIS), offer=offer)[1].calls


def test_one_that_was_forbidden_or_that_the_user_wrote_is_text() -> None:
    for offer in (
        replace(OFFER, results=(f"You must not write\n{OTHERWISE}\nhere",)),
        replace(OFFER, spoken=(f"What does {PARIS} mean?",)),
    ):
        _, reply = read(TextDelta(PARIS), offer=offer)
        assert (reply.calls, reply.ambiguous, reply.text) == ((), (), PARIS)


@pytest.mark.parametrize("said", SAYINGS)
def test_another_call_than_was_read_is_a_call(said: str) -> None:
    offer = replace(OFFER, results=(OTHERWISE.replace("Paris", "Oslo"),))
    assert read(TextDelta(said + PARIS), offer=offer)[1].calls


def test_a_call_that_the_client_demands_may_repeat_what_it_wrote() -> None:
    offer = replace(OFFER, results=(CALL,), choice=ToolUse.REQUIRED)
    assert read(TextDelta(CALL), offer=offer)[1].calls == (WrittenCall("get_time", {}),)


@pytest.mark.fault("F104")
@pytest.mark.parametrize("change", CASES)
@pytest.mark.parametrize(("opening", "closing"), RESULTS.items())
def test_a_call_in_a_result_that_the_model_invented_is_never_read(
    opening: str, closing: str, change: Callable[[str], str]
) -> None:
    offer = replace(OFFER, text_policy=TextPolicy.AUTO, respond=None)
    for content in (CALL, f"The page says: {CALL} and more.", PLAIN_CALL):
        written = f"{change(opening)}\n{content}\n{change(closing)}\nIt is sunny."
        whole = read(TextDelta(written), offer=offer)
        assert (whole[1].calls, whole[1].text.strip()) == ((), "It is sunny.")
        assert Dropped("invented_result") in whole[1].facts
        assert read(*map(TextDelta, written), offer=offer) == whole


@pytest.mark.fault("F104")
@pytest.mark.parametrize("change", CASES)
@pytest.mark.parametrize(("opening", "closing"), REASONING.items())
def test_a_call_within_reasoning_is_never_read(
    opening: str, closing: str, change: Callable[[str], str]
) -> None:
    written = f"{change(opening)}\nPerhaps\n{CALL}\nor not.\n{change(closing)}\n\nIt is sunny."
    whole = read(TextDelta(written))
    assert (whole[1].calls, whole[1].text) == ((), "It is sunny.")
    assert read(*map(TextDelta, written)) == whole


@pytest.mark.fault("F104")
@pytest.mark.parametrize(
    "inner", ["<tool_result>42</tool_result>", "]~b]TOOL\n42\n[e~[", "</think>"]
)
def test_an_invented_result_with_another_block_in_it_is_no_answer(inner: str) -> None:
    written = f"<tool_response>\nI look.\n{inner}\n</tool_response>\nIt is sunny."
    whole = read(TextDelta(written))
    assert (whole[1].calls, whole[1].text.strip()) == ((), "It is sunny.")
    assert read(*map(TextDelta, written)) == whole


def test_results_that_the_model_invented_are_dropped() -> None:
    _, reply = read(TextDelta(f"{CALL}\n<tool_response>\n12\n</tool_response>"))
    assert reply.calls == (WrittenCall("get_time", {}),)
    assert Dropped("invented_result") in reply.facts


def test_reasoning_in_the_text_is_split_off() -> None:
    heard, reply = read(TextDelta("<think>\nhm\n</think>\n\nFour."))
    assert heard == [ReasoningDelta("hm"), Prose("Four.")]
    assert reply.text == "Four."


def test_calls_inside_reasoning_do_not_count_beside_an_answer() -> None:
    _, reply = read(ReasoningDelta(CALL), TextDelta("Noon."))
    assert reply.calls == ()


def test_calls_inside_reasoning_count_when_there_is_nothing_else() -> None:
    _, reply = read(ReasoningDelta(f"I will call.\n{CALL}"))
    assert reply.calls == (WrittenCall("get_time", {}),)
    assert reply.facts == (Rescued("hermes", "get_time"),)


def test_unmarked_json_inside_reasoning_never_counts() -> None:
    _, reply = read(ReasoningDelta('{"name": "get_time", "arguments": {}}'))
    assert reply.calls == ()


def test_reasoning_that_was_cut_off_is_not_searched() -> None:
    assert read(ReasoningDelta(CALL), reason="length")[1].calls == ()


BROKEN = '<tool_call>{"name": "get_time", "arguments": {oh}}</tool_call>'


def test_a_call_that_nobody_can_read_is_broken() -> None:
    heard, reply = read(TextDelta(f"Hm.\n{BROKEN}"))
    assert heard == [Prose("Hm."), WithheldText(f"\n{BROKEN}")]
    assert reply.is_broken
    assert reply.facts == (Refused("broken"),)


def test_a_call_broken_where_a_stop_string_may_stand_counts_as_cut_off() -> None:
    heard, reply = read(TextDelta(BROKEN[:40]), offer=replace(OFFER, stop_strings=True))
    assert heard == []
    assert reply.is_cut_off
    assert not reply.is_broken


def test_a_call_quoted_in_prose_is_neither_botched_nor_hidden() -> None:
    heard, reply = read(TextDelta(f"Write `{BROKEN}`."))
    assert heard == [Prose(f"Write `{BROKEN}`.")]
    assert not reply.is_broken


def test_the_beginning_of_a_tag_that_never_comes_is_prose() -> None:
    assert read(TextDelta("<thi")) == ([Prose("<thi")], ReadReply("<thi"))


THOUGHT = f"I look:\n{CALL}\n</think>\n"


def test_calls_before_the_end_of_thoughts_do_not_count_beside_an_answer() -> None:
    _, reply = read(TextDelta(f"{THOUGHT}It is noon."))
    assert reply.calls == ()
    assert reply.facts == (Refused("in_thoughts"),)


def test_calls_before_the_end_of_thoughts_do_not_count_beside_others() -> None:
    _, reply = read(TextDelta(f"{THOUGHT}{CALL}"))
    assert [call.name for call in reply.calls] == ["get_time"]
    assert set(reply.facts) == {Refused("in_thoughts"), Rescued("hermes", "get_time")}


def test_calls_before_the_end_of_thoughts_count_when_there_is_nothing_else() -> None:
    _, reply = read(TextDelta(THOUGHT))
    assert [call.name for call in reply.calls] == ["get_time"]
    assert reply.facts == (Rescued("hermes", "get_time"),)


def test_tags_named_like_an_offered_tool_are_read() -> None:
    _, reply = read(TextDelta("<get_weather>\n<city>Paris</city>\n</get_weather>"))
    assert reply.calls == (WrittenCall("get_weather", {"city": "Paris"}),)


# Calls that thoughts go on behind, and calls that break.


@pytest.mark.parametrize("thoughts", [f"{CALL}\nNo.", f"{CALL}\nor\n{CALL}", f"{CALL} is one."])
def test_calls_that_the_reasoning_goes_on_behind_were_only_considered(thoughts: str) -> None:
    assert read(ReasoningDelta(thoughts))[1].calls == ()


def test_a_marked_call_before_plain_json_in_the_reasoning_does_not_count() -> None:
    json = '```json\n{"name": "get_time", "arguments": {}}\n```'
    assert read(ReasoningDelta(f"{CALL}\n{json}"))[1].calls == ()


def test_a_broken_call_in_the_reasoning_lets_no_other_count() -> None:
    _, reply = read(ReasoningDelta(f"{BROKEN}\n{CALL}"))
    assert reply.calls == ()
    assert not reply.is_broken


def test_all_calls_at_the_end_of_the_reasoning_count() -> None:
    assert len(read(ReasoningDelta(f"I call:\n{CALL}\n{OTHER}</s>\n"))[1].calls) == 2


def test_calls_that_unopened_thoughts_go_on_behind_were_only_considered() -> None:
    _, reply = read(TextDelta(f"{CALL}\nNo.\n</think>\n"))
    assert reply.calls == ()
    assert reply.facts == (Refused("in_thoughts"), EndedThoughts())


def test_a_call_that_breaks_and_ends_in_unopened_thoughts_botches_nothing() -> None:
    _, reply = read(TextDelta(f"It reads {BROKEN} then.\n</think>\n{CALL}"))
    assert not reply.is_broken
    assert reply.calls == (WrittenCall("get_time", {}),)


def test_a_call_that_breaks_without_an_end_botches_what_follows_the_thoughts() -> None:
    broken = BROKEN.removesuffix("</tool_call>")
    _, reply = read(TextDelta(f"So {broken} then.\n</think>\n{CALL}"))
    assert reply.is_broken
    assert reply.calls == ()
    assert reply.facts == (Refused("broken"), Refused("nested"), EndedThoughts())


def test_no_call_behind_a_broken_one_is_part_of_the_reply() -> None:
    _, reply = read(TextDelta(f"{CALL}\n{BROKEN}\n{CALL}"))
    assert len(reply.calls) == 1
    assert reply.is_broken


def test_calls_out_of_order_are_botched_but_no_sign_of_a_stop_string() -> None:
    text = f"I could send {CALL} first.\n{CALL}"
    for offer in (OFFER, replace(OFFER, stop_strings=True)):
        _, reply = read(TextDelta(text), offer=offer)
        assert reply.is_broken
        assert reply.calls == ()
        assert not reply.is_cut_off


WEATHER_CALL = '<tool_call>{"name": "get_weather", "arguments": {"city": "Paris"}}</tool_call>'


def test_a_call_with_words_on_its_line_is_doubted_if_it_is_fit() -> None:
    def ambiguous(text: str, offer: OfferedTools = OFFER) -> int:
        reply = read(TextDelta(f"{text} and more"), offer=offer)[1]
        assert reply.calls == ()
        return len(reply.ambiguous)

    assert ambiguous(WEATHER_CALL) == 1
    for unfit in ('"arguments": {"town": 1}', '"arguments": 7'):
        assert ambiguous(WEATHER_CALL.replace('"arguments": {"city": "Paris"}', unfit)) == 0
    unknown = WEATHER_CALL.replace("get_weather", "other")
    for tool, count in (("get_weather", 1), ("no_tool", 0)):
        assert ambiguous(unknown, replace(OFFER, aliases={"other": tool})) == count
    assert ambiguous(unknown) == 0


def test_words_behind_a_call_take_it_back() -> None:
    _, reply = read(TextDelta(f"Here.\n{CALL}\nThat was an example."))
    assert (reply.calls, reply.ambiguous) == ((), ())
    assert reply.text == f"Here.\n{CALL}\nThat was an example."
    assert reply.facts == (Refused("quoted"),)
    assert read(TextDelta(f"{CALL}\nThat was an example."))[1].ambiguous


OPENED = replace(OFFER, text_policy=TextPolicy.AUTO, respond=None, opens_thoughts=True)


def test_thoughts_that_the_prompt_had_opened_are_none_of_the_answer() -> None:
    heard, reply = read(TextDelta("I look.\n</think>\nIt is "), TextDelta("noon."), offer=OPENED)
    assert heard == [ReasoningDelta("I look."), Prose("It is noon.")]
    assert (reply.text, reply.facts) == ("It is noon.", (EndedThoughts(),))


def test_what_ends_in_thoughts_that_were_shown_is_noted() -> None:
    heard, reply = read(TextDelta("I look.\n</think>\nIt is noon."))
    assert text_of(heard) == reply.text == "I look.\n</think>\nIt is noon."
    assert reply.facts == (EndedThoughts(),)
    _, reply = read(TextDelta("First <think>.\n</think>\nIt is noon."))
    assert reply.facts == ()


def test_nothing_is_held_of_a_model_whose_thoughts_come_apart() -> None:
    reader = ReplyReader(OPENED)
    reader.read(ReasoningDelta("I look."))
    assert reader.read(TextDelta("It is noon.")) == [Prose("It is noon.")]


def test_a_call_that_the_backend_recognised_ends_what_may_have_been_thoughts() -> None:
    reader = ReplyReader(OPENED)
    assert reader.read(TextDelta("I look.")) == []
    assert reader.read(ToolCallStarted(0, "a", "get_time")) == [Prose("I look.")]
    reader = ReplyReader(OPENED)
    assert reader.read(TextDelta("I look.\n</think>")) == []
    assert reader.read(ToolCallStarted(0, "a", "get_time")) == [ReasoningDelta("I look.")]
    assert reader.finish("tool_calls")[1].text == ""


BEGINNINGS = [
    "<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>",
    "<|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>",
    '<|open|>call tool="get_weather"<|sep|><|open|>argument key=',
    "<tool_call>get_weather\n<arg_key",
    "[TOOL_CALLS]get_weather[ARGS]",
    "<|tool_call:start|>get_weather\n",
]


@pytest.mark.parametrize("text", BEGINNINGS)
@pytest.mark.parametrize("before", ["", "Let me look.\n"])
def test_a_call_that_ends_behind_its_name_was_meant_as_one(before: str, text: str) -> None:
    for pieces in chunkings(before + text):
        heard, reply = read(*map(TextDelta, pieces))
        assert (reply.is_broken, reply.calls) == (True, ())
        assert reply.text_without_calls.strip() == before.strip()
        assert Refused("not_closed") in reply.facts
        assert not any("get_weather" in one.text for one in heard if isinstance(one, Prose))


@pytest.mark.parametrize(
    "text",
    [
        "It is written as <tool_call>get_weather\n",
        "<tool_call>get_weather of today",
        "<tool_call>get_news\n",
        "<tool_call>\n<name>get_weather</name>",
        "<tool_call>hm <tool_call>{",
    ],
)
def test_what_is_only_like_the_beginning_of_a_call_is_left_alone(text: str) -> None:
    _, reply = read(TextDelta(text))
    assert Refused("not_closed") not in reply.facts
    assert reply.text.strip() == text.strip()


AUTO = replace(OFFER, text_policy=TextPolicy.AUTO, respond=None, spoken=("How warm is it?",))
PYTHON = '```python\nget_weather(city="Paris")\n```'
WORDS = 'commentary to=functions.get_weather json{"city": "Paris"}'
IN_PARIS = WrittenCall("get_weather", {"city": "Paris"})
KIMI = 'toolscall tool="get_weather" index="1"argument key="city" type="string"Paris'


def read_in_pieces(text: str, offer: OfferedTools = AUTO) -> ReadReply:
    """Read a reply cut in every way; the result must be the same."""
    _, reply = read(TextDelta(text), offer=offer)
    for pieces in chunkings(text):
        heard, other = read(*map(TextDelta, pieces), offer=offer)
        assert (other.text, other.calls) == (reply.text, reply.calls)
        shown = (one.text for one in heard if isinstance(one, Prose | WithheldText))
        assert "".join(shown) == reply.text
    return reply


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (PYTHON, ""),
        (f"I will get the weather.\n\n{PYTHON}", "I will get the weather."),
        (WORDS, ""),
        (f"analysisThey want the weather.assistant{WORDS}", ""),
        (f"{KIMI}argumentcalltools", ""),
        (f"{WORDS}call", ""),
        (WORDS.replace(" json", " jsonmessage"), ""),
        (WORDS.replace("commentary to=", "assistant to=").replace(" json", " commentary json"), ""),
        (PYTHON.replace("python", ""), ""),
        ('<function=get_weather{"city": "Paris"}></function>', ""),
        ('<function=get_weather({"city": "Paris"})</function>', ""),
    ],
)
def test_a_call_in_words_or_in_python_is_read(text: str, said: str) -> None:
    reply = read_in_pieces(text)
    assert (reply.text, reply.calls) == (said, (IN_PARIS,))


def test_calls_in_words_follow_one_another() -> None:
    time = WrittenCall("get_time", {})
    both = f"{WORDS}assistantcommentary to=functions.get_time json{{}}"
    assert read_in_pieces(both).calls == (IN_PARIS, time)
    both = f'{KIMI}argumentcallcall tool="get_time" index="2"calltools'
    assert read_in_pieces(both).calls == (IN_PARIS, time)


@pytest.mark.parametrize(
    "text",
    [
        f"Here is how you would do it:\n\n{PYTHON}",
        f"{PYTHON}\n\nThat is it.",
        f"The call is this one:\n\n{PYTHON.replace('python', '')}",
        "```python\nimport os\nget_weather(city='Paris')\n```",
        "```python\nget_weather(days='x')\n```",
        f"gpt-oss writes `{WORDS}` without its tokens.",
    ],
)
def test_python_and_words_that_are_shown_stay_text(text: str) -> None:
    reply = read_in_pieces(text)
    assert (reply.text, reply.calls) == (text, ())


@pytest.mark.parametrize("spoken", ["Use Python.", "How would I call get_weather?"])
def test_python_that_was_asked_for_stays_text(spoken: str) -> None:
    assert read_in_pieces(PYTHON, replace(AUTO, spoken=(spoken,))).text == PYTHON


@pytest.mark.parametrize(
    "text",
    [
        f"To call it, write:\n\n    {CALL}\n\nThat is the syntax.",
        "To call it, write:\n\n    <tool_call>...</tool_call>\n\nThat is the syntax.",
        f"I could do this:\n\n  {CALL}  \n\nShall I?",
        f"For example:\n\n{CALL}\n \n{CALL}\n\n\nThat is it.",
    ],
)
def test_a_call_that_stays_text_keeps_what_is_around_it(text: str) -> None:
    reply = read_in_pieces(text)
    assert (reply.text, reply.calls) == (text, ())


def test_stray_marks_are_reported() -> None:
    reply = read_in_pieces(f"<tool_call>\nOne moment.\n{CALL}")
    assert (reply.text, len(reply.calls)) == ("One moment.", 1)
    assert Dropped("stray_mark") in reply.facts
    assert read_in_pieces("Sure.</tool_call>").text == "Sure."
    assert read_in_pieces('Result: fo"}}\n</tool_call>').is_broken
    asked = replace(AUTO, spoken=("What is </tool_call>?",))
    assert read_in_pieces("An end.</tool_call>", asked).text == "An end.</tool_call>"
