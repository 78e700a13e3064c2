"""Tables of *text -> findings*; every text is also read in chunks.

`<CALL>` and the other names in `SHORT` are abbreviations. Prose is written as it is, and other
findings in brackets:

    [hermes: look]        calls, with their syntax
    [quoted]              the reason why the prose after it is not a call
    [-invented_result]    dropped text
"""

# ruff: noqa: RUF001 - the control tokens of DeepSeek have a fullwidth bar

import re
from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from proxy.conversation.tools import WrittenCall
from proxy.guardrails.rescue.findings import (
    ArgumentsStarted,
    ArgumentsText,
    DroppedText,
    EarlierReasoning,
    Finding,
    FoundCalls,
    Gap,
    Prose,
    RefusedText,
)
from proxy.guardrails.rescue.marks import SPECIAL_TOKENS, STRAY_CLOSERS
from proxy.guardrails.rescue.registry import SYNTAXES
from proxy.guardrails.rescue.scanner import Scanner, find_calls
from proxy.guardrails.rescue.syntax import MOST_CALLS, Calls, Reading, Reason, Syntax
from proxy.guardrails.rescue.syntaxes.tool_names import syntaxes_for
from proxy.guardrails.rescue.values.cursor import Cursor
from tests.examples import examples, mostly_deep
from tests.fakes.arrivals import chunkings, is_linear, joined, scan
from tests.fakes.playbook import make_tool

