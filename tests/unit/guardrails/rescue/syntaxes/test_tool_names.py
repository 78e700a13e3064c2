import pytest

from proxy.conversation.json import JsonObject
from proxy.conversation.tools import Tool, WrittenCall
from proxy.guardrails.rescue.registry import SYNTAXES
from proxy.guardrails.rescue.scanner import Scanner, find_calls
from proxy.guardrails.rescue.syntax import Calls, NoCall, Reason, Syntax
from proxy.guardrails.rescue.syntaxes.tool_names import (
    inline_calls,
    syntaxes_for,
    tool_arguments,
    tool_pairs,
    tool_recipients,
)
from tests.fakes.arrivals import calls_found, read_syntax
from tests.fakes.playbook import make_tool

SCHEMA: JsonObject = {"type": "object", "properties": {"at": {}, "n": {}}}
TOOLS = (make_tool("look", SCHEMA), make_tool("time", {}))
NAMES = ("look", "time")
LOOK = WrittenCall("look", {"at": "x"})
TIME = WrittenCall("time", {})
OBJECT = '{"at": "x"}'
PAIRS = tool_pairs({"look": frozenset(("at", "n")), "time": frozenset()})
ARGUMENTS, ARGUMENTS_IN_TEXT = tool_arguments(NAMES)
RECIPIENTS, RECIPIENTS_AT_START = tool_recipients(NAMES)
CODE_WORD, FIRST_CODE_WORD = syntaxes_for((make_tool("f", {"required": ["a"]}),))[-2:]
NO_CALL = NoCall(Reason.NOT_A_CALL)


def calls_in(text: str) -> list[WrittenCall]:
    findings = find_calls(text, SYNTAXES, NAMES, syntaxes_for(TOOLS))
    return [call for finding in calls_found(findings) for call in finding.calls]


def test_a_name_and_its_second_mark_are_enough() -> None:
    assert read_syntax(ARGUMENTS, f"look[ARGS]{OBJECT} x") == (Calls((LOOK,)), " x")
    for before in ("\n", " "):
        text = f"{before}look[ARGS]{OBJECT}"
        assert read_syntax(ARGUMENTS_IN_TEXT, text) == (Calls((LOOK,)), "")


@pytest.mark.parametrize("between", ["", " ", "\n", ", "])
def test_several_marked_names_may_follow_one_another(between: str) -> None:
    text = f"look[ARGS]{OBJECT}{between}time[ARGS]{{}} x"
    assert read_syntax(ARGUMENTS, text) == (Calls((LOOK, TIME)), " x")


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
def test_a_reply_may_be_such_a_call(text: str, expected: list[WrittenCall]) -> None:
    assert calls_in(text) == expected


def test_a_recipient_without_namespace_counts_only_in_a_header() -> None:
    header = f" to=look<|message|>{OBJECT}<|call|>"
    assert read_syntax(RECIPIENTS, header)[0] == Calls((LOOK,))
    assert read_syntax(RECIPIENTS_AT_START, header[1:])[0] == Calls((LOOK,))
    assert read_syntax(RECIPIENTS, " to=look and so on")[0] == NO_CALL
    longer = f" to=look_up<|message|>{OBJECT}"
    assert read_syntax(RECIPIENTS, longer)[0] == NO_CALL


@pytest.mark.parametrize(
    ("pairs", "arguments"),
    [
        ("at=x n=3", {"at": "x", "n": 3}),
        ("at='x y'\nn=true ", {"at": "x y", "n": True}),
        ('at="x=y"', {"at": "x=y"}),
    ],
)
def test_pairs_of_words_are_arguments(pairs: str, arguments: JsonObject) -> None:
    calls = read_syntax(PAIRS, f"<tool_call>look {pairs}</tool_call> x")
    assert calls == (Calls((WrittenCall("look", arguments),)), " x")


@pytest.mark.parametrize(
    "pairs", ["", "to=x", "at=x at=y", "at: x", "at=", "at='x", "at=x is what I mean", "at=x <b>"]
)
def test_only_declared_keys_that_each_have_a_value_make_a_call(pairs: str) -> None:
    assert read_syntax(PAIRS, f"<tool_call>look {pairs}</tool_call>")[0] == NO_CALL
    assert read_syntax(PAIRS, "<tool_call>look at=x")[0] == NO_CALL


INLINE_SCHEMA: JsonObject = {"type": "object", "properties": {"at": {}}, "required": ["at"]}
BOTH = (LOOK, WrittenCall("look", {"at": "y"}))
INLINE = inline_calls(["look"])
PLAIN = '{"name": "look", "arguments": {"at": "x"}}'
FORMS = (PLAIN, '{"name":"look","arguments":{"at":"x"}}', 'call:look{at:"x"}', "[look(at='x')]")


