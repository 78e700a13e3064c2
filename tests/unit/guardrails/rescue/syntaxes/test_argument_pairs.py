import pytest

from proxy.conversation.json import JsonValue
from proxy.conversation.tools import WrittenCall
from proxy.guardrails.rescue.registry import find_syntax
from proxy.guardrails.rescue.syntax import Calls, NoCall, Reason
from proxy.guardrails.rescue.values.cursor import Cursor
from tests.fakes.arrivals import is_linear, outcome, read_syntax, run

ARGUMENT_PAIRS = find_syntax("argument_pairs")
SUFFIXED_PAIRS = find_syntax("suffixed_pairs")
SUFFIXED_PAIRS_AT_START = find_syntax("suffixed_pairs_at_start")


def fetch(*, closed: bool = True, **arguments: JsonValue) -> Calls:
    return Calls((WrittenCall("fetch", dict(arguments)),), closed)


def pair(key: str, value: str, prefix: str = "") -> str:
    return (
        f"<{prefix}arg_key>{key}</{prefix}arg_key>\n<{prefix}arg_value>{value}</{prefix}arg_value>"
    )


@pytest.mark.parametrize("prefix", ["", "longcat_", "ifm|"])
@pytest.mark.parametrize("separator", ["\n", "", "<tool_sep>\n"])
def test_keys_and_values_alternate(prefix: str, separator: str) -> None:
    pairs = pair("a", "1 <b> 2", prefix) + "\n" + pair("b", " x ", prefix)
    text = f"<{prefix}tool_call>fetch{separator}{pairs}\n</{prefix}tool_call>"
    assert read_syntax(ARGUMENT_PAIRS, f"{text} x") == (fetch(a="1 <b> 2", b=" x "), " x")


def test_a_bare_name_counts_only_with_a_closing_tag() -> None:
    assert read_syntax(ARGUMENT_PAIRS, "<tool_call>fetch</tool_call>")[0] == fetch()
    result = read_syntax(ARGUMENT_PAIRS, "<tool_call>fetch")[0]
    assert result == NoCall(Reason.NOT_A_CALL)


def test_a_type_between_key_and_value_is_passed() -> None:
    text = "<ifm|tool_call>fetch<ifm|arg_key>a</ifm|arg_key><ifm|arg_type>string</ifm|arg_type>"
    text += "<ifm|arg_value>1</ifm|arg_value></ifm|tool_call>"
    assert read_syntax(ARGUMENT_PAIRS, text)[0] == fetch(a="1")


@pytest.mark.parametrize("end", ["", "<tool_call>", "\n"])
def test_the_closing_tag_may_be_missing(end: str) -> None:
    text = f"<tool_call>fetch{pair('a', '1')}{end}"
    assert read_syntax(ARGUMENT_PAIRS, text) == (fetch(a="1", closed=False), end.strip())


def test_the_end_of_a_value_may_be_missing() -> None:
    text = "<tool_call>fetch<arg_key>a</arg_key><arg_value>1<arg_key>b</arg_key><arg_value>2"
    assert read_syntax(ARGUMENT_PAIRS, f"{text}</tool_call>")[0] == fetch(a="1", b="2")


def test_the_mark_before_a_later_key_may_be_missing() -> None:
    text = f"<tool_call>fetch{pair('a', '1')}b</arg_key>\n<arg_value>2</arg_value></tool_call>"
    assert read_syntax(ARGUMENT_PAIRS, text)[0] == fetch(a="1", b="2")