TOOLS = ("look", "now")
NAMED = syntaxes_for((make_tool("now", {}),))
LOOK = '{"name": "look", "arguments": {"at": "x"}}'
CALL = f"<tool_call>{LOOK}</tool_call>"
NOW = "<function=now></function>"
FENCED = f"```json\n{LOOK}\n```"
SHORT = {
    "<CALL>": CALL,
    "<OPEN>": f"<tool_call>{LOOK}",
    "<NOW>": NOW,
    "<FENCED>": FENCED,
    "<LOOK>": LOOK,
    "<BROKEN>": '<tool_call>{"name": "look", "arguments": {oh}}</tool_call>',
}
TABLES = {
    "prose passes unchanged": {
        "Hello.": "Hello.",
        " \n two\n\nlines \n": " \n two\n\nlines \n",
        "a < b, [1], {x} and `code`": "a < b, [1], {x} and `code`",
        "<tool": "<tool",
        "```\ncode\n```\n": "```\ncode\n```\n",
        "\n": "\n",
        "a <|im_end|> b</s>": "a <|im_end|> b</s>",
    },
    "white space and marks around calls are dropped": {
        "\n Let me  see.\n\n<CALL>\n <NOW>\n\nDone. ": (
            "\n Let me  see.[hermes: look][qwen_coder: now]Done. "
        ),
        "<|im_start|>\n<CALL><|im_end|>\n<CALL></s> <|endoftext|>": "[hermes: look][hermes: look]",
        "<NOW>\n</tool_call>\n": "[qwen_coder: now]",
        "<CALL></tool_call>\nDone.": "[hermes: look]Done.",
        "<CALL></tool_c": "[hermes: look]",
        "<CALL><": "[in_sentence]<CALL><",
        "<CALL><|that_is_all|>": "[hermes: look]",
        "<CALL><｜fin｜> \n": "[hermes: look]",
        "<CALL><|that_is": "[in_sentence]<CALL><|that_is",
        "<CALL><|that is all|>": "[in_sentence]<CALL><|that is all|>",
        "<CALL><|end_of_it|>.": "[in_sentence]<CALL><|end_of_it|>.",
        "<s><FENCED>": "[fenced_json plain: look]",
        "<CALL></b": "[in_sentence]<CALL></b",
        "So.\n<FENCED><|im_end|>\n": "So.[fenced_json plain: look]",
    },
    "quoted calls are prose": {
        "Write `<CALL>`.": "Write `[quoted]<CALL>`.",
        "For example:\n```xml\n<CALL>\n```\n": "For example:[quoted]\n```xml\n<CALL>\n```\n",
        'It said "<CALL>".': 'It said "[quoted]<CALL>".',
        "Use '<CALL>'": "Use '[quoted]<CALL>'",
        "“<CALL>”": "“[quoted]<CALL>”",
        "`<CALL><|im_end|>`": "`[quoted]<CALL><|im_end|>`",
        '"<CALL></s>" ends it.': '"[quoted]<CALL></s>" ends it.',
        "For example:\n<CALL><|im_end|>\n": "For example:[quoted]\n<CALL><|im_end|>\n",
        "~~~\n<|im_start|>\n<CALL>\n~~~\n": "~~~[quoted]\n<|im_start|>\n<CALL>\n~~~\n",
        "For instance:\n<CALL>": "For instance:[quoted]\n<CALL>",
        'He is "Al"\n[TOOL_CALLS][<LOOK>]': 'He is "Al"[mistral: look]',
        "> a line\n[TOOL_CALLS][<LOOK>]": "> a line[mistral: look]",
        "it's `code\n[TOOL_CALLS][<LOOK>]": "it's `code[mistral: look]",
        "So 'x'\n[look(at='x')]": "So 'x'[python_list plain: look]",
        "```\nx\n[look(at='x')]": "```\nx\n[look(at='x')]",
        "~~~\nx\n[look(at='x')]": "~~~\nx\n[look(at='x')]",
        "\"<tool_call>\n[look(at='x')]": "\"[quoted]<tool_call>\n[look(at='x')]",
        "```\ncode\n```\n<CALL>": "```\ncode\n```[hermes: look]",
        "`<|tool_call|><LOOK>`": "`[quoted]<|tool_call|><LOOK>`",
        "For example:\n<NOW>\n<CALL>\nThat is it.": (
            "For example:[quoted]\n<NOW>[quoted]\n<CALL>\nThat is it."
        ),
        "For example:\n<FENCED>\n<CALL>\nThat is it.": (
            "For example:[quoted]\n<FENCED>[quoted]\n<CALL>\nThat is it."
        ),
        "For example:\n<OPEN>\n<CALL>\nThat is it.": (
            "For example:[quoted]\n<OPEN>[quoted]\n<CALL>\nThat is it."
        ),
        "For example:\n<BROKEN>\nor\n<CALL>": "For example:[quoted]\n<BROKEN>\nor[quoted]\n<CALL>",
        "> <CALL>\n": ">[quoted] <CALL>\n",
        "+<CALL>\n": "+[quoted]<CALL>\n",
        '{"a": "Do this. <NOW> Then that."}': '{"a": "Do this.[quoted] <NOW> Then that."}',
        '{"a": "Do this. <NOW> Then that."}\n<CALL>': (
            '{"a": "Do this.[quoted] <NOW> Then that."}[hermes: look]'
        ),
        '{"a": "b" c, "d": "Do this.\n<NOW>\n"}\n<CALL>\nmore\n': (
            '{"a": "b" c, "d": "Do this.[quoted]\n<NOW>\n"}[quoted]\n<CALL>\nmore\n'
        ),
        "~~~\nx\n[TOOL_CALLS][<LOOK>]\n~~~\n": "~~~\nx[quoted]\n[TOOL_CALLS][<LOOK>]\n~~~\n",
        "~~~\n<CALL>\n~~~\n": "~~~[quoted]\n<CALL>\n~~~\n",
        'So:\n{"a": "Do this. <NOW> Then that."}': (
            'So:\n{"a": "Do this.[quoted] <NOW> Then that."}'
        ),
        "The text <|tool_call|><LOOK>, as you see": (
            "The text[in_sentence] <|tool_call|><LOOK>, as you see"
        ),
        'He wrote "<tool_calls>\\n<CALL></tool_calls>".': (
            'He wrote "[quoted]<tool_calls>\\n[quoted]<CALL></tool_calls>".'
        ),
    },
    "a call in a sentence is prose": {
        "<CALL> is how it is done.": "[in_sentence]<CALL> is how it is done.",
        "<CALL>.": "[in_sentence]<CALL>.",
        "<CALL></tool_call>, see?": "[in_sentence]<CALL></tool_call>, see?",
        "<CALL> `": "[in_sentence]<CALL> `",
        "<CALL>\nThat is it.": "[hermes: look]That is it.",
        "<CALL><|im_end|>That is it.": "[hermes: look]That is it.",
        "<CALL> \r\n\nThat is it.": "[hermes: look]That is it.",
        "<CALL>Then more.": "[hermes: look]Then more.",
        "First query: <CALL> Then more.": "First query:[hermes: look]Then more.",
        "One. <CALL> 然后": "One.[hermes: look]然后",
        "Use <CALL> Then wait.": "Use[in_sentence] <CALL> Then wait.",
        "Write: <CALL> to look.": "Write:[in_sentence] <CALL> to look.",
        "First <CALL>, then": "First[in_sentence] <CALL>, then",
        "So <|tool_call|><LOOK> I think.": "So[granite: look]I think.",
        "I will not call <|tool_call|><LOOK> because of it.": (
            "I will not call[quoted] <|tool_call|><LOOK> because of it."
        ),
        "Hm.<|tool_call|><LOOK> because of it": "Hm.[granite: look]because of it",
        "Hm.<|tool_call|><LOOK> because of it.": (
            "Hm.[in_sentence]<|tool_call|><LOOK> because of it."
        ),
        "pre<|tool_call|><LOOK>post": "pre[granite: look]post",
        'He wrote "<tool_calls>\n<CALL></tool_calls>".': (
            'He wrote "[quoted]<tool_calls>[quoted]\n<CALL></tool_calls>".'
        ),
        "<function_call><LOOK>\nThat is it.": "[granite: look]That is it.",
        "<CALL>, <CALL>": "[in_sentence]<CALL>,[out_of_order] <CALL>",
        "<CALL> or more and <CALL>": "[in_sentence]<CALL> or more and[out_of_order] <CALL>",
        "<CALL> plus some words and <NOW>": (
            "[in_sentence]<CALL> plus some words and[out_of_order] <NOW>"
        ),
        "<CALL>,\n<NOW>": "[in_sentence]<CALL>,[out_of_order]\n<NOW>",
        "<CALL>and<NOW>": "[in_sentence]<CALL>and[out_of_order]<NOW>",
        "<CALL>; then <NOW>": "[in_sentence]<CALL>; then[out_of_order] <NOW>",
        "<CALL> and <NOW> are two.": "[in_sentence]<CALL> and[out_of_order] <NOW> are two.",
        "Use <CALL> or <NOW>": "Use[in_sentence] <CALL> or[out_of_order] <NOW>",
        "So:\n<CALL> Then more.": "So:[hermes: look]Then more.",
        "</think><CALL> Then more.": "</think>[reasoning][hermes: look]Then more.",
    },
    "a call after a refused call may be refused": {
        "<CALL> or\n<NOW>": "[in_sentence]<CALL> or[out_of_order]\n<NOW>",
        "<CALL> is it, <CALL>": "[in_sentence]<CALL> is it,[out_of_order] <CALL>",
        "<function=other></function> is it.\n<CALL>": (
            "[in_sentence]<function=other></function> is it.[hermes: look]"
        ),
        "<OPEN>\nOr.\n<NOW>": "[not_closed]<OPEN>\nOr.[out_of_order]\n<NOW>",
        "<OPEN>\nOr.\n<CALL>": "[not_closed]<OPEN>\nOr.[hermes: look]",
        "<OPEN>\nOr.\n<CALL>\n<NOW>": "[not_closed]<OPEN>\nOr.[hermes: look][qwen_coder: now]",
        'So.\n{"name": "other", "arguments": {}}\n\nOr.\n<LOOK>': (
            'So.\n{"name": "other", "arguments": {}}\n\nOr.\n<LOOK>'
        ),
        'So.\n{"name": "other", "arguments": {}}\n\nOr.\n<CALL>': (
            'So.\n{"name": "other", "arguments": {}}\n\nOr.[hermes: look]'
        ),
        "<BROKEN>\n<CALL>": "[broken]<BROKEN>[nested]\n<CALL>",
        "<BROKEN>\n<CALL> is it. <CALL>": "[broken]<BROKEN>[nested]\n<CALL> is it.[nested] <CALL>",
        '```json\n{"name": "look", "a<CALL>': '```json\n{"name": "look", "a<CALL>',
        "Action: look\nAction Input: {\n<CALL>": "Action: look\nAction Input: {[nested]\n<CALL>",
        "<look at='x\n<CALL>": "<look at='x[hermes: look]",
        "look(up) is a function; look and see\n<CALL>": (
            "look(up) is a function; look and see[hermes: look]"
        ),
        "<LOOK>\n<CALL>": "<LOOK>[hermes: look]",
        "<LOOK>\nmore\n<CALL>": "<LOOK>\nmore[hermes: look]",
        "<CALL>\nAnd.\n[TOOL_CALLS]now[ARGS]{}": (
            "[hermes: look]And.[quoted]\n[TOOL_CALLS]now[ARGS]{}"
        ),
        "<CALL>\n[TOOL_CALLS]now[ARGS]{}": "[hermes: look][mistral: now]",
        "<CALL>\nAnd.\n<tool_call><NOW></tool_call>": "[hermes: look]And.[qwen_coder: now]",
        ">>>look\n{oh\n<CALL>": ">>>look\n{oh[nested]\n<CALL>",
        "<FENCED>x\n<LOOK>": "<FENCED>x\n<LOOK>",
        "call:look{at\n<CALL>": "call:look{at[nested]\n<CALL>",
        "now {oh\n<CALL>": "now {oh[nested]\n<CALL>",
        ">>>search\n{oh\n<CALL>": ">>>search\n{oh[hermes: look]",
        "call:search{at\n<CALL>": "call:search{at[hermes: look]",
        "Action: search\nAction Input: {\n<CALL>": "Action: search\nAction Input: {[hermes: look]",
    },
    "broken and open calls": {
        "The <tool_call> tag.\n<CALL>": "The[not_a_call] <tool_call> tag.[hermes: look]",
        "<BROKEN>": "[broken]<BROKEN>",
        "<OPEN>\n<CALL>": "[hermes open: look][hermes: look]",
        "<OPEN><|im_end|>": "[hermes open: look]",
        "<OPEN>\nThat is it.": "[not_closed]<OPEN>\nThat is it.",
        "<OPEN></": "[hermes open: look]",
        "<OPEN></tool_ca": "[hermes open: look]",
        '<tool_call>{"name": "look", "arguments": {"at": "x"}': "[hermes open: look]",
        '<tool_call>{"name": "look", "arguments": {"at": "x"}</tool_call>': "[hermes: look]",
        '<tool_call>{"name": "look", "arguments": {"at": "x"</tool_call>': (
            '[broken]<tool_call>{"name": "look", "arguments": {"at": "x"</tool_call>'
        ),
    },
    "a reply that was cut off ends in no call": {
        '<tool_call>{"name": "look", "a': '[cut_off]<tool_call>{"name": "look", "a',
        "<OPEN>": "[cut_off]<OPEN>",
        "<OPEN></tool_": "[cut_off]<OPEN></tool_",
        "<OPEN><|im_end|>": "[cut_off]<OPEN><|im_end|>",
        "<LOOK>": "[cut_off]<LOOK>",
        '{"name": "look", "ar': '[cut_off]{"name": "look", "ar',
        '<tool_call>{"name": "look", "arguments": {"at": "x"}': (
            '[cut_off]<tool_call>{"name": "look", "arguments": {"at": "x"}'
        ),
        "<CALL><tool_response>4": "[hermes: look][-invented_result]",
        "<CALL><tool_response>4</tool_resp": "[hermes: look][-invented_result]",
        "<FENCED>": "[cut_off]<FENCED>",
        "<function=look><parameter=at>x</parameter>": (
            "[cut_off]<function=look><parameter=at>x</parameter>"
        ),
        '[TOOL_CALLS]look{"at": "x"': '[cut_off][TOOL_CALLS]look{"at": "x"',
        "<CALL>": "[hermes: look]",
        "<CALL>\nAnd <tool": "[hermes: look]And <tool",
        "One\n```python\nprint(": "One\n```python\nprint(",
    },
    "calls without a mark end the reply": {
        " \n<LOOK>\n<|im_end|>\n": "[bare_json plain: look]",
        "<LOOK> is it.": "<LOOK> is it.",
        "<LOOK>\nDone.": "<LOOK>\nDone.",
        "So <LOOK>": "So <LOOK>",
        "So\n<LOOK> x": "So\n<LOOK> x",
        "I look.\n<LOOK>": "I look.[unopened_json plain: look]",
        "You could send\n<LOOK>": "You could send[quoted]\n<LOOK>",
        "He wrote:\n<LOOK>": "He wrote:[quoted]\n<LOOK>",
        '{"look": 1}': '{"look": 1}',
        '{"name": "look"}': '{"name": "look"}',
        "[1, 2]": "[1, 2]",
        "[]": "[]",
        "[see]": "[see]",
        "{": "{",
        "I look:\n<FENCED>": "I look:[fenced_json plain: look]",
        "```json\n<LOOK>": "[fenced_json plain open: look]",
        "<FENCED>\nis an example.": "<FENCED>\nis an example.",
        "Like <FENCED>": "Like <FENCED>",
        "```\n# Then:\n<FENCED>": "```\n# Then:\n<FENCED>",
        "<FENCED>\n<tool_response>1</tool_response>": "<FENCED>\n<tool_response>1</tool_response>",
        '```json\n{"at": "x"}\n```': '```json\n{"at": "x"}\n```',
        '{"name": "search", "arguments": {}}': '[not_offered]{"name": "search", "arguments": {}}',
        'Then:\n```\n[<LOOK>, {"name": "search", "arguments": {}}]\n```\n': (
            'Then:[not_offered]\n```\n[<LOOK>, {"name": "search", "arguments": {}}]\n```\n'
        ),
        '<tool_call>{"name": "search", "arguments": {}}</tool_call>': "[hermes: search]",
        '{"name": "functions.look", "arguments": {}}': "[bare_json plain: functions.look]",
    },
    "invented results are dropped": {
        (
            "<CALL>\n<tool_response>\n42\n</tool_response>\nIt is 42.\n"
            "<CALL>[TOOL_RESULTS]42[/TOOL_RESULTS]"
        ): ("[hermes: look][-invented_result]It is 42.[hermes: look][-invented_result]"),
        "<CALL><tool_response>4</tool_resp": "[hermes: look][-invented_result]",
        "<CALL><tool_response>": "[hermes: look][-invented_result]",
        "<CALL><tool_response>4</tool_response><tool_response>2</tool_response>": (
            "[hermes: look][-invented_result][-invented_result]"
        ),
        "<CALL>\n[TOOL_RESULTS]4[/TOOL_RESULTS]\nIt is 4.": (
            "[hermes: look][-invented_result]It is 4."
        ),
        "<tool_response>42": "<tool_response>42",
        "<tool_response>\n<CALL>\n</tool_response>\nSo.": (
            "<tool_response>\n<CALL>\n</tool_response>\nSo."
        ),
    },
    "the reply starts over after reasoning": {
        "Hm.\n</think>\n\n<LOOK>": "Hm.\n</think>[reasoning][bare_json plain: look]",
        "<CALL></think>Done.": "[hermes: look][reasoning]Done.",
        "<LOOK>\n</think>\nDone.": "<LOOK>\n[reasoning]\nDone.",
        "The `</think>` tag": "The `</think>` tag",
        "It reads <BROKEN> then.\n</think>\n<CALL>": (
            "It reads[quoted] <BROKEN> then.\n</think>[reasoning][hermes: look]"
        ),
        "It reads <BROKEN> then.\n</think>\n<CALL>\n<CALL>": (
            "It reads[quoted] <BROKEN> then.\n</think>[reasoning][hermes: look][hermes: look]"
        ),
        "It reads <BROKEN> then.\n</think>\n<CALL></tool_call>": (
            "It reads[quoted] <BROKEN> then.\n</think>[reasoning][nested]\n<CALL></tool_call>"
        ),
        "It reads <BROKEN> then.\n</think>\n<CALL>\nThat is it.": (
            "It reads[quoted] <BROKEN> then.\n</think>[reasoning][nested]\n<CALL>\nThat is it."
        ),
        "It reads <BROKEN> then.\n</think>\n<CALL><|im_end|>\n": (
            "It reads[quoted] <BROKEN> then.\n</think>[reasoning][hermes: look]"
        ),
        "It reads <BROKEN> then.\n</think>\n<CALL>\n</tool_call>\n": (
            "It reads[quoted] <BROKEN> then.\n</think>[reasoning][nested]\n<CALL>\n</tool_call>\n"
        ),
        "It reads <tool_call>{oh then.\n</think>\n<CALL>": (
            "It reads[quoted] <tool_call>{oh then.\n</think>[reasoning][hermes: look]"
        ),
        "<CALL>\n</think>\n<CALL>": "[hermes: look][reasoning][hermes: look]",
        "<CALL>\n</think>\n<CALL>\nDone.": "[hermes: look][reasoning][nested]\n<CALL>\nDone.",
        "<tool_call>{oh\nHm.\n</think>\n<CALL>": (
            "[broken]<tool_call>{oh\nHm.\n</think>[reasoning continues][nested]\n<CALL>"
        ),
        "<tool_call>{oh\n</tool_call>\n</think>\n<CALL>": (
            "[broken]<tool_call>{oh\n</tool_call>\n</think>[reasoning][hermes: look]"
        ),
        "<think></think><now></now>\n": "<think></think>[reasoning][tool_tags: now]",
    },
    "an empty tag is a call only as the complete reply": {
        "<now></now>": "[tool_tags: now]",
        "So <now></now>": "So[not_a_call] <now></now>",
        "<now></now> tells": "[not_a_call]<now></now> tells",
        "```xml\n<now></now>\n```": "```xml\n<now></now>\n```",
        "<now></now>\n<CALL>": "[not_a_call]<now></now>[hermes: look]",
    },
}

