import re
from collections.abc import Iterable
from itertools import groupby

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.conversation.replies import ReasoningDelta, TextDelta
from proxy.guardrails.reasoning import (
    ReasoningSplitter,
    SplitPart,
    ThoughtHabit,
    split_thoughts,
    split_unopened,
)
from proxy.guardrails.rescue.findings import FoundCalls
from proxy.guardrails.rescue.registry import order_syntaxes
from proxy.guardrails.rescue.scanner import find_calls
from tests.fakes.arrivals import chunkings, is_linear

TAGS = {
    "<think>": "</think>",
    "<thinking>": "</thinking>",
    "<thought>": "</thought>",
    "<reasoning>": "</reasoning>",
    "<seed:think>": "</seed:think>",
    "<longcat_think>": "</longcat_think>",
    "<think:opensource>": "</think:opensource>",
    "<mm:think>": "</mm:think>",
    "<ifm|think>": "</ifm|think>",
    "<ifm|think_fast>": "</ifm|think_fast>",
    "<ifm|think_faster>": "</ifm|think_faster>",
    "<|think:start|>": "<|think:end|>",
    "[THINK]": "[/THINK]",
    "◁think▷": "◁/think▷",
    "<|begin_of_thought|>": "<|end_of_thought|>",
    "<|inner_prefix|>": "<|inner_suffix|>",
    "<|START_THINKING|>": "<|END_THINKING|>",
    "<|plamo:begin_think:plamo|>": "<|plamo:end_think:plamo|>",
    "<|open|>think<|sep|>": "<|close|>think<|sep|>",
    "<|channel>thought": "<channel|>",
    "<|channel>": "<channel|>",
}
ANALYSIS = "<|channel|>analysis<|message|>"
NEXT = "<|end|><|start|>assistant"
CALL = '<|channel|>commentary to=functions.look <|constrain|>json<|message|>{"a": 1}<|call|>'