def inline_calls_in(text: str, schema: JsonObject) -> list[WrittenCall]:
    named = syntaxes_for((make_tool("look", schema),))
    scanner = Scanner(SYNTAXES, ("look",), named)
    findings = scanner.feed(text) + scanner.finish()
    return [call for finding in calls_found(findings) for call in finding.calls]


def bare(*calls: WrittenCall, closed: bool = True) -> Calls:
    return Calls(calls, closed, is_bare=True)


@pytest.mark.parametrize(
    ("syntax", "text", "calls", "rest"),
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
        (FIRST_CODE_WORD, "tool_code = look(at='x')", bare(LOOK), ""),
        (FIRST_CODE_WORD, "tool_code\n[look(at='x')]\n", bare(LOOK), ""),
        (CODE_WORD, "\ntool_code = look(at='x')", bare(LOOK), ""),
        (FIRST_CODE_WORD, "tool_code is a word", NO_CALL, "tool_code is a word"),
        (FIRST_CODE_WORD, "tool_code = [look(at='x')", NO_CALL, "tool_code = [look(at='x')"),
    ],
)
def test_it_is_read_to_its_last_bracket(
    syntax: Syntax, text: str, calls: Calls | NoCall, rest: str
) -> None:
    outcome, left = read_syntax(syntax, text)
    assert outcome == calls
    assert isinstance(calls, NoCall) or left == rest


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("words", ["I'll check:", "Let me look.", "Ich sehe nach:"])
def test_after_an_announcement_it_counts_at_the_end_of_the_reply(words: str, form: str) -> None:
    assert inline_calls_in(f"{words} {form}", INLINE_SCHEMA) == [LOOK]
    assert inline_calls_in(f"{words} {form}\n", INLINE_SCHEMA) == [LOOK]
    assert inline_calls_in(f"{words} {form} Or so.", INLINE_SCHEMA) == []
    assert inline_calls_in(f"{words} {form}\nDone.", INLINE_SCHEMA) == []


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "words",
    [
        *("I looked it up with:", "The call was:", "It is:", "I'll use", "This is about looks."),
        *("He wrote \"I'll check:", "`Let me look:", "> I'll check:", "I'll look, you wrote:"),
        *("You could then say: I'll check:", "For example:", "I will not look:", "Here's a call:"),
    ],
)
def test_after_other_words_it_is_part_of_the_sentence(words: str, form: str) -> None:
    assert inline_calls_in(f"{words} {form}", INLINE_SCHEMA) == []


@pytest.mark.parametrize("form", FORMS)
def test_it_must_satisfy_the_required_parameters(form: str) -> None:
    for schema in ({}, {**INLINE_SCHEMA, "required": []}, {**INLINE_SCHEMA, "required": None}):
        assert inline_calls_in(f"I'll check: {form}", schema) == []


def test_the_code_word_starts_a_line() -> None:
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
TAGS, ATTRIBUTES, WORDS, FENCED = syntaxes_for(NAMED_TOOLS)[:4]
CALL = WrittenCall("look", {"at": "x"})
NOW = WrittenCall("now", {})


@pytest.mark.parametrize(
    "text",
    [
        "<look><at>x</at></look>",
        "<look>\n<at>\nx\n</at>\n</look>",
        '<look>{"at": "x"}</look>',
        '<look><parameter name="at">x</parameter></look>',
        "<tool_call>\n<look><at>x</at></look>\n</tool_call>",
    ],
)
def test_a_tag_named_like_a_tool_is_a_call(text: str) -> None:
    assert read_syntax(TAGS, f"{text} rest") == (Calls((CALL,)), " rest")


def test_markup_in_a_value_is_kept() -> None:
    text = "<look><text><p>one</p>\n<b>two</b></text></look>"
    assert read_syntax(TAGS, text)[0] == Calls(
        (WrittenCall("look", {"text": "<p>one</p>\n<b>two</b>"}),)
    )


@pytest.mark.parametrize("name", ["look", "now"])
def test_an_empty_tag_is_doubtful(name: str) -> None:
    expected = Calls((WrittenCall(name, {}),), is_doubtful=True)
    assert read_syntax(TAGS, f"<{name}></{name}>")[0] == expected


def test_a_tool_without_declared_parameters_accepts_any() -> None:
    assert read_syntax(TAGS, "<now><zone>x</zone></now>")[0] == Calls(
        (WrittenCall("now", {"zone": "x"}),)
    )
    wrapped = "<tool_call><now></now></tool_call>"
    assert read_syntax(TAGS, wrapped)[0] == Calls((NOW,))