ROWS = [(title, text, row) for title, rows in TABLES.items() for text, row in rows.items()]


def expand(text: str) -> str:
    for short, long in SHORT.items():
        text = text.replace(short, long)
    return text


def render(findings: Iterable[Finding]) -> str:
    """Write findings in the notation of the tables."""
    pieces: list[str] = []
    for finding in findings:
        match finding:
            case Prose(text):
                pieces.append(text)
            case FoundCalls(syntax_name, calls):
                kind = " plain" * (not finding.is_marked) + " open" * (not finding.closed)
                names = " ".join(call.name for call in calls)
                pieces.append(f"[{syntax_name}{kind}: {names}]")
            case RefusedText(reason):
                pieces.append(f"[{reason}]")
            case DroppedText(content):
                pieces.append(f"[-{content}]")
            case EarlierReasoning(is_over):
                pieces.append("[reasoning]" if is_over else "[reasoning continues]")
            case _:
                pass  # the tables do not show arguments and gaps
    return "".join(pieces)


@pytest.mark.parametrize(("title", "text", "findings"), ROWS, ids=[text for _, text, _ in ROWS])
def test_scanning_the_reply_of_a_table_row_gives_the_findings_of_the_row(
    title: str, text: str, findings: str
) -> None:
    for pieces in chunkings(expand(text)):
        scanner = Scanner(SYNTAXES, TOOLS, NAMED)
        results = [finding for piece in pieces for finding in scanner.feed(piece)]
        results += scanner.finish(cut_off="cut off" in title)
        assert render(joined(results)) == expand(findings)