CASES = [
    ("Four.", "", "Four."),
    ("", "", ""),
    (
        "<|content_thinking|>Hm.<|end_message|><|message_model|><|content_text|>Four."
        "<|end_message|><|content_model_end_sampling|>",
        "Hm.",
        "Four.",
    ),
    ("<|message_model|><|content_thinking|>Hm.<|end_message|>", "Hm.", ""),
    (" to=self<|message|>Hm.<|eom|>Four.", "Hm.", "Four."),
    ("<|start|>assistant to=self<|message|>Hm.<|eom|>Four.", "Hm.", "Four."),
    ("to=self is what it writes.", "", "to=self is what it writes."),
    ("<think>\nI should answer.\n</think>\n\nFour.", "I should answer.", "Four."),
    ("[THINK]Hm, 2 < 3.[/THINK]Four.", "Hm, 2 < 3.", "Four."),
    (" \n <think>a\n\nb \n </think> \n c \n", "a\n\nb", "c \n"),
    ("<think></think>Four.", "", "Four."),
    ("<think>\n\n</think>\n\n", "", ""),
    ("<think>never closed\n", "never closed\n", ""),
    ("<think>\n\n", "", ""),
    ("<think>cut </thi", "cut </thi", ""),
    ("<think>a </th b</think> c</think> d", "a </th b", "c</think> d"),
    ("<think>a</think>b <think>c</think>", "a", "b <think>c</think>"),
    ("<think>a [/THINK] b</think>c", "a [/THINK] b", "c"),
    ("<think>a</think>\n<think>b</think>\nc", "a\n\nb", "c"),
    ("<think>a</think></think>c", "a", "c"),
    ("<think>a</think> <", "a", "<"),
    ("No. <think>a</think>", "", "No. <think>a</think>"),
    ("`</think>` closes it.", "", "`</think>` closes it."),
    (" \n Four.", "", " \n Four."),
    (" \n ", "", " \n "),
    ("<thin", "", "<thin"),
    (" <thin air", "", " <thin air"),
    ("<thoughtful>a</thoughtful>", "", "<thoughtful>a</thoughtful>"),
    ("</think>Four.", "", "Four."),
    ("<|channel>thought\nHm.\n<channel|>Four.", "Hm.", "Four."),
    ("<|channel>thought\n<channel|>Four.", "", "Four."),
    (
        "<|START_THINKING|>Hm.<|END_THINKING|><|START_RESPONSE|>Four.<|END_RESPONSE|>",
        "Hm.",
        "Four.",
    ),
    ("<|START_TEXT|> Four.", "", " Four."),
    (
        "<|open|>think<|sep|>Hm.<|close|>think<|sep|>"
        "<|open|>response<|sep|>Four.<|close|>response<|sep|><|close|>message<|sep|>",
        "Hm.",
        "Four.",
    ),
]
LATER = [
    ("<think>a</think>b\n\n<think>\nc\n</think>\n\nd", "a\n\nc", "b\n\nd"),
    ("b\n  <reasoning>c</reasoning>d", "c", "b\n  d"),
    ("b.<think>\nc\n</think>\nd", "c", "b.\nd"),
    ("b\n[THINK]c", "c", "b\n"),
    ("b. <think>c</think>", "", "b. <think>c</think>"),
    ("b <think>\nc\n</think>", "", "b <think>\nc\n</think>"),
    ("So:\n\n<think>\nc\n</think>\n\nd", "", "So:\n\n<think>\nc\n</think>\n\nd"),
    ("b\n```\n<think>\nc\n</think>\n```\n", "", "b\n```\n<think>\nc\n</think>\n```\n"),
    (
        "<tool_call>\n<function=f>\n<parameter=a>\n<think>\nc\n</think>\n</parameter>",
        "",
        "<tool_call>\n<function=f>\n<parameter=a>\n<think>\nc\n</think>\n</parameter>",
    ),
]
WORDS = [
    ("analysisHm.assistantfinalFour.", "Hm.", "Four."),
    ("analysis42?assistantanalysisb assistantfinal Four.", "42?\n\nb", "Four."),
    (
        "analysisHm.assistantcommentary to=functions.f json{}",
        "Hm.",
        "commentary to=functions.f json{}",
    ),
    ("analysisHm", "Hm", ""),
    ("assistantfinalFour.", "", "Four."),
    ("analysis of a", "", "analysis of a"),
    ("analysis", "", "analysis"),
    ("My analysisHm.assistantfinal", "", "My analysisHm.assistantfinal"),
    ("<think>a</think>\n<answer>\nFour.\n</answer>\n", "a", "Four."),
    ("<answer>Four.", "", "Four."),
    ("Write <answer>4</answer>.", "", "Write <answer>4</answer>."),
]
HARMONY = [
    (f"{ANALYSIS}Hm.{NEXT}<|channel|>final<|message|>4.<|return|>", "Hm.", "4."),
    ("<|channel|> final <|constrain|>json<|message|>{}", "", "{}"),
    ("<|start|>\n<|channel|>final\n<|message|>4.\n<|return|>", "", "4.\n"),
    (
        "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>analysis<|message|> b "
        f"<|start|>assistant<|channel|>commentary<|message|>Plan.{NEXT}<|channel|>final<|message|>c",
        "a\n\nb",
        "Plan.\n\nc",
    ),
    ("<|channel|>analysis<|message|>cut", "cut", ""),
    ("<|channel|>analysis<|message|>a<|channel|>final<|message|>b", "a", "b"),
    ("<|channel|>final<|message|>a < b <|", "", "a < b <|"),
    ("<|channel|>final", "", "<|channel|>final"),
    (f"{ANALYSIS}a{NEXT}{CALL}", "a", f"<|start|>assistant{CALL}"),
    (
        f"{ANALYSIS}a{NEXT} to=functions.look{ANALYSIS}{{}}",
        "a",
        f"<|start|>assistant to=functions.look{ANALYSIS}{{}}",
    ),
    (f"<|channel|>commentary<|message|>Plan.{NEXT}{CALL}", "", f"Plan.<|start|>assistant{CALL}"),
    ("<|channel|>commentary to=assistant<|channel|>final<|message|>Hi", "", "Hi"),
    ("<|channel|>gossip<|message|>Hi", "", "<|channel|>gossip<|message|>Hi"),
    ("<|start|>assistant<|message|>Hi", "", "<|start|>assistant<|message|>Hi"),
    (f" <|channel|>final{'?' * 109}<|message|>Hi", "", "Hi"),
    (
        f" <|channel|>final{'?' * 114}<|message|>Hi",
        "",
        f" <|channel|>final{'?' * 114}<|message|>Hi",
    ),
]


def split(chunks: Iterable[str]) -> list[SplitPart]:
    splitter = ReasoningSplitter()
    parts = [event for chunk in chunks for event in splitter.feed(chunk)]
    return parts + splitter.finish()