def test_an_end_mark_inside_a_value_belongs_to_it() -> None:
    text = f"<tool_call>fetch{pair('a', 'x</arg_value> y')}</tool_call>"
    assert read_syntax(ARGUMENT_PAIRS, text)[0] == fetch(a="x</arg_value> y")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("<tool_call> is a tag", Reason.NOT_A_CALL),
        ("<tool_call>", Reason.NOT_A_CALL),
        ('<tool_call>{"name": "x"}', Reason.NOT_A_CALL),
        ("<tool_call>fetch<arg_key>a", Reason.BROKEN),
        ("<tool_call>fetch<arg_key></arg_key><arg_value>1</arg_value></tool_call>", Reason.BROKEN),
        ("<tool_call>fetch<arg_key>a</arg_key> 1</tool_call>", Reason.BROKEN),
        ("<tool_call>fetch<arg_key>a</arg_key><arg_value>1", Reason.BROKEN),
        (f"<tool_call>fetch{pair('a', '1')}{pair('a', '2')}</tool_call>", Reason.BROKEN),
    ],
)
def test_other_text_is_no_call(text: str, reason: Reason) -> None:
    assert read_syntax(ARGUMENT_PAIRS, text)[0] == NoCall(reason)


def test_the_number_of_pairs_is_limited() -> None:
    pair = "<arg_key>a</arg_key><arg_value>1</arg_value>"
    for count, kind in ((100, Calls), (101, NoCall)):
        cursor = Cursor(f"f{pair * count}</tool_call>", is_finished=True)
        reading = outcome(ARGUMENT_PAIRS.read(cursor, "<tool_call>"))
        assert isinstance(run(cursor, reading, [])[0], kind)


def test_one_object_may_replace_the_pairs() -> None:
    text = '<tool_call>fetch\n{"a": "1"}\n</tool_call>'
    assert read_syntax(ARGUMENT_PAIRS, text) == (fetch(a="1"), "")
    assert read_syntax(ARGUMENT_PAIRS, text[:-13])[0] == fetch(a="1", closed=False)
    broken = read_syntax(ARGUMENT_PAIRS, "<tool_call>fetch{oh}</tool_call>")[0]
    assert broken == NoCall(Reason.BROKEN)
    gemma = read_syntax(ARGUMENT_PAIRS, "<tool_call>call:fetch{a:1}</tool_call>")[0]
    assert gemma == NoCall(Reason.NOT_A_CALL)


def test_a_doubly_escaped_value_is_unescaped() -> None:
    pairs = "\\n".join((pair("a", r"C:\\x"), pair("b", r"no \"")))
    text = f"<tool_call>fetch\\n{pairs}\\n</tool_call>".replace("\n", "\\n")
    assert read_syntax(ARGUMENT_PAIRS, text)[0] == fetch(a=r"C:\x", b='no "')
    broken = text.replace("no ", 'no " ')
    assert read_syntax(ARGUMENT_PAIRS, broken)[0] == fetch(a=r"C:\x", b=r'no " \"')


def test_an_xml_escaped_value_is_unescaped() -> None:
    text = f"<tool_call>fetch{pair('a', '1 &lt; 2')}</tool_call>"
    assert read_syntax(ARGUMENT_PAIRS, text)[0] == fetch(a="1 < 2")


def test_marks_in_a_value_belong_to_it_if_nothing_matching_follows() -> None:
    for value in (
        "the <arg_key> mark",
        "a <arg_key>b</arg_key> c",
        "a </tool_call> b",
        "a</arg_value></tool_call> b",
        "a</tool_call>\n</tool_call> b",
        "a</arg_value> <arg_key> b",
    ):
        text = f"<tool_call>fetch{pair('a', value)}</tool_call>"
        assert read_syntax(ARGUMENT_PAIRS, f"{text} x") == (fetch(a=value), " x")


@pytest.mark.parametrize(
    "inner", ["<tool_call>g b", '<tool_call>{"name": "g"}</tool_call>', "</think>"]
)
def test_a_call_that_may_have_ended_earlier_is_unreadable(inner: str) -> None:
    text = f"<tool_call>fetch{pair('a', f'x</tool_call>{inner}')}</tool_call>"
    assert read_syntax(ARGUMENT_PAIRS, text)[0] == NoCall(Reason.BROKEN)