def test_an_empty_text_has_no_findings() -> None:
    assert find_calls("", SYNTAXES, TOOLS) == []


def look(source: str = CALL, name: str = "hermes") -> FoundCalls:
    """Return the finding for a call of `look`."""
    return FoundCalls(
        name, (WrittenCall("look", {"at": "x"}),), source, is_marked=True, closed=True
    )


def now(source: str = NOW) -> FoundCalls:
    """Return the finding for a call of `now`."""
    return FoundCalls("qwen_coder", (WrittenCall("now", {}),), source, is_marked=True, closed=True)


# Findings are reported as early as possible.


def test_prose_is_reported_as_soon_as_it_cannot_belong_to_a_call() -> None:
    scanner = Scanner(SYNTAXES, TOOLS)
    assert scanner.feed("Let me ") == [Prose("Let me")]
    assert scanner.feed("see. <tool") == [Prose(" see.")]
    assert scanner.feed("box> are") == [Prose(" <toolbox> are")]
    assert scanner.finish() == []


def test_take_space_returns_white_space_held_back_after_prose() -> None:
    scanner = Scanner(SYNTAXES, TOOLS)
    spaces = {" \n": " \n", "See.\n\n": "\n\n", "\n<": "", "tool_": "", CALL[6:] + "\n": ""}
    for text, space in spaces.items():
        scanner.feed(text)
        assert scanner.take_space() == space