@pytest.mark.parametrize(
    "text",
    [
        "look(at='x')",
        'look({"at": "x"})\n',
        'look{"at": "x"}',
        'look\n{"at": "x"}\n',
        'look: {"at": "x"}',
        'look<|content|>\n{"at": "x"}',
        "look<arg_key>at</arg_key><arg_value>x</arg_value></tool_call>",
    ],
)
def test_a_reply_that_starts_with_a_tool_name_is_a_call(text: str) -> None:
    assert read_syntax(WORDS, text) == (Calls((CALL,)), "")


@pytest.mark.parametrize(
    "text",
    ['<look at="x"/>', "<look  at='x' />\n", '<look at="x"></look>', '<look\u0020at="x"\n/>'],
)
def test_a_tag_may_have_the_arguments_as_attributes(text: str) -> None:
    assert read_syntax(ATTRIBUTES, text) == (Calls((CALL,)), "")
    assert read_syntax(ATTRIBUTES, text + text)[0] == Calls((CALL, CALL))


def test_attributes_are_unescaped() -> None:
    text = '<look at="a &lt; &quot;b&quot;" text="&quot;"/>'
    call = WrittenCall("look", {"at": 'a < "b"', "text": '"'})
    assert read_syntax(ATTRIBUTES, text)[0] == Calls((call,))


def test_several_calls_may_follow_one_another() -> None:
    assert read_syntax(WORDS, "look(at='x')\nnow()")[0] == Calls((CALL, NOW))


def test_missing_closing_brackets_leave_the_call_open() -> None:
    assert read_syntax(WORDS, 'look{"at": "x"')[0] == Calls((CALL,), closed=False)


@pytest.mark.parametrize(
    ("syntax", "text", "reason"),
    [
        # a name without an object
        (ARGUMENTS, "look[ARGS] is a mark", Reason.NOT_A_CALL),
        (ARGUMENTS, "look[ARGS]{oh no}", Reason.BROKEN),
        (ARGUMENTS, f"look[ARGS]{OBJECT}time[ARGS]x", Reason.NOT_A_CALL),
        # other markup
        (TAGS, "<look> at this", Reason.NOT_A_CALL),
        (TAGS, "<look><other>x</other></look>", Reason.NOT_A_CALL),
        (TAGS, "<look><at>x", Reason.NOT_A_CALL),
        (TAGS, "<look><at>x</at><text>y", Reason.BROKEN),
        # other attributes make a tag markup
        (ATTRIBUTES, "<look />", Reason.NOT_A_CALL),
        (ATTRIBUTES, "<look at/>", Reason.NOT_A_CALL),
        (ATTRIBUTES, "<look at=x/>", Reason.NOT_A_CALL),
        (ATTRIBUTES, '<look at="x">', Reason.NOT_A_CALL),
        (ATTRIBUTES, '<look at="x', Reason.NOT_A_CALL),
        (ATTRIBUTES, '<look at="x" at="y"/>', Reason.NOT_A_CALL),
        (ATTRIBUTES, '<look at="x" class="y"/>', Reason.NOT_A_CALL),
        (ATTRIBUTES, '<look at="x"/><look href="y"/>', Reason.NOT_A_CALL),
        # a reply that only begins like a call
        (WORDS, "look", Reason.NOT_A_CALL),
        (WORDS, "looking at it", Reason.NOT_A_CALL),
        (WORDS, "look at {this}", Reason.NOT_A_CALL),
        (WORDS, "look {this}", Reason.BROKEN),
        (WORDS, "look(this)", Reason.BROKEN),
    ],
)
def test_other_text_is_no_call(syntax: Syntax, text: str, reason: Reason) -> None:
    assert read_syntax(syntax, text)[0] == NoCall(reason)


def test_tags_may_be_in_a_fence() -> None:
    text = "```xml\n<look>\n<at>x</at>\n</look>\n```\n"
    assert read_syntax(FENCED, text) == (Calls((CALL,)), "")


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
def test_the_scanner_finds_them_where_they_count(text: str, count: int) -> None:
    nothing: tuple[Syntax, ...] = ()
    findings = find_calls(text, nothing, ("look", "now"), syntaxes_for(NAMED_TOOLS))
    assert len(calls_found(findings)) == count


def test_a_very_large_tool_list_gets_no_name_syntaxes() -> None:
    tools = [make_tool(f"look_{number}", {"type": "object"}) for number in range(301)]
    assert syntaxes_for(tools) == ()
    assert syntaxes_for(tools[1:]) != ()
