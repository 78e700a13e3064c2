"""Tables of replies with the expected text, calls and facts; each is also read in chunks."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TypeAlias

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
from proxy.facts import Dropped, EndedThoughts, Fact, Refused, Rescued
from proxy.guardrails.offer import OfferedTools, TextPolicy
from proxy.guardrails.reading import ReadReply, ReplyReader, State
from proxy.guardrails.reasoning import EnoughReadError
from proxy.guardrails.reply_text import ReplyPart, RespondText, WithheldText
from proxy.guardrails.rescue.findings import Prose
from proxy.guardrails.rescue.marks import REASONING, RESULTS
from proxy.guardrails.rescue.registry import order_syntaxes
from proxy.guardrails.rescue.syntax import MOST_CALLS
from proxy.guardrails.respond import make_respond_tool
from proxy.guardrails.tool_prompts.react import REACT_CONTRACT
from tests.examples import mostly_deep
from tests.fakes.arrivals import chunkings
from tests.fakes.playbook import CLOCK, WEATHER

OFFER = OfferedTools(
    (WEATHER, CLOCK), TextPolicy.RESPOND, order_syntaxes(()), make_respond_tool(())
)
AUTO = replace(OFFER, text_policy=TextPolicy.AUTO, respond=None, user_texts=("How warm is it?",))
OPENED = replace(AUTO, opens_thoughts=True)
STOPPED = replace(OFFER, stop_strings=True)
REACT = replace(OFFER, syntaxes=(REACT_CONTRACT, *order_syntaxes(())), respond=None)
ACTION = "Action: get_time\nAction Input: {}\n"
PLAIN_CALL = '{"name": "get_time", "arguments": {}}'
CALL = f"<tool_call>{PLAIN_CALL}</tool_call>"
OTHER = CALL.replace("get_time", "get_weather")
PARIS = '<tool_call>{"name": "get_weather", "arguments": {"city": "Paris"}}</tool_call>'
BROKEN = '<tool_call>{"name": "get_time", "arguments": {oh}}</tool_call>'
OPEN = BROKEN.removesuffix("</tool_call>")
RESPOND = '<tool_call>{"name": "respond", "arguments": {"message": "Hi \\u00e9!"}}</tool_call>'
# Written by the model of tests/engines.
BOTCHED = '{"open": "None of!", "Palval", "priority": "high"}}'
THOUGHT = f"I look:\n{CALL}\n</think>\n"
PYTHON = '```python\nget_weather(city="Paris")\n```'
WORDS = 'commentary to=functions.get_weather json{"city": "Paris"}'
KIMI = 'toolscall tool="get_weather" index="1"argument key="city" type="string"Paris'
LISTED = "[TOOL_CALLS] [{'name': 'get_weather', 'arguments': {'city': 'Paris'}}]"
COPIED = replace(OFFER, results=(f"An agent wrote this:\n{LISTED}\nEnd",))
LABELED = replace(OFFER, results=(f"Observation: {PARIS}",))
NAMED = replace(COPIED, user_texts=("How is it in Paris?",))
CITED = replace(OFFER, results=(f"The page says:\n{CALL}\nEnd",))
SYNTAX = f"To call it, write:\n\n    {CALL}\n\nThat is the syntax."
PAGE = "The page shows how to ask for it."
IN_CITY = "Let me check the weather in Paris."
IN_PARIS = "get_weather:Paris"
SUNNY = "\nIt is sunny."
LOOK = "<tool_response>\nI look.\n"
ALIAS = replace(OFFER, aliases={"other": "get_weather", "no": "no_tool"})
FORBIDDEN = replace(OFFER, results=(f"You must not write\n{LISTED}\nhere",))
IN_OSLO = replace(OFFER, results=(LISTED.replace("Paris", "Oslo"),))
ELLIPSIS = "To call it, write:\n\n    <tool_call>...</tool_call>\n\nThat is the syntax."
MESSAGE = PLAIN_CALL.replace("get_time", "respond").replace("{}", '{"message": "Hi!"}')
BY_ALIAS = PARIS.replace("get_weather", "other")
TO_USER = WORDS.replace("commentary to=", "assistant to=").replace(" json", " commentary json")


def started(name: str, index: int = 0) -> ToolCallStarted:
    return ToolCallStarted(index, "a", name)


def arguments(text: str, index: int = 0) -> ToolCallArgumentsDelta:
    return ToolCallArgumentsDelta(index, text)


def read(
    *events: ReplyEvent, offer: OfferedTools = OFFER, reason: str = "stop"
) -> tuple[list[ReplyPart], ReadReply]:
    """Read events until the reply ends; consecutive parts of the same kind are joined."""
    reader = ReplyReader(offer)
    parts: list[ReplyPart] = []
    with suppress(EnoughReadError):
        for event in events:
            parts += reader.read(event)
    last_parts, reply = reader.finish(reason)
    merged: list[ReplyPart] = []
    for part in parts + last_parts:
        if merged and type(merged[-1]) is type(part):
            merged[-1] = replace(part, text=merged[-1].text + part.text)
        else:
            merged.append(part)
    return merged, reply


def text_of(parts: Sequence[ReplyPart]) -> str:
    return "".join(part.text for part in parts if not isinstance(part, ReasoningDelta))


def read_in_pieces(text: str, offer: OfferedTools = OFFER, reason: str = "stop") -> ReadReply:
    """Read a reply in every division into pieces; assert that all results are equal."""
    at_once = read(TextDelta(text), offer=offer, reason=reason)
    assert text_of(at_once[0]) == at_once[1].text
    for pieces in chunkings(text):
        assert read(*map(TextDelta, pieces), offer=offer, reason=reason) == at_once, pieces
    return at_once[1]


def summarize(reply: ReadReply) -> tuple[str, str, str]:
    """Return the text, the calls with their values, and the facts with the flags of a reply."""
    flags = ("has_responded", "is_cut_off", "is_broken", "ambiguous")
    words = [*map(name_fact, reply.facts), *(name for name in flags if getattr(reply, name))]
    return reply.text, " ".join(map(name_call, reply.calls)), " ".join(dict.fromkeys(words))


def name_call(call: WrittenCall) -> str:
    values = call.arguments.values() if isinstance(call.arguments, dict) else ()
    return ":".join((call.name, *map(str, values)))


def name_fact(fact: Fact) -> str:
    match fact:
        case Refused(reason) | Dropped(reason):
            return reason
        case Rescued(syntax):
            return syntax
        case _:
            return "ended" if isinstance(fact, EndedThoughts) else str(fact)


CALLS = [
    # text and calls
    (OFFER, CALL, "", "get_time", "hermes"),
    (OFFER, f"Looking.\n{CALL}", "Looking.", "get_time", "hermes"),
    (OFFER, f"Looking.\n{CALL}\nDone.", "Looking.\nDone.", "get_time", "hermes"),
    (OFFER, "<get_weather>\n<city>Paris</city>\n</get_weather>", "", IN_PARIS, "tool_tags"),
    (OFFER, PLAIN_CALL, "", "get_time", "bare_json"),
    # messages of the respond tool
    (OFFER, RESPOND, "Hi é!", "", "hermes has_responded"),
    (OFFER, f"First.\n{RESPOND}", "First.\n\nHi é!", "", "hermes has_responded"),
    (OFFER, f"{RESPOND}\n{CALL}", "Hi é!", "get_time", "hermes has_responded"),
    (OFFER, MESSAGE, "Hi!", "", "bare_json has_responded"),
    (OFFER, RESPOND.replace("u00e9", "ud83d b"), "Hi � b!", "", "hermes has_responded"),
    (OFFER, RESPOND[:-16], "Hi é", "", "broken has_responded"),
    # repetitions
    (OFFER, f"{CALL}\n" * 2, "", "get_time get_time", "hermes"),
    (OFFER, f"{CALL}\n" * 3, "", "get_time", "hermes repeated_call"),
    (OFFER, "\n".join((OTHER, *[CALL] * 4)), "", "get_weather get_time", "hermes repeated_call"),
    (
        *(OFFER, "\n".join((OTHER, *[CALL] * 4, OTHER))),
        *("", "get_weather get_time", "hermes repeated_call"),
    ),
    (OFFER, f"{CALL}\n" * 20, "", "get_time", "hermes repeated_call"),
    (
        *(REACT, f"{ACTION}Observation: 12\nFinal Answer: noon"),
        *("", "get_time", "invented_result react_contract"),
    ),
    # copies of text in the prompt
    (NAMED, PARIS, "", IN_PARIS, "hermes"),
    (NAMED, f"I look.\n{PARIS}", "I look.", IN_PARIS, "hermes"),
    (NAMED, f"{IN_CITY}\n{PARIS}", IN_CITY, IN_PARIS, "hermes"),
    (IN_OSLO, PARIS, "", IN_PARIS, "hermes"),
    (IN_OSLO, f"{IN_CITY}\n{PARIS}", IN_CITY, IN_PARIS, "hermes"),
    (replace(OFFER, user_texts=(f"What does {CALL} mean?",)), PARIS, "", IN_PARIS, "hermes"),
    (IN_OSLO, f"{PAGE}\n\n{PARIS}", PAGE, IN_PARIS, "hermes"),
    (replace(CITED, choice=ToolUse.REQUIRED), CALL, "", "get_time", "hermes"),
    # invented results
    (
        *(OFFER, f"{CALL}\n<tool_response>\n12\n</tool_response>"),
        *("", "get_time", "hermes invented_result"),
    ),
    (
        *(OFFER, f"{LOOK}<tool_result>42</tool_result>\n</tool_response>{SUNNY}"),
        *(SUNNY, "", "invented_result"),
    ),
    (OFFER, f"{LOOK}]~b]TOOL\n42\n[e~[\n</tool_response>{SUNNY}", SUNNY, "", "invented_result"),
    (OFFER, f"{LOOK}</think>\n</tool_response>{SUNNY}", SUNNY, "", "invented_result"),
    # reasoning
    (OFFER, f"<think>hm</think>\n{CALL}", "", "get_time", "hermes"),
    (OFFER, "<think>\nhm\n</think>\n\nFour.", "Four.", "", ""),
    (OFFER, f"{THOUGHT}It is noon.", "I look:\n\nIt is noon.", "", "in_thoughts"),
    (OFFER, f"{THOUGHT}{CALL}", "I look:", "get_time", "hermes in_thoughts"),
    (OFFER, THOUGHT, "I look:\n\n", "get_time", "hermes"),
    (OFFER, f"{CALL}\nNo.\n</think>\n", "No.\n</think>\n", "", "in_thoughts ended"),
    (
        *(OFFER, f"It reads {BROKEN} then.\n</think>\n{CALL}"),
        *(f"It reads {BROKEN} then.\n</think>", "get_time", "quoted hermes ended"),
    ),
    (OPENED, "I look.\n</think>\nIt is noon.", "It is noon.", "", "ended"),
    # broken calls
    (
        *(OFFER, f"{CALL}\n{BROKEN}\n{CALL}"),
        *(f"{BROKEN}\n{CALL}", "get_time", "hermes broken nested is_broken"),
    ),
    (STOPPED, BROKEN[:40], "", "", "cut_off cut_off_call is_cut_off"),
    # calls written in Python or in prose
    (AUTO, PYTHON, "", IN_PARIS, "fenced_json"),
    (
        *(AUTO, f"I will get the weather.\n\n{PYTHON}"),
        *("I will get the weather.", IN_PARIS, "fenced_json"),
    ),
    (AUTO, PYTHON.replace("python", ""), "", IN_PARIS, "fenced_json"),
    (AUTO, WORDS, "", IN_PARIS, "harmony_words"),
    (AUTO, f"analysisThey want the weather.assistant{WORDS}", "", IN_PARIS, "harmony_words"),
    (AUTO, f"{WORDS}call", "", IN_PARIS, "harmony_words"),
    (AUTO, WORDS.replace(" json", " jsonmessage"), "", IN_PARIS, "harmony_words"),
    (AUTO, TO_USER, "", IN_PARIS, "harmony_words"),
    (
        *(AUTO, f"{WORDS}assistantcommentary to=functions.get_time json{{}}"),
        *("", "get_weather:Paris get_time", "harmony_words"),
    ),
    (AUTO, f"{KIMI}argumentcalltools", "", IN_PARIS, "kimi_k3_words"),
    (
        *(AUTO, f'{KIMI}argumentcallcall tool="get_time" index="2"calltools'),
        *("", "get_weather:Paris get_time", "kimi_k3_words"),
    ),
    (AUTO, '<function=get_weather{"city": "Paris"}></function>', "", IN_PARIS, "qwen_coder"),
    (AUTO, '<function=get_weather({"city": "Paris"})</function>', "", IN_PARIS, "qwen_coder"),
    # stray marks
    (
        *(AUTO, f"<tool_call>\nOne moment.\n{CALL}"),
        *("One moment.", "get_time", "not_a_call stray_mark hermes"),
    ),
    (AUTO, "Sure.</tool_call>", "Sure.", "", "stray_mark"),
]
TEXTS = [
    # text and calls
    (OFFER, "Just prose.", ""),
    (OFFER, "<thi", ""),
    (OFFER, "Use `<tool_call>` like this: `" + CALL + "`.", "quoted"),
    (OFFER, f"Write `{BROKEN}`.", "quoted"),
    # copies of text in the prompt
    (CITED, CALL, "quoted_from_history ambiguous"),
    (COPIED, PARIS, "quoted_from_history ambiguous"),
    (COPIED, f"Sure.\n{PARIS}", "quoted_from_history ambiguous"),
    (COPIED, f"{PAGE}\n\n{PARIS}", "quoted_from_history ambiguous"),
    (COPIED, f"{IN_CITY}\n{PARIS}", "quoted_from_history ambiguous"),
    (LABELED, PARIS, "quoted_from_history ambiguous"),
    (FORBIDDEN, PARIS, "quoted_from_history"),
    (replace(OFFER, user_texts=(f"What does {PARIS} mean?",)), PARIS, "quoted_from_history"),
    (replace(AUTO, user_texts=(f"Repeat this: {PARIS}",)), PARIS, "quoted_from_history"),
    # reasoning
    (OFFER, f"So {OPEN} then.\n</think>\n{CALL}", "broken nested ended is_broken"),
    (OFFER, "I look.\n</think>\nIt is noon.", "ended"),
    (OFFER, "First <think>.\n</think>\nIt is noon.", ""),
    # broken calls
    (OFFER, f"Hm.\n{BROKEN}", "broken is_broken"),
    (OFFER, f"I could send {CALL} first.\n{CALL}", "in_sentence out_of_order is_broken"),
    (STOPPED, f"I could send {CALL} first.\n{CALL}", "in_sentence out_of_order is_broken"),
    # words before or after a call
    (OFFER, f"{PARIS} and more", "in_sentence doubtful ambiguous"),
    (OFFER, PARIS.replace("city", "town") + " and more", "in_sentence"),
    (OFFER, PARIS.replace('{"city": "Paris"}', "7") + " and more", "in_sentence"),
    (OFFER, f"{BY_ALIAS} and more", "in_sentence"),
    (ALIAS, f"{BY_ALIAS} and more", "in_sentence doubtful ambiguous"),
    (ALIAS, BY_ALIAS.replace("other", "no") + " and more", "in_sentence"),
    (OFFER, f"Here.\n{CALL}\nThat was an example.", "quoted"),
    (OFFER, f"{CALL}\nThat was an example.", "doubtful ambiguous"),
    (AUTO, SYNTAX, "quoted"),
    (AUTO, ELLIPSIS, "quoted"),
    (AUTO, f"I could do this:\n\n  {CALL}  \n\nShall I?", "doubtful ambiguous"),
    (AUTO, f"For example:\n\n{CALL}\n \n{CALL}\n\n\nThat is it.", "quoted"),
    # the beginning of a call
    (OFFER, "It is written as <tool_call>get_weather\n", "not_a_call"),
    (OFFER, "<tool_call>get_weather of today", "not_a_call"),
    (OFFER, "<tool_call>get_news\n", "not_a_call"),
    (OFFER, "<tool_call>\n<name>get_weather</name>", "not_a_call"),
    (OFFER, "<tool_call>hm <tool_call>{", "not_a_call broken is_broken"),
    # calls written in Python or in prose
    (AUTO, f"Here is how you would do it:\n\n{PYTHON}", "quoted"),
    (AUTO, f"{PYTHON}\n\nThat is it.", "doubtful ambiguous"),
    (AUTO, f"The call is this one:\n\n{PYTHON.replace('python', '')}", ""),
    (AUTO, "```python\nimport os\nget_weather(city='Paris')\n```", ""),
    (AUTO, "```python\nget_weather(days='x')\n```", ""),
    (AUTO, f"gpt-oss writes `{WORDS}` without its tokens.", "quoted"),
    (replace(AUTO, user_texts=("Use Python.",)), PYTHON, ""),
    (replace(AUTO, user_texts=("How would I call get_weather?",)), PYTHON, ""),
    # stray marks
    (AUTO, 'Result: fo"}}\n</tool_call>', "broken is_broken"),
    (replace(AUTO, user_texts=("What is </tool_call>?",)), "An end.</tool_call>", ""),
]


@pytest.mark.parametrize(("offer", "text", "answer", "calls", "facts"), CALLS)
def test_the_calls_in_a_text_are_read(
    offer: OfferedTools, text: str, answer: str, calls: str, facts: str
) -> None:
    assert summarize(read_in_pieces(text, offer)) == (answer, calls, facts)


@pytest.mark.parametrize(("offer", "text", "facts"), TEXTS)
def test_a_text_without_calls_is_unchanged(offer: OfferedTools, text: str, facts: str) -> None:
    assert summarize(read_in_pieces(text, offer)) == (text, "", facts)


def test_a_copied_call_is_denied_if_user_messages_lack_its_values() -> None:
    assert [call.is_denied for call in read_in_pieces(PARIS, COPIED).ambiguous] == [True]
    assert [call.is_denied for call in read_in_pieces(f"{PARIS} and more").ambiguous] == [False]


CUT_OFF = [
    (OFFER, RESPOND[:-16], "length", "Hi \u00e9", "cut_off has_responded is_cut_off"),
    *(
        (OFFER, 'Hm. <tool_call>{"name": "get_t', reason, "Hm.", "cut_off cut_off_call is_cut_off")
        for reason in ("length", "content_filter")
    ),
    (OFFER, 'get_weather(city="Par', "length", 'get_weather(city="Par', "cut_off is_cut_off"),
    (OFFER, '{"temperature": 2', "length", '{"temperature": 2', ""),
]


@pytest.mark.parametrize(("offer", "text", "reason", "answer", "facts"), CUT_OFF)
def test_a_truncated_text_has_no_calls(
    offer: OfferedTools, text: str, reason: str, answer: str, facts: str
) -> None:
    assert summarize(read_in_pieces(text, offer, reason)) == (answer, "", facts)


STATES = [
    ("Looking.", State.CONTENT),
    (RESPOND[:-16], State.MESSAGE),
    (f"{RESPOND}\nDone.", State.CONTENT),
    (f"Looking.\n{CALL}\nDone.", State.PENDING),
    (f"{CALL}\n{CALL}\n{CALL}\n", State.ENDED),
]


@pytest.mark.parametrize(("text", "state"), STATES)
def test_reading_a_text_leaves_the_reader_in_the_expected_state(text: str, state: State) -> None:
    reader = ReplyReader(OFFER)
    for piece in text:
        reader.read(TextDelta(piece))
    assert reader.state is state
    if state is State.ENDED:
        with pytest.raises(EnoughReadError):
            reader.read(TextDelta(CALL))
    if state is State.PENDING:
        reader.read(started("get_time"))
        assert reader.state is State.CONTENT


Row: TypeAlias = tuple[tuple[ReplyEvent, ...], list[ReplyPart], str, str]


def row(events: tuple[ReplyEvent, ...], part: ReplyPart, calls: str, facts: str) -> Row:
    return events, [part], calls, facts


EVENTS: list[Row] = [
    (
        (
            *(started("get_weather", 1), started("repeated", 1), PromptProgress(1, 1, 1)),
            *(arguments('{"city":', 1), arguments('"Paris"}', 1), arguments("no call", 7)),
        ),
        [],
        *("get_weather", ""),
    ),
    (
        (TextDelta("Well."), started("respond"), arguments('{"message": "Hi'), arguments('!"}')),
        [Prose("Well."), RespondText("\n\nHi!")],
        *("", "has_responded"),
    ),
    (
        (TextDelta("\n\n"), started("respond"), arguments('{"message": "Hi!"}')),
        [RespondText("Hi!")],
        *("", "has_responded"),
    ),
    (
        (started("respond"), arguments('{"answer": "Hi!"}')),
        [RespondText("Hi!")],
        *("", "has_responded"),
    ),
    *(
        row((TextDelta(space), started("get_time")), Prose(space), "get_time", "")
        for space in ("Well.\n\n", " \n", "Well. ")
    ),
    (
        (started("respond"), arguments(BOTCHED)),
        [WithheldText(BOTCHED)],
        *("", "has_responded is_broken"),
    ),
    (
        (TextDelta("Well."), started("respond"), arguments(BOTCHED)),
        [Prose("Well."), WithheldText(f"\n\n{BOTCHED}")],
        *("", "has_responded is_broken"),
    ),
    (
        (TextDelta("<tool_call>{,</tool_call>"), started("respond"), arguments(BOTCHED)),
        [WithheldText(f"<tool_call>{{,</tool_call>\n\n{BOTCHED}")],
        *("", "broken has_responded is_broken"),
    ),
    # text that is not the answer
    (
        (TextDelta("<think>\nhm\n</think>\n\nFour."),),
        [ReasoningDelta("hm"), Prose("Four.")],
        *("", ""),
    ),
    (
        (TextDelta(f"Hm.\n{BROKEN}"),),
        [Prose("Hm."), WithheldText(f"\n{BROKEN}")],
        *("", "broken is_broken"),
    ),
    ((TextDelta(f"Write `{BROKEN}`."),), [Prose(f"Write `{BROKEN}`.")], "", "quoted"),
    # calls in reasoning that the backend separates
    *(
        row((ReasoningDelta(text),), ReasoningDelta(text), calls, facts)
        for text, calls, facts in (
            (f"I will call.\n{CALL}", "get_time", "hermes"),
            (f"I call:\n{CALL}\n{OTHER}</s>\n", "get_time get_weather", "hermes"),
            (PLAIN_CALL, "", ""),
            (f"{CALL}\nNo.", "", ""),
            (f"{CALL}\nor\n{CALL}", "", ""),
            (f"{CALL} is one.", "", ""),
            (f"{CALL}\n```json\n{PLAIN_CALL}\n```", "", ""),
            (f"{BROKEN}\n{CALL}", "", ""),
        )
    ),
    ((ReasoningDelta(CALL), TextDelta("Noon.")), [ReasoningDelta(CALL), Prose("Noon.")], "", ""),
]


@pytest.mark.parametrize(("events", "parts", "calls", "facts"), EVENTS)
def test_reading_events_gives_the_expected_parts_and_calls_and_facts(
    events: tuple[ReplyEvent, ...], parts: list[ReplyPart], calls: str, facts: str
) -> None:
    actual, reply = read(*events)
    assert actual == parts
    assert summarize(reply) == (text_of(parts), calls, facts)


def test_a_structured_call_keeps_its_id_and_arguments() -> None:
    events = (started("get_weather"), arguments('{"city":'), arguments('"Paris"}'))
    assert read(*events)[1].calls == (WrittenCall("get_weather", '{"city":"Paris"}', "a"),)


def test_a_rescued_call_is_reported_with_its_tool() -> None:
    assert read(TextDelta(CALL))[1].facts == (Rescued("hermes", "get_time"),)


def test_reasoning_that_the_prompt_opened_is_separated() -> None:
    parts, _ = read(TextDelta("I look.\n</think>\nIt is "), TextDelta("noon."), offer=OPENED)
    assert parts == [ReasoningDelta("I look."), Prose("It is noon.")]


def test_an_unreadable_respond_message_is_withheld_unless_it_was_truncated() -> None:
    call = (started("respond"), arguments(BOTCHED))
    assert BOTCHED not in read(*call)[1].text_without_calls
    reply = read(*call, reason="length")[1]
    assert (reply.is_broken, reply.text) == (False, BOTCHED)
    assert read(ReasoningDelta(CALL), reason="length")[1].calls == ()


@pytest.mark.parametrize("count", [MOST_CALLS, MOST_CALLS + 2])
def test_the_number_of_calls_in_a_reply_is_limited(count: int) -> None:
    events: list[ReplyEvent] = []
    for index in range(count):
        events += [started("get_time", index), arguments(f'{{"at": {index}}}', index)]
    texts = [CALL.replace("{}", f'{{"at": {index}}}') for index in range(count)]
    copies = read(TextDelta("\n".join((OTHER, *[CALL] * count))))[1]
    assert [call.name for call in copies.calls] == ["get_weather", "get_time"]
    for reply in (read(*events)[1], read(TextDelta("\n".join(texts)))[1]):
        assert len(reply.calls) == MOST_CALLS
        assert (Dropped("too_many_calls") in reply.facts) == (count > MOST_CALLS)
    assert read(*events)[1].calls[-1].arguments == f'{{"at": {MOST_CALLS - 1}}}'
    equal = [started("get_time", index) for index in range(20)]
    assert len(read(*equal)[1].calls) == 20


TO_TOOL = "<|start|>assistant<|channel|>commentary to=functions.get_time<|message|>{}<|call|>"
ANALYSIS = "<|start|>assistant<|channel|>analysis<|message|>It is noon.<|end|>"


@pytest.mark.parametrize(
    ("offer", "text", "rest"),
    [
        (OFFER, f"{CALL}\n", "That was an example."),
        (OFFER, TO_TOOL, ANALYSIS),
        (OFFER, f"So.\n{CALL}\n", CALL),
        (REACT, f"{CALL}\n", "Thought: It is noon.\n"),
        (REACT, ACTION, ""),
    ],
)
def test_text_after_too_many_copies_of_a_call_is_ignored(
    offer: OfferedTools, text: str, rest: str
) -> None:
    at_once, *others = (
        read(*map(TextDelta, pieces), offer=offer) for pieces in chunkings(text * 5 + rest)
    )
    assert at_once[1].calls == (WrittenCall("get_time", {}),)
    assert "noon" not in "".join(part.text for part in at_once[0])
    assert all(other == at_once for other in others)


def spellings(marks: dict[str, str]) -> list[tuple[str, str]]:
    """Return pairs of marks in lower, upper and title case, and with white space."""
    changes: list[Callable[[str], str]] = [str, str.upper, str.title]
    changes.append(lambda mark: mark.replace(">", " >"))
    return [(change(start), change(end)) for start, end in marks.items() for change in changes]


@pytest.mark.fault("F104")
@pytest.mark.parametrize(("opening", "closing"), mostly_deep(spellings(RESULTS)))
def test_a_call_in_an_invented_result_is_never_accepted(opening: str, closing: str) -> None:
    offer = replace(AUTO, user_texts=())
    for content in (CALL, f"The page says: {CALL} and more.", PLAIN_CALL):
        text = f"{opening}\n{content}\n{closing}\nIt is sunny."
        at_once = read(TextDelta(text), offer=offer)
        assert (at_once[1].calls, at_once[1].text.strip()) == ((), "It is sunny.")
        assert Dropped("invented_result") in at_once[1].facts
        assert read(*map(TextDelta, text), offer=offer) == at_once


@pytest.mark.fault("F104")
@pytest.mark.parametrize(("opening", "closing"), spellings(REASONING))
def test_a_call_within_reasoning_is_never_accepted(opening: str, closing: str) -> None:
    text = f"{opening}\nPerhaps\n{CALL}\nor not.\n{closing}\n\nIt is sunny."
    at_once = read(TextDelta(text))
    assert (at_once[1].calls, at_once[1].text) == ((), "It is sunny.")
    assert read(*map(TextDelta, text)) == at_once


def test_text_is_not_held_back_if_the_backend_separates_reasoning() -> None:
    reader = ReplyReader(OPENED)
    reader.read(ReasoningDelta("I look."))
    assert reader.read(TextDelta("It is noon.")) == [Prose("It is noon.")]


@pytest.mark.parametrize(
    ("text", "part"),
    [("I look.", Prose("I look.")), ("I look.\n</think>", ReasoningDelta("I look."))],
)
def test_a_structured_call_ends_possible_reasoning(text: str, part: ReplyPart) -> None:
    reader = ReplyReader(OPENED)
    assert reader.read(TextDelta(text)) == []
    assert reader.read(started("get_time")) == [part]


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
def test_a_call_that_ends_before_its_arguments_is_broken(before: str, text: str) -> None:
    for pieces in chunkings(before + text):
        parts, reply = read(*map(TextDelta, pieces))
        assert (reply.is_broken, reply.calls) == (True, ())
        assert reply.text_without_calls.strip() == before.strip()
        assert Refused("not_closed") in reply.facts
        assert not any("get_weather" in part.text for part in parts if isinstance(part, Prose))