def test_a_call_is_reported_as_soon_as_no_sentence_can_continue_after_it() -> None:
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


def test_reported_arguments_are_the_same_at_any_chunking() -> None:
    text = f"So: {CALL}\n[TOOL_CALLS]now[ARGS]{{}}\n{FENCED}"
    results = [scan(pieces, SYNTAXES, TOOLS) for pieces in chunkings(text)]
    assert all(result == results[0] for result in results)
    assert [finding for finding in results[0] if isinstance(finding, ArgumentsText)] == [
        ArgumentsText('{"at": "x"}'),
        ArgumentsText("{}"),
        ArgumentsText('{"at": "x"}'),
    ]


def without_mark(finding: Finding) -> Finding:
    """Clear `follows_mark` of a finding, so that the comparison ignores this attribute."""
    return replace(finding, follows_mark=False) if isinstance(finding, FoundCalls) else finding


def test_all_text_is_prose_after_too_many_opening_marks_without_a_call() -> None:
    noise = "<tool_call> x "
    assert last_finding(noise * 400 + CALL)[-1] == look()
    assert last_finding(noise * 600 + CALL)[-1] == Prose(noise * 100 + CALL)


def test_all_text_is_prose_after_too_much_text_without_a_call() -> None:
    noise = f"<tool_call>{{{' ' * 10_000}}} "
    assert last_finding(noise * 40 + CALL)[-1] == look()
    assert isinstance(last_finding(noise * 60 + CALL)[-1], Prose)


