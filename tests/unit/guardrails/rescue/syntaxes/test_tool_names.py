import pytest

from proxy.conversation.json import JsonObject
from proxy.conversation.tools import Tool, WrittenCall
from proxy.guardrails.rescue.registry import SYNTAXES
from proxy.guardrails.rescue.scanner import Scanner, find_calls
from proxy.guardrails.rescue.syntax import Syntax
from proxy.guardrails.rescue.syntaxes.tool_names import (
    syntaxes_for,
)
from tests.fakes.arrivals import calls_found
from tests.fakes.playbook import make_tool

SCHEMA: JsonObject = {"type": "object", "properties": {"at": {}, "n": {}}}
TOOLS = (make_tool("look", SCHEMA), make_tool("time", {}))
NAMES = ("look", "time")
LOOK = WrittenCall("look", {"at": "x"})
OBJECT = '{"at": "x"}'


def calls_in(text: str) -> list[WrittenCall]:
    findings = find_calls(text, SYNTAXES, NAMES, syntaxes_for(TOOLS))
    return [call for finding in calls_found(findings) for call in finding.calls]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # a name with its arguments is a call
        (f"look[ARGS]{OBJECT}", [LOOK]),
        (f"I will. look[ARGS]{OBJECT}", [LOOK]),
        (f"I will.\nlook[ARGS]{OBJECT}\n", [LOOK]),
        (f"<think>hm</think>look[ARGS]{OBJECT}", [LOOK]),
        (f"[TOOL_CALLS]look[ARGS]{OBJECT}", [LOOK]),
        (f"<|channel|>analysis to=look<|message|>{OBJECT}<|call|>", [LOOK]),
        (f"<|start|>assistant to=look<|channel|>commentary json<|message|>{OBJECT}", [LOOK]),
        (f"Hm. to=look <|constrain|>json<|message|>{OBJECT}<|call|>", [LOOK]),
        ("<tool_call>look at=x</tool_call>", [LOOK]),
        # other names and quotations stay prose
        (f"fly[ARGS]{OBJECT}", []),
        (f"get_time[ARGS]{OBJECT}", []),
        (f"`look[ARGS]{OBJECT}`", []),
        (f"``look[ARGS]{OBJECT}``", []),
        (f"```\nlook[ARGS]{OBJECT}\n```\nis the form", []),
        (f"> look[ARGS]{OBJECT}", []),
        (f'"look[ARGS]{OBJECT}"', []),
        (f"The form is look[ARGS]{OBJECT} as told", []),
        (f"For example: look[ARGS]{OBJECT}", []),
        (f"<think>look[ARGS]{OBJECT}</think> No.", []),
        (f"set to=look {OBJECT}", []),
        (f"<|channel|>analysis to=fly<|message|>{OBJECT}", []),
        (f"<|channel|>analysis to=look_up<|message|>{OBJECT}", []),
    ],
)
def test_a_call_is_recognized_by_the_name_of_its_tool(
    text: str, expected: list[WrittenCall]
) -> None:
    assert calls_in(text) == expected


INLINE_SCHEMA: JsonObject = {"type": "object", "properties": {"at": {}}, "required": ["at"]}
PLAIN = '{"name": "look", "arguments": {"at": "x"}}'
INLINE_CALLS = (
    PLAIN,
    '{"name":"look","arguments":{"at":"x"}}',
    'call:look{at:"x"}',
    "[look(at='x')]",
)


def inline_calls_in(text: str, schema: JsonObject) -> list[WrittenCall]:
    named = syntaxes_for((make_tool("look", schema),))
    scanner = Scanner(SYNTAXES, ("look",), named)
    findings = scanner.feed(text) + scanner.finish()
    return [call for finding in calls_found(findings) for call in finding.calls]


