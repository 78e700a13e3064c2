import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from proxy.conversation.tools import WrittenCall
from proxy.guardrails.rescue.findings import (
    ArgumentsStarted,
    ArgumentsText,
    Finding,
    FoundCalls,
    Gap,
    LeftOut,
    Prose,
    RefusedText,
)
from proxy.guardrails.rescue.marks import SPECIAL_TOKENS, STRAY_CLOSERS
from proxy.guardrails.rescue.registry import SYNTAXES
from proxy.guardrails.rescue.scanner import Scanner, find_calls
from proxy.guardrails.rescue.syntax import Calls, Reading, Reason, Syntax
from proxy.guardrails.rescue.values.cursor import Cursor
from tests.examples import examples
from tests.fakes.arrivals import chunkings, is_linear, joined, scan

TOOLS = ("look", "now")
LOOK = '{"name": "look", "arguments": {"at": "x"}}'
CALL = f"<tool_call>{LOOK}</tool_call>"
NOW = "<function=now></function>"
FENCED = f"```json\n{LOOK}\n```"


def found_in(text: str, *, cut_off: bool = False) -> list[Finding]:
    """Scan a text cut in every way, without the announcements of arguments."""
    results: list[list[Finding]] = [
        [
            finding
            for finding in scan(pieces, SYNTAXES, TOOLS, cut_off=cut_off)
            if not isinstance(finding, ArgumentsStarted | ArgumentsText)
        ]
        for pieces in chunkings(text)
    ]
    assert all(result == results[0] for result in results)
    assert joined(results[0]) == results[0]
    return [*map(without_place, results[0])]


def without_place(finding: Finding) -> Finding:
    """Leave out what a call follows, which tests of `markup` look at."""
    return replace(finding, follows_mark=False) if isinstance(finding, FoundCalls) else finding


def look(
    source: str = CALL, name: str = "hermes", *, is_marked: bool = True, closed: bool = True
) -> FoundCalls:
    """Make what is found for one call to `look`."""
    return FoundCalls(name, (WrittenCall("look", {"at": "x"}),), source, is_marked, closed)


def now(source: str = NOW) -> FoundCalls:
    """Make what is found for a call to `now`."""
    return FoundCalls("qwen_coder", (WrittenCall("now", {}),), source, is_marked=True, closed=True)


# Prose and calls kept apart.


@pytest.mark.parametrize(
    "text",
    [
        "Hello.",
        " \n two\n\nlines \n",
        "a < b, [1], {x} and `code`",
        "<tool",
        "```\ncode\n```\n",
        "\n",
    ],
)
def test_prose_comes_through_unchanged(text: str) -> None:
    assert found_in(text) == [Prose(text)]


def test_no_text_is_no_finding() -> None:
    assert found_in("") == []


def test_prose_around_calls_is_kept_without_the_white_space_next_to_them() -> None:
    text = f"\n Let me  see.\n\n{CALL}\n {NOW}\n\nDone. "
    assert found_in(text) == [Prose("\n Let me  see."), look(), now(), Prose("Done. ")]


def test_control_tokens_around_calls_are_dropped() -> None:
    text = f"<|im_start|>\n{CALL}<|im_end|>\n{CALL}</s> <|endoftext|>"
    assert found_in(text) == [look(), look()]


def test_control_tokens_in_prose_stay() -> None:
    assert found_in("a <|im_end|> b</s>") == [Prose("a <|im_end|> b</s>")]


def test_closing_tags_written_once_too_often_are_dropped() -> None:
    assert found_in(f"{NOW}\n</tool_call>\n") == [now()]
    assert found_in(f"{CALL}</tool_call>\nDone.") == [look(), Prose("Done.")]


def test_prose_is_reported_as_soon_as_it_cannot_belong_to_a_call() -> None:
    scanner = Scanner(SYNTAXES, TOOLS)
    assert scanner.feed("Let me ") == [Prose("Let me")]
    assert scanner.feed("see. <tool") == [Prose(" see.")]
    assert scanner.feed("box> are") == [Prose(" <toolbox> are")]
    assert scanner.finish() == []


def test_white_space_held_behind_prose_can_be_taken_out() -> None:
    scanner = Scanner(SYNTAXES, TOOLS)
    spaces = {" \n": " \n", "See.\n\n": "\n\n", "\n<": "", "tool_": "", CALL[6:] + "\n": ""}
    for text, space in spaces.items():
        scanner.feed(text)
        assert scanner.take_space() == space