def last_finding(text: str) -> list[Finding]:
    items = [*map(without_mark, joined(find_calls(text, SYNTAXES, TOOLS)))]
    last = [item for item in items if not isinstance(item, RefusedText)][-1]
    if isinstance(last, Prose):
        last = Prose(last.text[-len("<tool_call> x ") * 100 - len(CALL) :])
    return [last]


def test_too_many_openings_are_reported_exactly_once() -> None:
    noise = "<tool_call> x "
    too_many = RefusedText(Reason.TOO_MANY_OPENINGS)
    for pieces in ([noise * 600], list(noise * 600)):
        assert scan(pieces, SYNTAXES, TOOLS).count(too_many) == 1
    assert too_many not in scan([noise * 400], SYNTAXES, TOOLS)


def test_calls_above_the_limit_of_a_reply_are_dropped() -> None:
    many = f"<tool_call>[{', '.join([LOOK] * 100)}]</tool_call>"
    findings = find_calls(f"{many}\n{many}\n{many}", SYNTAXES, TOOLS)
    calls = [call for item in findings if isinstance(item, FoundCalls) for call in item.calls]
    assert len(calls) == MOST_CALLS


@pytest.mark.parametrize(
    "text", [f"For example:\n{CALL}", LOOK.replace("look", "search")], ids=["example", "unknown"]
)
def test_the_arguments_of_refused_calls_are_not_reported(text: str) -> None:
    findings = scan([text], SYNTAXES, TOOLS)
    assert not any(isinstance(item, ArgumentsStarted | ArgumentsText) for item in findings)


