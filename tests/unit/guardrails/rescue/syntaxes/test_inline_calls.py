import pytest

from proxy.conversation.json import JsonObject
from proxy.conversation.tools import WrittenCall
from proxy.guardrails.rescue.findings import Found
from proxy.guardrails.rescue.registry import SYNTAXES
from proxy.guardrails.rescue.scanner import Scanner
from proxy.guardrails.rescue.syntax import Calls, NotACall, Reason, Syntax
from proxy.guardrails.rescue.syntaxes.inline_calls import CodeWord, FirstCodeWord, InlineCalls
from proxy.guardrails.rescue.syntaxes.tool_names import named_after
from tests.fakes.arrivals import read_syntax
from tests.fakes.playbook import make_tool

SCHEMA: JsonObject = {"type": "object", "properties": {"at": {}}, "required": ["at"]}
LOOK = WrittenCall("look", {"at": "x"})
BOTH = (LOOK, WrittenCall("look", {"at": "y"}))
INLINE = InlineCalls(["look"])
NO_CALL = NotACall(Reason.NOT_A_CALL)
PLAIN = '{"name": "look", "arguments": {"at": "x"}}'
FORMS = (PLAIN, '{"name":"look","arguments":{"at":"x"}}', 'call:look{at:"x"}', "[look(at='x')]")


def found_in(text: str, schema: JsonObject, *, is_fit: bool = True) -> list[WrittenCall]:
    named = named_after((make_tool("look", schema),))
    scanner = Scanner(SYNTAXES, ("look",), named, lambda _: is_fit)
    findings = scanner.feed(text) + scanner.finish()
    return [call for one in findings if isinstance(one, Found) for call in one.calls]


def bare(*calls: WrittenCall, closed: bool = True) -> Calls:
    return Calls(calls, closed, is_bare=True)


@pytest.mark.parametrize(
    ("syntax", "text", "found", "rest"),
    [
        (INLINE, f" {PLAIN} ", bare(LOOK), ""),
        (INLINE, f" {PLAIN} x", bare(LOOK), "x"),
        (INLINE, f" {PLAIN}\n{PLAIN.replace('x', 'y')}", bare(*BOTH), ""),
        (INLINE, " [look(at='x'), look(at='y')]", bare(*BOTH), ""),
        (INLINE, ' call:look{at:<|"|>x<|"|>}', bare(LOOK, closed=False), ""),
        (INLINE, ' call:look{at:<|"|>x<|"|>}<tool_call|>', bare(LOOK), ""),
        (INLINE, " [look(at='x')", NO_CALL, " [look(at='x')"),
        (INLINE, f" {PLAIN[:-1]}", NO_CALL, f" {PLAIN[:-1]}"),
        (INLINE, ' {"name": "look", "x": 1}', NO_CALL, ' {"name": "look", "x": 1}'),
        (FirstCodeWord(), "tool_code = look(at='x')", bare(LOOK), ""),
        (FirstCodeWord(), "tool_code\n[look(at='x')]\n", bare(LOOK), ""),
        (CodeWord(), "\ntool_code = look(at='x')", bare(LOOK), ""),
        (FirstCodeWord(), "tool_code is a word", NO_CALL, "tool_code is a word"),
        (FirstCodeWord(), "tool_code = [look(at='x')", NO_CALL, "tool_code = [look(at='x')"),
    ],
)
def test_it_is_read_to_its_last_bracket(
    syntax: Syntax, text: str, found: Calls | NotACall, rest: str
) -> None:
    outcome, left = read_syntax(syntax, text)
    assert outcome == found
    assert isinstance(found, NotACall) or left == rest


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("words", ["I'll check:", "Let me look.", "Ich sehe nach:"])
def test_behind_an_announcement_it_counts_at_the_end_of_the_reply(words: str, form: str) -> None:
    assert found_in(f"{words} {form}", SCHEMA) == [LOOK]
    assert found_in(f"{words} {form}\n", SCHEMA) == [LOOK]
    assert found_in(f"{words} {form} Or so.", SCHEMA) == []
    assert found_in(f"{words} {form}\nDone.", SCHEMA) == []


def test_it_counts_where_it_is_called_the_call() -> None:
    assert found_in(f"Here's the tool call: {PLAIN}", SCHEMA) == [LOOK]
    assert found_in(f"Here is the function call. {PLAIN}", SCHEMA) == [LOOK]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "words",
    [
        *("I looked it up with:", "The call was:", "It is:", "I'll use", "This is about looks."),
        *("He wrote \"I'll check:", "`Let me look:", "> I'll check:", "I'll look, you wrote:"),
        *("You could then say: I'll check:", "For example:", "I will not look:", "Here's a call:"),
    ],
)
def test_behind_other_words_it_is_part_of_the_sentence(words: str, form: str) -> None:
    assert found_in(f"{words} {form}", SCHEMA) == []


@pytest.mark.parametrize("form", FORMS)
def test_it_has_to_be_fit_for_a_tool_that_demands_something(form: str) -> None:
    assert found_in(f"I'll check: {form}", SCHEMA, is_fit=False) == []
    for schema in ({}, {**SCHEMA, "required": []}, {**SCHEMA, "required": None}):
        assert found_in(f"I'll check: {form}", schema) == []


def test_the_code_word_begins_a_line() -> None:
    assert found_in("tool_code = look(at='x')", SCHEMA) == [LOOK]
    assert found_in("Let me look.\ntool_code = look(at='x')", SCHEMA) == [LOOK]
    assert found_in("The tool_code = look(at='x')", SCHEMA) == []
    assert found_in("The user wrote:\ntool_code = look(at='x')", SCHEMA) == []