def test_a_call_is_reported_as_soon_as_nothing_can_go_on_behind_it() -> None:
    scanner = Scanner(SYNTAXES, TOOLS)
    assert scanner.feed(NOW) == []
    assert scanner.feed(" \n") == [now()]
    assert scanner.feed(NOW + CALL[:5]) == [Gap(" \n")]
    assert scanner.feed(CALL[5:11]) == [now()]


def test_arguments_are_reported_as_they_arrive() -> None:
    scanner = Scanner(SYNTAXES, TOOLS)
    assert scanner.feed(CALL[:38]) == []
    assert scanner.feed(CALL[38:46]) == [
        ArgumentsStarted("look", is_marked=True),
        ArgumentsText('{"at"'),
    ]
    assert scanner.feed(CALL[46:]) == [ArgumentsText(': "x"}')]
    assert scanner.finish() == [look()]


def test_arguments_are_the_same_however_they_arrive() -> None:
    text = f"So: {CALL}\n[TOOL_CALLS]now[ARGS]{{}}\n{FENCED}"
    results = [scan(pieces, SYNTAXES, TOOLS) for pieces in chunkings(text)]
    assert all(result == results[0] for result in results)
    assert [finding for finding in results[0] if isinstance(finding, ArgumentsText)] == [
        ArgumentsText('{"at": "x"}'),
        ArgumentsText("{}"),
        ArgumentsText('{"at": "x"}'),
    ]


# Provenance: what is not the model's own call.


@pytest.mark.parametrize(
    ("before", "behind"),
    [
        ("Write `", "`."),
        ("For example:\n```xml\n", "\n```\n"),
        ('It said "', '".'),
        ("Use '", "'"),
        ("“", "”"),
        ("For instance:\n", ""),
    ],
)
def test_a_quoted_call_is_prose(before: str, behind: str) -> None:
    found = found_in(before + CALL + behind)
    assert [one for one in found if not isinstance(one, Prose)] == [RefusedText(Reason.QUOTED)]
    assert "".join(one.text for one in found if isinstance(one, Prose)) == before + CALL + behind


@pytest.mark.parametrize("before", ['He is "Al"', "> a line", "it's `code", "So 'x'"])
def test_what_is_quoted_on_a_line_does_not_quote_the_next_one(before: str) -> None:
    mistral = f"[TOOL_CALLS][{LOOK}]"
    assert found_in(f"{before}\n{mistral}")[-1] == look(mistral, "mistral")
    listed = "[look(at='x')]"
    found = look(f"\n{listed}", "python_list", is_marked=False)
    assert found_in(f"{before}\n{listed}")[-1] == found


@pytest.mark.parametrize("before", ["```\nx", "~~~\nx", '"<tool_call>'])
def test_a_quotation_of_several_lines_goes_on(before: str) -> None:
    text = f"{before}\n[look(at='x')]"
    assert not any(isinstance(one, FoundCalls) for one in found_in(text))


def test_a_call_behind_a_closed_code_block_counts() -> None:
    text = f"```\ncode\n```\n{CALL}"
    assert found_in(text) == [Prose("```\ncode\n```"), look()]


@pytest.mark.parametrize("behind", [" is how it is done.", ".", "</tool_call>, see?", " `"])
def test_a_call_in_a_sentence_is_prose(behind: str) -> None:
    text = CALL + behind
    assert found_in(text) == [RefusedText(Reason.IN_SENTENCE), Prose(text)]


@pytest.mark.parametrize("behind", ["\nThat is it.", "<|im_end|>That is it.", " \r\n\nThat is it."])
def test_prose_may_follow_a_call_on_another_line(behind: str) -> None:
    assert found_in(CALL + behind) == [look(), Prose("That is it.")]


def test_behind_a_call_that_was_only_mentioned_no_other_counts() -> None:
    text = f"{CALL} or\n{NOW}"
    assert found_in(text) == [
        RefusedText(Reason.IN_SENTENCE),
        Prose(f"{CALL} or"),
        RefusedText(Reason.OUT_OF_ORDER),
        Prose(f"\n{NOW}"),
    ]