@pytest.mark.parametrize("inline_call", INLINE_CALLS)
@pytest.mark.parametrize("words", ["I'll check:", "Let me look.", "Ich sehe nach:"])
def test_an_inline_call_after_an_announcement_is_accepted_only_at_the_end_of_the_text(
    words: str, inline_call: str
) -> None:
    assert inline_calls_in(f"{words} {inline_call}", INLINE_SCHEMA) == [LOOK]
    assert inline_calls_in(f"{words} {inline_call}\n", INLINE_SCHEMA) == [LOOK]
    assert inline_calls_in(f"{words} {inline_call} Or so.", INLINE_SCHEMA) == []
    assert inline_calls_in(f"{words} {inline_call}\nDone.", INLINE_SCHEMA) == []


@pytest.mark.parametrize("inline_call", INLINE_CALLS)
@pytest.mark.parametrize(
    "words",
    [
        *("I looked it up with:", "The call was:", "It is:", "I'll use", "This is about looks."),
        *("He wrote \"I'll check:", "`Let me look:", "> I'll check:", "I'll look, you wrote:"),
        *("You could then say: I'll check:", "For example:", "I will not look:", "Here's a call:"),
    ],
)
def test_an_inline_call_is_text_unless_the_words_before_it_announce_a_call(
    words: str, inline_call: str
) -> None:
    assert inline_calls_in(f"{words} {inline_call}", INLINE_SCHEMA) == []


@pytest.mark.parametrize("inline_call", INLINE_CALLS)
def test_inline_calls_are_read_only_for_tools_with_required_parameters(inline_call: str) -> None:
    for schema in ({}, {**INLINE_SCHEMA, "required": []}, {**INLINE_SCHEMA, "required": None}):
        assert inline_calls_in(f"I'll check: {inline_call}", schema) == []


def test_the_word_tool_code_begins_a_call_only_at_the_start_of_a_line() -> None:
    assert inline_calls_in("tool_code = look(at='x')", INLINE_SCHEMA) == [LOOK]
    assert inline_calls_in("Let me look.\ntool_code = look(at='x')", INLINE_SCHEMA) == [LOOK]
    assert inline_calls_in("The tool_code = look(at='x')", INLINE_SCHEMA) == []
    assert inline_calls_in("The user wrote:\ntool_code = look(at='x')", INLINE_SCHEMA) == []


NAMED_SCHEMA: JsonObject = {"type": "object", "properties": {"at": {}, "text": {}}}
NAMED_TOOLS = (
    make_tool("look", NAMED_SCHEMA),
    make_tool("now", {}),
    make_tool("no name", NAMED_SCHEMA),
)
TAGS = syntaxes_for(NAMED_TOOLS)[0]


def test_syntaxes_of_the_same_tools_are_cached() -> None:
    assert syntaxes_for(NAMED_TOOLS) == syntaxes_for(list(NAMED_TOOLS))
    assert syntaxes_for((Tool("ask", parameters=True, source=b""),))[0] is not TAGS
    assert syntaxes_for((make_tool("no name", NAMED_SCHEMA),)) == ()


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("So.\n<look><at>x</at></look>\nThen.", 1),
        ("look(at='x')", 1),
        ("look(at='x')\nDone.", 0),
        ("So: look(at='x')", 0),
        ('So: <look at="x"/>', 1),
        ('So: <look at="x"/> is the tag.', 0),
        ('So: <now zone="x"/>', 0),
        ("The <look> tag: `<look><at>x</at></look>`", 0),
    ],
)
def test_the_scanner_finds_calls_by_the_names_of_offered_tools(text: str, count: int) -> None:
    nothing: tuple[Syntax, ...] = ()
    findings = find_calls(text, nothing, ("look", "now"), syntaxes_for(NAMED_TOOLS))
    assert len(calls_found(findings)) == count


def test_no_syntaxes_by_tool_name_are_built_for_more_than_300_tools() -> None:
    tools = [make_tool(f"look_{number}", {"type": "object"}) for number in range(301)]
    assert syntaxes_for(tools) == ()
    assert syntaxes_for(tools[1:]) != ()