# Properties of any text and of long texts.

FRAGMENTS = (
    *(CALL, NOW, LOOK, FENCED, "<tool_call>", "</tool_call>", "<function=", "[TOOL_CALLS]", "```"),
    *("`", '"', "\n", " ", "word", "<|im_end|>", "{", "}", "[", "]", "<", "<parameter=a>", "\\"),
    *('[TOOL_CALLS]look{"at": "x"}', "</parameter>", "</function>", "now", '"name": ', "```json\n"),
)
REMOVABLE = re.compile("|".join([r"\s", "```", *map(re.escape, SPECIAL_TOKENS | STRAY_CLOSERS)]))
PARTIAL_CLOSERS = [re.escape(mark[:end]) for mark in STRAY_CLOSERS for end in range(2, len(mark))]
PARTIAL_CLOSER = re.compile(f"(?:{'|'.join(PARTIAL_CLOSERS)})$")


def words_of(text: str) -> str:
    """Remove all text that the scanner may drop after a call, also a partial mark at the end."""
    return REMOVABLE.sub("", PARTIAL_CLOSER.sub("", text))


@settings(deadline=None, max_examples=examples(200))
@given(
    st.lists(st.sampled_from(FRAGMENTS), max_size=12).map("".join),
    st.lists(st.integers(0, 400), max_size=5).map(sorted),
    st.booleans(),
)
def test_no_text_is_lost_at_any_chunking(text: str, cuts: list[int], cut_off: bool) -> None:
    findings = scan([text], SYNTAXES, TOOLS, cut_off=cut_off)
    assert scan(text, SYNTAXES, TOOLS, cut_off=cut_off) == findings
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, None], strict=True)]
    assert scan(pieces, SYNTAXES, TOOLS, cut_off=cut_off) == findings
    reported_text = "".join(
        finding.text if isinstance(finding, Prose) else finding.source
        for finding in findings
        if isinstance(finding, Prose | FoundCalls)
    )
    assert words_of(reported_text) == words_of(text)
    if not any(isinstance(finding, FoundCalls) for finding in findings):
        assert reported_text == text


