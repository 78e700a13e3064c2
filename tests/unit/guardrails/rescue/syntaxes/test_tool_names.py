import pytest

from proxy.conversation.json import JsonObject
from proxy.conversation.tools import Tool, WrittenCall
from proxy.guardrails.rescue.findings import Found
from proxy.guardrails.rescue.scanner import find_calls
from proxy.guardrails.rescue.syntax import Calls, NotACall, Reason, Syntax
from proxy.guardrails.rescue.syntaxes.tool_names import named_after
from tests.fakes.arrivals import read_syntax
from tests.fakes.playbook import make_tool

SCHEMA: JsonObject = {"type": "object", "properties": {"at": {}, "text": {}}}
TOOLS = (make_tool("look", SCHEMA), make_tool("now", {}), make_tool("no name", SCHEMA))
TAGS, ATTRIBUTES, WORDS, FENCED = named_after(TOOLS)[:4]
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


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("<look> at this", Reason.NOT_A_CALL),
        ("<look><other>x</other></look>", Reason.NOT_A_CALL),
        ("<look><at>x", Reason.NOT_A_CALL),
        ("<look><at>x</at><text>y", Reason.BROKEN),
    ],
)
def test_other_markup_is_no_call(text: str, reason: Reason) -> None:
    assert read_syntax(TAGS, text)[0] == NotACall(reason)


@pytest.mark.parametrize("name", ["look", "now"])
def test_an_empty_tag_is_doubtful(name: str) -> None:
    found = Calls((WrittenCall(name, {}),), is_doubtful=True)
    assert read_syntax(TAGS, f"<{name}></{name}>")[0] == found


def test_a_tool_without_declared_parameters_takes_any() -> None:
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
def test_a_reply_that_begins_with_a_tool_is_a_call(text: str) -> None:
    assert read_syntax(WORDS, text) == (Calls((CALL,)), "")


@pytest.mark.parametrize(
    "text",
    [
        '<look at="x"/>',
        "<look  at='x' />\n",
        '<look at="x"></look>',
        '<look\u0020at="x"\n/>',
    ],
)
def test_a_tag_may_have_the_arguments_as_attributes(text: str) -> None:
    assert read_syntax(ATTRIBUTES, text) == (Calls((CALL,)), "")
    assert read_syntax(ATTRIBUTES, text + text)[0] == Calls((CALL, CALL))


def test_attributes_are_unescaped() -> None:
    text = '<look at="a &lt; &quot;b&quot;" text="&quot;"/>'
    call = WrittenCall("look", {"at": 'a < "b"', "text": '"'})
    assert read_syntax(ATTRIBUTES, text)[0] == Calls((call,))


@pytest.mark.parametrize(
    "text",
    [
        "<look />",
        "<look at/>",
        "<look at=x/>",
        '<look at="x">',
        '<look at="x',
        '<look at="x" at="y"/>',
        '<look at="x" class="y"/>',
        '<look at="x"/><look href="y"/>',
    ],
)
def test_other_attributes_make_it_markup(text: str) -> None:
    assert read_syntax(ATTRIBUTES, text)[0] == NotACall(Reason.NOT_A_CALL)


def test_several_calls_may_follow_one_another() -> None:
    assert read_syntax(WORDS, "look(at='x')\nnow()")[0] == Calls((CALL, NOW))


def test_brackets_missing_at_the_end_leave_the_call_open() -> None:
    assert read_syntax(WORDS, 'look{"at": "x"')[0] == Calls((CALL,), closed=False)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("look", Reason.NOT_A_CALL),
        ("looking at it", Reason.NOT_A_CALL),
        ("look at {this}", Reason.NOT_A_CALL),
        ("look {this}", Reason.BROKEN),
        ("look(this)", Reason.BROKEN),
    ],
)
def test_a_reply_that_only_begins_like_a_call_is_none(text: str, reason: Reason) -> None:
    assert read_syntax(WORDS, text)[0] == NotACall(reason)


def test_tags_may_stand_in_a_fence() -> None:
    text = "```xml\n<look>\n<at>x</at>\n</look>\n```\n"
    assert read_syntax(FENCED, text) == (Calls((CALL,)), "")


def test_the_same_tools_are_prepared_once() -> None:
    assert named_after(TOOLS) == named_after(list(TOOLS))
    assert named_after((Tool("ask", parameters=True, source=b""),))[0] is not TAGS
    assert named_after((make_tool("no name", SCHEMA),)) == ()


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
    found = find_calls(text, nothing, ("look", "now"), named_after(TOOLS))
    assert sum(isinstance(one, Found) for one in found) == count