def join_texts(parts: list[SplitPart]) -> tuple[str, str]:
    """Return the reasoning and the text of a reply; assert that no part is empty."""
    assert all(event.text for event in parts)
    thoughts = "".join(event.text for event in parts if isinstance(event, ReasoningDelta))
    text = "".join(event.text for event in parts if isinstance(event, TextDelta))
    return thoughts, text


def by_kind(parts: list[SplitPart]) -> list[SplitPart]:
    """Join consecutive parts of the same kind."""
    groups = groupby(parts, type)
    return [kind("".join(event.text for event in group)) for kind, group in groups]


@pytest.mark.parametrize(("reply", "reasoning", "text"), [*CASES, *LATER, *WORDS, *HARMONY])
def test_reasoning_is_separated_from_the_text_at_every_chunking(
    reply: str, reasoning: str, text: str
) -> None:
    for chunks in chunkings(reply):
        assert join_texts(split(["", *chunks])) == (reasoning, text)


@pytest.mark.parametrize(("opening", "closing"), TAGS.items())
def test_blocks_in_the_reasoning_tags_of_every_model_family_are_separated(
    opening: str, closing: str
) -> None:
    reply = f"{opening}\nHm, {closing[:-1]} 2.\n{closing}\n\nFour, {opening}not{closing}."
    for chunks in chunkings(reply):
        thoughts = f"Hm, {closing[:-1]} 2."
        assert join_texts(split(chunks)) == (thoughts, f"Four, {opening}not{closing}.")
    for chunks in chunkings(f"{closing}\nFour."):
        assert join_texts(split(chunks)) == ("", "Four.")


def test_text_and_reasoning_are_returned_in_the_order_of_the_reply() -> None:
    reply = f"<|channel|>commentary<|message|>Plan.{NEXT}<|channel|>analysis<|message|>Hm."
    for chunks in chunkings(reply):
        assert by_kind(split(chunks)) == [TextDelta("Plan."), ReasoningDelta("Hm.")]


@pytest.mark.parametrize("before", ["analysis", "commentary"])
@pytest.mark.parametrize("header", [CALL, f" to=functions.look{ANALYSIS}{{}}"])
def test_a_harmony_call_after_analysis_or_commentary_stays_in_the_text(
    before: str, header: str
) -> None:
    reply = f"<|channel|>{before}<|message|>Hm.{NEXT}{header}"
    for chunks in chunkings(reply):
        _, text = join_texts(split(chunks))
        (found_call,) = [
            finding
            for finding in find_calls(text, order_syntaxes(()), ())
            if isinstance(finding, FoundCalls)
        ]
        assert [call.name for call in found_call.calls] == ["look"]


def split_slowly(reply: str) -> tuple[str, str]:
    """Split a complete reply with slow, simple code, as a reference for `ReasoningSplitter`."""
    thoughts: list[str] = []
    answer, rest = "", reply
    ends = "|".join(map(re.escape, TAGS.values()))
    begins = "|".join(map(re.escape, TAGS))
    while True:
        head = rest.lstrip()
        opening = max((tag for tag in TAGS if head.startswith(tag)), key=len, default=None)
        stray = re.match(ends, head)
        if opening:
            body, is_closed, rest = head[len(opening) :].partition(TAGS[opening])
            body = body.strip() if is_closed else body.lstrip()
            thoughts += [body] if body else []
            rest = rest.lstrip()
        elif stray:
            rest = head[stray.end() :].lstrip()
        else:
            later = re.search(rf"(?<=\n)( *)(?:{begins})", rest)
            position = later.end(1) if later else len(rest)
            answer, rest = answer + rest[:position], rest[position:]
            if not rest:
                return "\n\n".join(thoughts), answer


@settings(deadline=None)
@given(
    st.lists(st.sampled_from(["<think>", "</think>", "<", "</th", "[THINK]", " ", "\n", "a"])),
    st.integers(1, 5),
)
def test_any_reply_is_split_alike_at_once_and_in_chunks(pieces: list[str], size: int) -> None:
    reply = "".join(pieces)
    expected = split_slowly(reply)
    cut = [reply[start : start + size] for start in range(0, len(reply), size)]
    for chunks in ([reply], pieces, list(reply), cut):
        assert join_texts(split(chunks)) == expected