def test_find_calls_scans_a_complete_text() -> None:
    assert joined(find_calls(f"So:\n{NOW}", SYNTAXES, TOOLS)) == [Prose("So:"), now()]
    assert find_calls('[{"a', SYNTAXES, TOOLS, cut_off=True) == [
        RefusedText(Reason.CUT_OFF),
        Prose('[{"a'),
    ]


def read_forever(cursor: Cursor, opening: str) -> Reading:
    """Violate the contract of a reading: yield although the text is complete."""
    while cursor.starts_with(" b") or opening:
        yield
    return Calls(())


def test_a_syntax_that_never_finishes_reading_is_refused_at_the_end_of_the_text() -> None:
    endless = Syntax("endless", ("<x>",), read_forever)
    assert find_calls("a <x> b", [endless], ()) == [
        Prose("a"),
        RefusedText(Reason.CUT_OFF),
        Prose(" <x> b"),
    ]


FLOOD_UNITS = (
    *("{", "[", "<", '"', "'", "`", "a", " ", "\n", "\\", "```\n", "```json\n", "</s>"),
    *("<tool_call>", "<tool_call>{", "<function=a>", "[TOOL_CALLS]", "<tool_call>[1,"),
    *('<tool_call>{"name":"x","arguments":{"a":"', "<tool_call><function=a><parameter=b>"),
    *(CALL, NOW, f"{CALL} x\n", "</tool_call>", "</function>\n", "<tool_response>"),
    *("\n[look(", "\n{", "<|tool_call>call:look{a:", "<tool_call>look<arg_key>", "<|im_end|>"),
    *('<invoke name="look">', "<|python_tag|>look(a='", "[TOOL_CALLS]", " to=functions.look"),
)


@pytest.mark.parametrize("unit", mostly_deep(FLOOD_UNITS))
@pytest.mark.parametrize("start", ["", '<tool_call>{"name":"x","arguments":{"a":"'])
def test_scanning_a_flood_of_marks_takes_linear_time(unit: str, start: str) -> None:
    def scan_whole(text: str) -> None:
        scan([text], SYNTAXES, TOOLS)

    def scan_pieces(text: str) -> None:
        scan([text[i : i + 8] for i in range(0, len(text), 8)], SYNTAXES, TOOLS)

    def flood(size: int) -> str:
        return start + unit * (size // len(unit))

    assert is_linear(scan_whole, flood, 6_000)
    assert is_linear(scan_pieces, flood, 6_000)