def test_a_complete_call_inside_a_value_makes_the_call_unreadable() -> None:
    value = f"a</tool_call><tool_call>g{pair('k', 'v')}</tool_call> b"
    text = f"<tool_call>fetch{pair('a', value)}</tool_call>"
    assert read_syntax(ARGUMENT_PAIRS, text)[0] == NoCall(Reason.BROKEN)


def test_a_missing_and_a_surplus_mark_make_the_call_unreadable() -> None:
    text = f"<tool_call>fetch<arg_key>a</arg_key><arg_value>1{pair('b', '2</arg_value> 3')}"
    assert read_syntax(ARGUMENT_PAIRS, f"{text}</tool_call>")[0] == NoCall(Reason.BROKEN)


@pytest.mark.parametrize("end", [pair("b", "2"), ""])
def test_an_unclosed_value_does_not_extend_into_the_next_call(end: str) -> None:
    text = f"<tool_call>fetch<arg_key>a</arg_key><arg_value>1\n<tool_call>g{end}</tool_call>"
    assert read_syntax(ARGUMENT_PAIRS, text)[0] == NoCall(Reason.BROKEN)


def test_a_json_object_is_no_key() -> None:
    text = '<tool_call>fetch<arg_key>{"a": 1}</arg_key><arg_value>1</arg_value></tool_call>'
    assert read_syntax(ARGUMENT_PAIRS, text)[0] == NoCall(Reason.BROKEN)


@pytest.mark.parametrize("unit", ["<arg_key>", "</arg_value>", "</tool_call>", "</arg_value> "])
def test_work_is_linear_for_floods(unit: str) -> None:
    def whole(text: str) -> None:
        cursor = Cursor(text, is_finished=True)
        run(cursor, outcome(ARGUMENT_PAIRS.read(cursor, "<tool_call>")), [])

    start = "f<arg_key>a</arg_key><arg_value>"
    assert is_linear(whole, lambda size: start + unit * (size // len(unit)), 40_000)


def suffixed(name: str, text: str) -> str:
    tags = (("arg_key", "a"), ("arg_value", text))
    pairs = "".join(f"<{tag}:x1>{value}</{tag}:x1>\n" for tag, value in tags)
    return f"<tool_call:x1>{name}<tool_sep:x1>\n{pairs}</tool_call:x1>"


def test_all_tags_may_have_a_suffix() -> None:
    fetch = Calls((WrittenCall("fetch", {"a": "1 </arg_value> 2"}),))
    read_calls = read_syntax(SUFFIXED_PAIRS_AT_START, suffixed("fetch", "1 </arg_value> 2"))
    assert read_calls == (fetch, "")
    calls = (WrittenCall("fetch", {"a": "1"}), WrittenCall("get", {"a": "2"}))
    text = f"<tool_calls:x1>\n{suffixed('fetch', '1')}\n{suffixed('get', '2')}\n"
    assert read_syntax(SUFFIXED_PAIRS, f"{text}</tool_calls:x1>") == (Calls(calls), "")
    assert read_syntax(SUFFIXED_PAIRS, text)[0] == Calls(calls, closed=False)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("<tool_call: x", Reason.NOT_A_CALL),
        ("<tool_call:x1", Reason.NOT_A_CALL),
        ("<tool_calls:x1></tool_calls:x1>", Reason.NOT_A_CALL),
        ("<tool_calls:x1><tool_call:x1>f<arg_key:x1>a", Reason.BROKEN),
        ("<tool_call:x1>f<arg_key>a</arg_key><arg_value>1</arg_value>", Reason.NOT_A_CALL),
    ],
)
def test_a_suffix_alone_makes_no_call(text: str, reason: Reason) -> None:
    wrapped = text.startswith("<tool_calls")
    syntax = SUFFIXED_PAIRS if wrapped else SUFFIXED_PAIRS_AT_START
    assert read_syntax(syntax, text)[0] == NoCall(reason)