HARMONY_PIECES = (
    *("<|start|>", "assistant", "<|channel|>", "analysis", "final", "commentary", "<|message|>"),
    *("<|end|>", "<|return|>", " to=functions.f", "<|", " ", "a", "<think>"),
)


@settings(deadline=None)
@given(st.lists(st.sampled_from(HARMONY_PIECES)))
def test_any_harmony_reply_is_split_alike_at_once_and_in_chunks(pieces: list[str]) -> None:
    reply = "".join(pieces)
    at_once = by_kind(split([reply]))
    assert by_kind(split(pieces)) == at_once
    assert by_kind(split(reply)) == at_once


def test_text_without_a_reasoning_block_is_not_delayed_beyond_its_first_characters() -> None:
    splitter = ReasoningSplitter()
    assert splitter.feed(" <") == []
    assert splitter.feed("b") == [TextDelta(" <b")]
    assert splitter.feed(" ") == [TextDelta(" ")]
    assert splitter.feed("<think>") == [TextDelta("<think>")]


def test_a_requested_answer_tag_is_part_of_the_answer() -> None:
    splitter = ReasoningSplitter(prompt=["End with <answer>4</answer>."])
    assert splitter.feed("<answer>4</answer>") == [TextDelta("<answer>4</answer>")]


def test_take_space_removes_only_white_space_before_the_first_text() -> None:
    splitter = ReasoningSplitter()
    splitter.feed("\n\n")
    assert splitter.take_space() == "\n\n"
    assert splitter.take_space() == ""
    splitter.feed("\n<thi")
    assert splitter.take_space() == ""
    assert splitter.feed("s> ") == [TextDelta("\n<this> ")]
    assert splitter.take_space() == ""


def test_reasoning_is_held_back_only_while_its_end_may_begin_the_closing_tag() -> None:
    splitter = ReasoningSplitter()
    assert splitter.feed("<think>\nI see") == [ReasoningDelta("I see")]
    assert splitter.feed(" a <") == [ReasoningDelta(" a")]
    assert splitter.feed("b") == [ReasoningDelta(" <b")]
    assert splitter.feed(" </think") == []
    assert splitter.feed(">\n\nFour") == [TextDelta("Four")]


def test_a_final_message_is_held_back_only_while_a_mark_may_follow() -> None:
    splitter = ReasoningSplitter()
    assert splitter.feed("<|channel|>final<|mess") == []
    assert splitter.feed("age|> Four ") == [TextDelta(" Four ")]
    assert splitter.feed("<") == []
    assert splitter.feed("5") == [TextDelta("<5")]


def test_marks_after_the_first_hundred_blocks_are_text() -> None:
    marks = "</think>" * 150
    for chunks in ([marks], [marks[:3], marks[3:]], list(marks)):
        assert join_texts(split(chunks)) == ("", "</think>" * 50)