def test_an_opening_without_a_call_is_prose() -> None:
    assert found_in(f"The <tool_call> tag.\n{CALL}") == [
        Prose("The"),
        RefusedText(Reason.NOT_A_CALL),
        Prose(" <tool_call> tag."),
        look(),
    ]


def test_a_broken_call_is_prose() -> None:
    text = '<tool_call>{"name": "look", "arguments": {oh}}</tool_call>'
    assert found_in(text) == [RefusedText(Reason.BROKEN), Prose(text)]


def test_a_call_without_closing_tag_counts_at_the_end_or_before_another() -> None:
    unclosed = f"<tool_call>{LOOK}"
    assert found_in(f"{unclosed}\n{CALL}") == [look(f"{unclosed}\n", closed=False), look()]
    assert found_in(f"{unclosed}<|im_end|>") == [look(unclosed, closed=False)]


def test_a_call_without_closing_tag_before_prose_is_prose() -> None:
    text = f"<tool_call>{LOOK}\nThat is it."
    assert found_in(text) == [RefusedText(Reason.NOT_CLOSED), Prose(text)]


def test_a_call_with_missing_brackets_counts_only_at_the_end() -> None:
    text = f"<tool_call>{LOOK[:-1]}"
    assert found_in(text) == [look(text, closed=False)]
    broken = f"<tool_call>{LOOK[:-2]}</tool_call>"
    assert found_in(broken) == [RefusedText(Reason.BROKEN), Prose(broken)]


def test_one_bracket_may_be_missing_before_the_closing_tag() -> None:
    text = f"<tool_call>{LOOK[:-1]}</tool_call>"
    assert found_in(text) == [look(text)]


def test_a_closing_tag_may_break_off_at_the_end() -> None:
    for end in ("</", "</tool_ca"):
        assert found_in(f"<tool_call>{LOOK}{end}") == [look(f"<tool_call>{LOOK}", closed=False)]
    assert found_in(f"{CALL}<") == [RefusedText(Reason.IN_SENTENCE), Prose(f"{CALL}<")]


def test_what_began_with_a_control_token_is_a_call_although_a_sentence_follows() -> None:
    text = f"<|tool_call|>{LOOK}"
    found = look(f"{text} ", "granite")
    assert found_in(f"So {text} I think.") == [Prose("So"), found, Prose("I think.")]
    assert found_in(f"`{text}`") == [Prose("`"), RefusedText(Reason.QUOTED), Prose(f"{text}`")]


def test_text_full_of_openings_is_searched_only_for_a_while() -> None:
    noise = "<tool_call> x "
    assert found_in_whole(noise * 400 + CALL)[-1] == look()
    assert found_in_whole(noise * 600 + CALL)[-1] == Prose(noise * 100 + CALL)


def test_text_read_in_vain_is_searched_only_for_a_while() -> None:
    noise = f"<tool_call>{{{' ' * 10_000}}} "
    assert found_in_whole(noise * 40 + CALL)[-1] == look()
    assert isinstance(found_in_whole(noise * 60 + CALL)[-1], Prose)


def found_in_whole(text: str) -> list[Finding]:
    found = [*map(without_place, joined(find_calls(text, SYNTAXES, TOOLS)))]
    last = [item for item in found if not isinstance(item, RefusedText)][-1]
    if isinstance(last, Prose):
        last = Prose(last.text[-len("<tool_call> x ") * 100 - len(CALL) :])
    return [last]


# Replies that were cut off.


@pytest.mark.parametrize(
    "text",
    [
        CALL[:30],
        f"<tool_call>{LOOK}",
        f"<tool_call>{LOOK}</tool_",
        f"<tool_call>{LOOK}<|im_end|>",
        f"<tool_call>{LOOK[:-1]}",
        LOOK,
        LOOK[:20],
        FENCED,
        "<function=look><parameter=at>x</parameter>",
        '[TOOL_CALLS]look{"at": "x"',
    ],
)
def test_a_reply_that_was_cut_off_ends_in_no_call(text: str) -> None:
    assert found_in(f"{text}", cut_off=True) == [RefusedText(Reason.CUT_OFF), Prose(text)]


def test_a_call_that_was_closed_counts_although_the_reply_was_cut_off() -> None:
    assert found_in(CALL, cut_off=True) == [look()]
    assert found_in(f"{CALL}\nAnd <tool", cut_off=True) == [look(), Prose("And <tool")]