@pytest.mark.parametrize("unit", [" ", "<", "a<", "<think>", "</think>", "<|channel|>"])
@pytest.mark.parametrize(
    "opening", ["", "<think>", "<think>a</think>", "<|channel|>", "<|channel|>final<|message|>"]
)
def test_splitting_a_reply_takes_linear_time(opening: str, unit: str) -> None:
    def reply(size: int) -> str:
        return opening + unit * (size // len(unit))

    assert is_linear(lambda text: split([text]), reply, 4_000)
    assert is_linear(split, reply, 2_000)


@pytest.mark.parametrize(
    ("reply", "thoughts", "text"),
    [
        ("I see.\n</think>\n\nFour.", "I see.", "Four."),
        ("I see.</think>Four.", "I see.", "Four."),
        ("I see.\n  </think> Four.", "I see.", "Four."),
        ("I see. </think>\nFour.", "I see.", "Four."),
        ("I see.<|END_THINKING|>Four.", "I see.", "Four."),
        ("a</think>b</think>c", "a", "b</think>c"),
        ("The tag </think> closes it.", "", "The tag </think> closes it."),
        ("It is `</think>`, or '</think>'.", "", "It is `</think>`, or '</think>'."),
        ("Like (</think>).", "", "Like (</think>)."),
        ("A <think>block</think> is one.", "", "A <think>block</think> is one."),
        ("Four.", "", "Four."),
    ],
)
def test_text_before_a_lone_closing_tag_is_reasoning(reply: str, thoughts: str, text: str) -> None:
    assert split_unopened(reply) == (thoughts, text)
    assert split_thoughts(reply) == (thoughts, text)


@pytest.mark.parametrize(("reply", "reasoning", "text"), [*CASES, *LATER, *WORDS, *HARMONY])
def test_a_complete_reply_is_split_like_a_streamed_reply(
    reply: str, reasoning: str, text: str
) -> None:
    assert split_thoughts(reply) == (reasoning, text)


@pytest.mark.parametrize("unit", ["</think> a ", " ", "\n ", "<think>", "</think>"])
def test_the_search_for_a_lone_closing_tag_takes_linear_time(unit: str) -> None:
    assert is_linear(split_unopened, lambda size: "a" + unit * size + " </think> b", 5_000)


OPENED = [
    ("I should answer.\n</think>\n\nFour.", "I should answer.", "Four."),
    ("\n I should.</think>Four.", "I should.", "Four."),
    ("Write `</think>`, so:\n</think>\nFour.", "Write `</think>`, so:", "Four."),
    ("I should.</think>", "I should.", ""),
    ("I should.</think>\n<think>More.</think>Four.", "I should.\n\nMore.", "Four."),
    ("<think>I should.</think>Four.</think>", "I should.", "Four.</think>"),
    ("Four.", "", "Four."),
    ("First <think>, then\n</think>\nFour.", "", "First <think>, then\n</think>\nFour."),
    (" \n ", "", " \n "),
    (" <thin", "", " <thin"),
]


@pytest.mark.parametrize(("reply", "thoughts", "text"), OPENED)
def test_a_reasoning_block_that_the_prompt_opened_ends_at_the_closing_tag(
    reply: str, thoughts: str, text: str
) -> None:
    for chunks in chunkings(reply):
        splitter = ReasoningSplitter(is_opened=True)
        parts = [event for chunk in chunks for event in splitter.feed(chunk)]
        assert join_texts(parts + splitter.finish()) == (thoughts, text), chunks


def test_possible_reasoning_is_held_until_its_end_is_certain() -> None:
    splitter = ReasoningSplitter(is_opened=True)
    assert splitter.feed("I should.") + splitter.feed("</think>") == []
    assert splitter.feed("Four") == [ReasoningDelta("I should."), TextDelta("Four")]
    assert splitter.feed(" or five.") == [TextDelta(" or five.")]
    assert splitter.has_ended


def test_possible_reasoning_is_held_up_to_a_limit() -> None:
    splitter = ReasoningSplitter(is_opened=True)
    long = "a" * 2**17
    assert splitter.feed(long) == []
    assert splitter.feed("b") == [TextDelta(f"{long}b")]
    assert splitter.feed("</think>c") == [TextDelta("</think>c")]
    assert not splitter.has_ended
    splitter = ReasoningSplitter(is_opened=True)
    talk = "It says `</think>`. "
    parts = [event for _ in range(200) for event in splitter.feed(talk)]
    assert join_texts(parts) == ("", talk * 200)
    assert len(parts) == 101  # the first hundred copies are a single part


def test_settle_returns_held_text_as_reasoning_only_after_a_closing_tag() -> None:
    splitter = ReasoningSplitter(is_opened=True)
    assert splitter.feed("I look.\n</think>") == []
    assert splitter.settle() == [ReasoningDelta("I look.")]
    splitter = ReasoningSplitter(is_opened=True)
    assert splitter.feed("I look.") == []
    assert splitter.settle() + splitter.feed(" There.") == [
        TextDelta("I look."),
        TextDelta(" There."),
    ]
    assert ReasoningSplitter(is_opened=True).settle() == []


def test_after_a_reply_closes_reasoning_the_next_three_are_expected_to_do_the_same() -> None:
    habit = ThoughtHabit()
    habit.note(is_shown=False)
    assert habit.expected_replies == 0
    habit.note(is_shown=True)
    expected = []
    for _ in range(4):
        expected.append(habit.expected_replies > 0)
        habit.note(is_shown=False)
    assert expected == [True, True, True, False]


@pytest.mark.parametrize("piece", ["a b ", "It says `</think>`. ", "<"])
def test_holding_possible_reasoning_takes_linear_time(piece: str) -> None:
    def hold(text: str) -> None:
        splitter = ReasoningSplitter(is_opened=True)
        for start in range(0, len(text), 3):
            splitter.feed(text[start : start + 3])
        splitter.finish()

    assert is_linear(hold, lambda size: piece * (size // len(piece)), 50_000)