def test_prose_that_was_cut_off_is_prose() -> None:
    assert found_in("One\n```python\nprint(", cut_off=True) == [Prose("One\n```python\nprint(")]


# Unmarked syntaxes.


def test_plain_json_is_a_call_if_it_is_the_whole_reply() -> None:
    assert found_in(f" \n{LOOK}\n<|im_end|>\n") == [look(LOOK + "\n", "bare_json", is_marked=False)]


@pytest.mark.parametrize(
    "text", [f"{LOOK} is it.", f"{LOOK}\nDone.", f"So {LOOK}", f"So\n{LOOK} x"]
)
def test_plain_json_beside_prose_is_prose(text: str) -> None:
    assert found_in(text) == [Prose(text)]


def test_plain_json_on_lines_of_its_own_may_end_the_reply() -> None:
    found = look(f"\n{LOOK}", "unopened_json", is_marked=False)
    assert found_in(f"I look.\n{LOOK}") == [Prose("I look."), found]


@pytest.mark.parametrize("before", ["You could send\n", "He wrote:\n"])
def test_plain_json_of_which_somebody_tells_is_prose(before: str) -> None:
    assert not any(isinstance(one, FoundCalls) for one in found_in(before + LOOK))


@pytest.mark.parametrize("text", ['{"look": 1}', '{"name": "look"}', "[1, 2]", "[]", "[see]", "{"])
def test_json_that_is_an_answer_is_prose(text: str) -> None:
    assert found_in(text) == [Prose(text)]


def test_a_code_fence_is_a_call_if_it_ends_the_reply() -> None:
    fenced = look(FENCED, "fenced_json", is_marked=False)
    assert found_in(f"I look:\n{FENCED}") == [Prose("I look:"), fenced]
    assert found_in(FENCED[:-4]) == [
        look(FENCED[:-4], "fenced_json", is_marked=False, closed=False)
    ]


@pytest.mark.parametrize(
    "text",
    [
        f"{FENCED}\nis an example.",
        f"Like {FENCED}",
        f"```\n# Then:\n{FENCED}",
        f"{FENCED}\n<tool_response>1</tool_response>",
        '```json\n{"at": "x"}\n```',
    ],
)
def test_other_code_fences_are_prose(text: str) -> None:
    assert found_in(text) == [Prose(text)]


def test_an_unmarked_call_that_a_marked_one_repeats_is_prose() -> None:
    assert found_in(f"{LOOK}\n{CALL}") == [Prose(LOOK), look()]


def test_an_unmarked_call_to_a_tool_that_is_not_offered_is_prose() -> None:
    text = LOOK.replace("look", "search")
    assert found_in(text) == [RefusedText(Reason.NOT_OFFERED), Prose(text)]
    fenced = f"Then:\n```\n[{LOOK}, {text}]\n```\n"
    assert found_in(fenced) == [
        Prose("Then:"),
        RefusedText(Reason.NOT_OFFERED),
        Prose(fenced.removeprefix("Then:")),
    ]


def test_a_marked_call_to_a_tool_that_is_not_offered_is_left_to_the_name_check() -> None:
    assert [type(finding) for finding in found_in(CALL.replace("look", "search"))] == [FoundCalls]


# Results that the model invented.


@pytest.mark.parametrize(
    "result", ["<tool_response>\n42\n</tool_response>", "[TOOL_RESULTS]42[/TOOL_RESULTS]"]
)
def test_a_result_behind_a_call_is_dropped(result: str) -> None:
    text = f"{CALL}\n{result}\nIt is 42.\n{CALL}{result}{result}"
    dropped = LeftOut("invented_result")
    assert found_in(text) == [look(), dropped, Prose("It is 42."), look(), dropped, dropped]


def test_a_result_without_end_is_dropped_to_the_end_of_the_reply() -> None:
    for end in ("", "4", "4</tool_resp"):
        text = f"{CALL}<tool_response>{end}"
        assert found_in(text) == [look(), LeftOut("invented_result")]
        assert found_in(text, cut_off=True) == [look(), LeftOut("invented_result")]


def test_a_result_without_a_call_is_prose() -> None:
    assert found_in("<tool_response>42") == [Prose("<tool_response>42")]


# Properties.

FRAGMENTS = (
    *(CALL, NOW, LOOK, FENCED, "<tool_call>", "</tool_call>", "<function=", "[TOOL_CALLS]", "```"),
    *("`", '"', "\n", " ", "word", "<|im_end|>", "{", "}", "[", "]", "<", "<parameter=a>", "\\"),
    *('[TOOL_CALLS]look{"at": "x"}', "</parameter>", "</function>", "now", '"name": ', "```json\n"),
)
LEFT_OUT = re.compile("|".join([r"\s", "```", *map(re.escape, SPECIAL_TOKENS | STRAY_CLOSERS)]))
HALVES = [re.escape(one[:end]) for one in STRAY_CLOSERS for end in range(2, len(one))]
HALF_CLOSER = re.compile(f"(?:{'|'.join(HALVES)})$")


def words_of(text: str) -> str:
    """Leave out what may be left out behind a call: also a half of a mark or a fence."""
    return LEFT_OUT.sub("", HALF_CLOSER.sub("", text))


@settings(deadline=None, max_examples=examples(200))
@given(
    st.lists(st.sampled_from(FRAGMENTS), max_size=12).map("".join),
    st.lists(st.integers(0, 400), max_size=5).map(sorted),
    st.booleans(),
)
def test_nothing_is_lost_and_chunks_make_no_difference_in_any_mixture(
    text: str, cuts: list[int], cut_off: bool
) -> None:
    findings = scan([text], SYNTAXES, TOOLS, cut_off=cut_off)
    assert scan(text, SYNTAXES, TOOLS, cut_off=cut_off) == findings
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, None], strict=True)]
    assert scan(pieces, SYNTAXES, TOOLS, cut_off=cut_off) == findings
    kept = "".join(
        finding.text if isinstance(finding, Prose) else finding.source
        for finding in findings
        if isinstance(finding, Prose | FoundCalls)
    )
    assert words_of(kept) == words_of(text)
    if not any(isinstance(finding, FoundCalls) for finding in findings):
        assert kept == text


def test_a_whole_text_can_be_scanned_at_once() -> None:
    assert joined(find_calls(f"So:\n{NOW}", SYNTAXES, TOOLS)) == [Prose("So:"), now()]
    assert find_calls('[{"a', SYNTAXES, TOOLS, cut_off=True) == [
        RefusedText(Reason.CUT_OFF),
        Prose('[{"a'),
    ]


def read_stubbornly(cursor: Cursor, opening: str) -> Reading:
    """Break the contract: wait although the text is finished."""
    while cursor.stands_at(" b") or opening:
        yield
    return Calls(())


def test_a_reading_that_never_ends_is_refused_at_the_end() -> None:
    stubborn = Syntax("stubborn", ("<x>",), read_stubbornly)
    assert find_calls("a <x> b", [stubborn], ()) == [
        Prose("a"),
        RefusedText(Reason.CUT_OFF),
        Prose(" <x> b"),
    ]


@pytest.mark.parametrize(
    "unit",
    [
        *("{", "[", "<", '"', "'", "`", "a", " ", "\n", "\\", "```\n", "```json\n", "</s>"),
        *("<tool_call>", "<tool_call>{", "<function=a>", "[TOOL_CALLS]", "<tool_call>[1,"),
        *('<tool_call>{"name":"x","arguments":{"a":"', "<tool_call><function=a><parameter=b>"),
        *(CALL, NOW, f"{CALL} x\n", "</tool_call>", "</function>\n", "<tool_response>"),
        *("\n[look(", "\n{", "<|tool_call>call:look{a:", "<tool_call>look<arg_key>", "<|im_end|>"),
        *('<invoke name="look">', "<|python_tag|>look(a='", "[TOOL_CALLS]", " to=functions.look"),
    ],
)
@pytest.mark.parametrize("start", ["", '<tool_call>{"name":"x","arguments":{"a":"'])
def test_work_is_linear_for_floods(unit: str, start: str) -> None:
    def scan_whole(text: str) -> None:
        scan([text], SYNTAXES, TOOLS)

    def scan_pieces(text: str) -> None:
        scan([text[i : i + 8] for i in range(0, len(text), 8)], SYNTAXES, TOOLS)

    def flood(size: int) -> str:
        return start + unit * (size // len(unit))

    assert is_linear(scan_whole, flood, 6_000)
    assert is_linear(scan_pieces, flood, 6_000)
