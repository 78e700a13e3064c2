import pytest

from proxy.conversation.json import JsonValue
from proxy.conversation.tools import WrittenCall
from proxy.guardrails.rescue.findings import RefusedText
from proxy.guardrails.rescue.formats import Element, Format
from proxy.guardrails.rescue.registry import find_syntax
from proxy.guardrails.rescue.scanner import find_calls
from proxy.guardrails.rescue.syntax import Calls, NoCall, Reason, Syntax
from proxy.guardrails.rescue.syntaxes.tagged import read_nested, tagged
from proxy.guardrails.rescue.values.cursor import Cursor, Waiting
from proxy.guardrails.rescue.values.scalars import Unreadable
from tests.fakes.arrivals import attempt, is_linear, outcome, read_syntax, run, scan

ATTRIBUTED_TAGS = find_syntax("attributed_tags")
FUNCTION_TAGS = find_syntax("function_tags")
INVOKE = find_syntax("invoke")
KIMI_K3 = find_syntax("kimi_k3")
NAMED_TAGS = find_syntax("named_tags")
QWEN_CODER = find_syntax("qwen_coder")
END = "@</call>"


def nested(text: str) -> tuple[JsonValue | Unreadable | NoCall, str]:
    def start(cursor: Cursor) -> Waiting[JsonValue]:
        return read_nested(cursor, "@", "a", END)

    return attempt(start, text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("x < y @</a>", "x < y "),
        ("@</a>", ""),
        ("@<b>1@</b>@</a>", {"b": "1"}),
        ("\n@<b>1@</b>\n@<c>@<d>2@</d>@</c>@</a>", {"b": "1", "c": {"d": "2"}}),
        ("@<b>1@</b>@<b>2@</b>@<b>3@</b>@</a>", {"b": ["1", "2", "3"]}),
    ],
)
def test_elements_are_objects_lists_and_text(text: str, value: JsonValue) -> None:
    assert nested(f"{text} x") == (value, " x")


def test_the_closing_tag_of_a_text_may_be_missing() -> None:
    assert nested(f"x{END}") == ("x", END)
    assert nested(f"x@<b>1@</b>{END}") == ("x", f"@<b>1@</b>{END}")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "x@",
        "@<b>1@</c>@</a>",
        "@<b>1@</b>x@</a>",
        "@<b>1@</b>",
        f"@<b>1{END}",
        "@<>1@</>@</a>",
        "@<b",
        "@<b>@<c>1",
        "@<tool_call>1@</tool_call>@</a>",
        "@<b>" * 70 + "@</b>" * 70 + "@</a>",
    ],
)
def test_unmatched_tags_are_no_value(text: str) -> None:
    assert isinstance(nested(text)[0], Unreadable)


def test_work_is_linear() -> None:
    assert is_linear(lambda text: nested_whole(text), lambda size: "@<b>1@</b>" * size, 2_000)


def nested_whole(text: str) -> None:
    list(outcome(read_nested(Cursor(text, is_finished=True), "@", "a", END)))


TAGS = tagged(
    Format(
        name="tags",
        shape="tagged",
        marks={"<w>": "</w>"},
        elements=(Element("<c ", "</c>", {"<p ": "</p>"}),),
    )
)


@pytest.mark.parametrize("head", ["f", '"f"', "'f'", ' "f" ', 'f id="1" x:y="2"'])
def test_a_name_may_be_quoted_and_followed_by_attributes(head: str) -> None:
    assert read_syntax(TAGS, f"<c {head}></c>") == (Calls((WrittenCall("f", {}),)), "")


def test_cdata_is_taken_literally() -> None:
    text = "<c f><p a><![CDATA[\n<p b></p>]]></p></c>"
    assert read_syntax(TAGS, text)[0] == Calls((WrittenCall("f", {"a": "\n<p b></p>"}),))
    broken = "<c f><p a><![CDATA[x]]> y</p></c>"
    assert read_syntax(TAGS, broken)[0] == NoCall(Reason.BROKEN)


def test_json_replaces_parameters_only_if_it_is_a_complete_object() -> None:
    assert read_syntax(TAGS, '<c f>{"a": {"b": 1</c>')[0] == NoCall(Reason.BROKEN)
    assert read_syntax(TAGS, '<c f>{"a": {"b": 1}')[0] == NoCall(Reason.BROKEN)


def test_a_missing_and_a_surplus_mark_make_the_call_unreadable() -> None:
    text = "<c f><p a>1<p b>2</p> 3</p></c>"
    assert read_syntax(TAGS, text)[0] == NoCall(Reason.BROKEN)


@pytest.mark.parametrize(
    "unit", ["<c ", "<w>", "<c f><p a>", "</p>", "</p> ", "<p a>1</p>", "</c>"]
)
def test_work_is_linear_for_floods(unit: str) -> None:
    def scan_whole(text: str) -> None:
        scan([text], (TAGS,))

    assert is_linear(scan_whole, lambda size: "<c f><p a>" + unit * (size // 4), 8_000)


def test_the_number_of_arguments_is_limited() -> None:
    pairs = "".join(f"<p a{number}>1</p>" for number in range(101))
    findings = find_calls(f"<c f>{pairs}</c>", (TAGS,), ())
    assert findings[0] == RefusedText(Reason.BROKEN)
    same = find_calls(f"<c f>{'<p a>1</p>' * 101}</c>", (TAGS,), ())
    assert same[0] == RefusedText(Reason.BROKEN)


def test_the_number_of_marks_in_a_value_is_limited() -> None:
    def read_arguments(count: int) -> Calls | NoCall | Unreadable:
        cursor = Cursor(f"f><p a>x{'</p> y' * count}</p></c>", is_finished=True)
        return run(cursor, outcome(TAGS.read(cursor, "<c ")), [])[0]

    assert read_arguments(900) == Calls((WrittenCall("f", {"a": "x" + "</p> y" * 900}),))
    assert read_arguments(1_100) == NoCall(Reason.BROKEN)


@pytest.mark.parametrize("space", [" ", ""])
def test_the_space_before_the_name_may_be_missing(space: str) -> None:
    text = f'<function{space}name="f"><param{space}name="a">1 < 2</param></function> x'
    assert read_syntax(FUNCTION_TAGS, text) == (Calls((WrittenCall("f", {"a": "1 < 2"}),)), " x")


@pytest.mark.parametrize(
    "text",
    [
        '<tool_call name="f">{"a": "1"}</tool_call>',
        '<tool_call name="f"><parameter name="a">1</parameter></tool_call>',
        '<function_call name="f"><param name="a">1</param></function_call>',
        '<tool name="f"><a>1</a></tool>',
    ],
)
def test_alternative_tags_may_contain_the_name(text: str) -> None:
    assert read_syntax(ATTRIBUTED_TAGS, text) == (Calls((WrittenCall("f", {"a": "1"}),)), "")


def test_parameters_may_be_spelled_out() -> None:
    text = '<function name="f"><parameter name="a">1</parameter></function>'
    assert read_syntax(FUNCTION_TAGS, text)[0] == Calls((WrittenCall("f", {"a": "1"}),))


def edit(**arguments: JsonValue) -> Calls:
    return Calls((WrittenCall("edit", dict(arguments)),))


def test_parameters_are_in_separate_tags() -> None:
    text = (
        "<tool_call>\n<function=edit>\n<parameter=path>\na.py\n</parameter>\n"
        "<parameter=line>\n12\n</parameter>\n</function>\n</tool_call>\nrest"
    )
    assert read_syntax(QWEN_CODER, text) == (edit(path="a.py", line="12"), "\nrest")


def test_the_wrapper_may_be_missing() -> None:
    text = "<function=edit><parameter=path>a.py</parameter></function>\n</tool_call>"
    assert read_syntax(QWEN_CODER, text) == (edit(path="a.py"), "\n</tool_call>")


def test_one_wrapper_may_contain_several_functions() -> None:
    text = "<tool_call><function=now></function>\n<function=now></function></tool_call>"
    call = WrittenCall("now", {})
    assert read_syntax(QWEN_CODER, text) == (Calls((call, call)), "")


def test_names_may_be_quoted_or_padded() -> None:
    text = '<function="edit" ><parameter="path" >a.py</parameter></function>'
    assert read_syntax(QWEN_CODER, text) == (edit(path="a.py"), "")


def test_a_value_loses_one_newline_at_either_end() -> None:
    text = "<function=edit><parameter=text>\n\n  x < y\n\n</parameter></function>"
    assert read_syntax(QWEN_CODER, text)[0] == edit(text="\n  x < y\n")


@pytest.mark.parametrize("raw", ["\nx", "x\n", "\nx\n", "x"])
def test_a_line_break_at_a_mark_may_be_missing(raw: str) -> None:
    text = f"<function=edit><parameter=text>{raw}</parameter></function>"
    assert read_syntax(QWEN_CODER, text)[0] == edit(text="x")


def test_a_parameter_with_two_values_is_ambiguous() -> None:
    parameters = "<parameter=a>1</parameter><parameter=a>{}</parameter>"
    text = f"<function=edit>{parameters}</function>"
    assert read_syntax(QWEN_CODER, text.format(1))[0] == edit(a="1")
    assert read_syntax(QWEN_CODER, text.format(2))[0] == NoCall(Reason.BROKEN)


@pytest.mark.parametrize(
    ("body", "closed"),
    [('{"a": 1}</function>', True), ('\n{"a": 1</function>', True), ('{"a": 1}', False)],
)
def test_all_arguments_may_be_one_json_object(body: str, closed: bool) -> None:
    result = read_syntax(QWEN_CODER, f"<function=edit>{body}")
    assert result == (Calls(edit(a=1).calls, closed), "")


def test_an_end_mark_inside_a_value_belongs_to_it() -> None:
    value = "a</parameter> b"
    text = f"<function=edit><parameter=a>{value}</parameter></function>"
    assert read_syntax(QWEN_CODER, text) == (edit(a=value), "")


def test_seed_has_a_different_wrapper() -> None:
    text = "<seed:tool_call><function=edit></function></seed:tool_call>"
    assert read_syntax(QWEN_CODER, text) == (edit(), "")


@pytest.mark.parametrize(
    "end",
    [
        "<parameter=b>2</parameter></function></tool_call>",
        "\n<parameter=b>\n2\n</function>\n</tool_call>",
    ],
)
def test_a_parameter_may_be_unclosed_before_the_next_mark(end: str) -> None:
    text = f"<tool_call><function=edit><parameter=a>1{end}"
    assert read_syntax(QWEN_CODER, text) == (edit(a="1", b="2"), "")


def test_a_function_may_be_unclosed_before_the_end_of_its_wrapper() -> None:
    text = "<tool_call><function=edit><parameter=a>1</parameter>\n</tool_call>"
    assert read_syntax(QWEN_CODER, text) == (edit(a="1"), "")


@pytest.mark.parametrize("end", ["", "\n", "\n<tool_call>", "</function>", "</function>\n"])
def test_the_wrapper_may_be_unclosed(end: str) -> None:
    text = f"<tool_call><function=edit><parameter=a>1</parameter>{end}"
    result, _ = read_syntax(QWEN_CODER, text)
    assert result == Calls(edit(a="1").calls, closed=False)


@pytest.mark.parametrize("end", ["", "<function=now></function>", "</tool_call>"])
def test_a_function_may_be_unclosed(end: str) -> None:
    text = f"<function=edit><parameter=a>1</parameter>{end}"
    assert read_syntax(QWEN_CODER, text) == (Calls(edit(a="1").calls, closed=False), end)


def test_marks_inside_a_value_belong_to_it_if_nothing_matching_follows() -> None:
    value = "x </function>\n y </tool_call>\n</tool_call> z"
    text = f"<tool_call><function=edit><parameter=a>{value}</parameter></function></tool_call>"
    assert read_syntax(QWEN_CODER, text) == (edit(a=value), "")


def test_a_parameter_inside_a_value_makes_the_call_unreadable() -> None:
    value = "a <parameter=x>1</parameter> b"
    text = f"<function=edit><parameter=a>{value}</parameter></function>"
    assert read_syntax(QWEN_CODER, text)[0] == NoCall(Reason.BROKEN)


@pytest.mark.parametrize(
    "body",
    ['<parameter name="a">1</parameter>', "<param=a>1</param>", "<a>1</a>", "<parameter=a>1</a>"],
)
def test_parameters_may_be_misspelled(body: str) -> None:
    text = f"<function=edit>{body}</function>"
    assert read_syntax(QWEN_CODER, text)[0] == Calls((WrittenCall("edit", {"a": "1"}),))


def test_the_bracket_of_the_first_tag_may_be_missing_at_the_end_of_its_line() -> None:
    text = "<function=edit\n<parameter=a>1</parameter></function>"
    assert read_syntax(QWEN_CODER, text)[0] == Calls((WrittenCall("edit", {"a": "1"}),))


def test_all_inner_marks_may_be_missing_at_the_end_of_the_reply() -> None:
    text = "<tool_call><function=edit><parameter=a>1\n</tool_call>"
    calls = read_syntax(QWEN_CODER, text)[0]
    assert calls == Calls((WrittenCall("edit", {"a": "1"}),), closed=False)
    assert isinstance(read_syntax(QWEN_CODER, f"{text} x")[0], NoCall)
    doubtful = "<tool_call><function=edit><parameter=a>1</parameter> 2</tool_call>"
    assert isinstance(read_syntax(QWEN_CODER, doubtful)[0], NoCall)


def test_a_call_without_arguments_and_mark_counts_in_a_wrapper() -> None:
    text = "<tool_call><function=edit></tool_call>"
    assert read_syntax(QWEN_CODER, text)[0] == Calls((WrittenCall("edit", {}),))


def test_a_tag_of_the_grammar_is_no_argument() -> None:
    text = "<function=edit><parameter>a=1</parameter></function>"
    assert isinstance(read_syntax(QWEN_CODER, text)[0], NoCall)


@pytest.mark.parametrize(
    "second", ["<function=now>", "<tool_call>", "<|tool_call>", "[TOOL_CALLS]"]
)
@pytest.mark.parametrize("end", ["<parameter=b>2</parameter></function>", "</function>"])
def test_an_unclosed_value_does_not_extend_into_the_next_call(second: str, end: str) -> None:
    text = f"<function=edit><parameter=a>1\n{second}{end}</tool_call>"
    assert read_syntax(QWEN_CODER, text)[0] == NoCall(Reason.BROKEN)


@pytest.mark.parametrize("tag", ["tool_call", "tool_calls", "function_call", "invoke", "param"])
def test_a_tag_of_any_grammar_is_no_argument(tag: str) -> None:
    text = f"<function=edit><{tag}>x</{tag}></function>"
    assert isinstance(read_syntax(QWEN_CODER, text)[0], NoCall)


def test_a_tag_named_like_the_argument_does_not_swallow_the_next_call() -> None:
    text = "<function=edit><a>1<function=edit><a>2</a></function>"
    assert read_syntax(QWEN_CODER, text)[0] == NoCall(Reason.BROKEN)
    nested = "<function=edit><a>1<a>2</a></function>"
    assert read_syntax(QWEN_CODER, nested)[0] == edit(a="1<a>2")


def test_the_first_characters_of_a_tag_are_text() -> None:
    value = "a <parameter= b <parameter\n=c"
    text = f"<function=edit><parameter=a>{value}</parameter></function>"
    assert read_syntax(QWEN_CODER, text)[0] == edit(a=value)


def test_both_closing_marks_are_text_if_the_line_continues_to_both() -> None:
    value = "a</parameter></function> b"
    text = f"<function=edit><parameter=a>{value}</parameter></function>"
    assert read_syntax(QWEN_CODER, text) == (edit(a=value), "")
    cut = "<function=edit><parameter=a>a</parameter></function> b"
    assert read_syntax(QWEN_CODER, cut) == (edit(a="a"), " b")


def test_a_call_end_is_text_if_more_values_end_after_it_than_begin() -> None:
    value = "a</function><function=b> c"
    text = f"<function=edit><parameter=a>{value}</parameter></function>"
    assert read_syntax(QWEN_CODER, text)[0] == NoCall(Reason.BROKEN)
    whole = "a</function><function=b><parameter=c>1</parameter></function> d"
    text = f"<function=edit><parameter=a>{whole}</parameter></function>"
    assert read_syntax(QWEN_CODER, text)[0] == NoCall(Reason.BROKEN)


def test_a_value_directly_after_its_tag_keeps_its_line_end() -> None:
    path, body = "<parameter=path>a.py</parameter>", "<parameter=text>x\n</parameter>"
    text = f"<seed:tool_call><function=edit>{path}{body}</function></seed:tool_call>"
    assert read_syntax(QWEN_CODER, text)[0] == edit(path="a.py", text="x\n")
    several = "<function=edit><parameter=text>x\ny\n</parameter></function>"
    assert read_syntax(QWEN_CODER, several)[0] == edit(text="x\ny\n")


BAR = "\uff5c"
DSML = f"{BAR}DSML{BAR}"


def pack(**arguments: JsonValue) -> WrittenCall:
    return WrittenCall("pack", dict(arguments))


def invocation(namespace: str = "", parameters: str = "") -> str:
    return f'<{namespace}invoke name="pack">{parameters}</{namespace}invoke>'


def parameter(text: str, namespace: str = "", more: str = "") -> str:
    return f'<{namespace}parameter name="box"{more}>{text}</{namespace}parameter>'


@pytest.mark.parametrize(
    "namespace", ["", "antml:", "atem:", "steptml:", f"{BAR}DSML{BAR}", f"{BAR}DSML{BAR} "]
)
def test_tags_may_be_in_a_namespace(namespace: str) -> None:
    text = invocation(namespace, f"\n{parameter('a<b>c', namespace)}\n")
    assert read_syntax(INVOKE, f"{text} x") == (Calls((pack(box="a<b>c"),)), " x")


@pytest.mark.parametrize(
    ("start", "end"),
    [
        ("<function_calls>", "</function_calls>"),
        ("<minimax:tool_call>\n", "\n</minimax:tool_call>"),
        (f"<{BAR}DSML{BAR}tool_calls><eos>\n", f"</{BAR}DSML{BAR}tool_calls>"),
        (
            f"<{BAR}tool_calls_begin{BAR}><{BAR}tool_call_begin{BAR}>function<{BAR}tool_sep{BAR}>",
            f"<{BAR}tool_call_end{BAR}><{BAR}tool_calls_end{BAR}>",
        ),
    ],
)
def test_a_wrapper_may_contain_several_calls(start: str, end: str) -> None:
    text = start + invocation() + "\n" + invocation("", parameter("1")) + end
    assert read_syntax(INVOKE, text) == (Calls((pack(), pack(box="1"))), "")


def test_the_wrapper_of_invocations_may_be_unclosed() -> None:
    text = "<function_calls>" + invocation("", parameter("1"))
    assert read_syntax(INVOKE, text) == (Calls((pack(box="1"),), closed=False), "")


def test_an_attribute_marks_values_that_are_not_strings() -> None:
    def boxed(text: str, kind: str) -> Calls | NoCall:
        tag = parameter(text, "", f' string="{kind}"')
        return read_syntax(INVOKE, invocation("", tag))[0]

    assert boxed("[1, 2]", "false") == Calls((pack(box=[1, 2]),))
    assert boxed("[1, 2]", "true") == Calls((pack(box="[1, 2]"),))
    assert boxed('["a"', "false") == Calls((pack(box='["a"'),))
    assert boxed("oh", "false") == Calls((pack(box="oh"),))


@pytest.mark.parametrize(
    ("raw", "more", "expected"),
    [
        ('{"box": 1}', ' string="false"', pack(box=1)),
        (' {"box": 1}', "", pack(box=1)),
        ("{oh", "", pack(arguments="{oh")),
        ("oh", "", pack(arguments="oh")),
        ("5", ' string="false"', pack(arguments=5)),
    ],
)
def test_a_single_parameter_may_contain_all_arguments(
    raw: str, more: str, expected: WrittenCall
) -> None:
    text = f'<parameter name="arguments"{more}>{raw}</parameter>'
    assert read_syntax(INVOKE, invocation("", text))[0] == Calls((expected,))


def test_tags_may_be_named_like_their_parameters() -> None:
    assert read_syntax(INVOKE, invocation("", "<box>a</box>\n<lid>b</lid>"))[0] == Calls(
        (pack(box="a", lid="b"),)
    )
    mark = "]<]minimax[>["
    text = f'{mark}<tool_call>\n{mark}<invoke name="pack">{mark}<box>a{mark}</box>'
    text += f"{mark}</invoke>\n{mark}</tool_call>"
    assert read_syntax(INVOKE, text) == (Calls((pack(box="a"),)), "")


def test_a_call_without_arguments_needs_a_wrapper_or_a_separate_line() -> None:
    assert read_syntax(INVOKE, invocation()) == (Calls((pack(),), is_doubtful=True), "")
    assert read_syntax(INVOKE, invocation("", "\n")) == (Calls((pack(),)), "")
    assert read_syntax(INVOKE, invocation("", "\n")[:-1])[0] == NoCall(Reason.BROKEN)


@pytest.mark.parametrize(
    ("raw", "value"),
    [("\na\n", "a"), ("a\n", "a\n"), ("\na", "\na"), ("\n\na\n\n", "\na\n"), ("\n", "")],
)
def test_a_line_end_belongs_to_a_mark_only_if_there_is_one_at_either_side(
    raw: str, value: str
) -> None:
    text = invocation("", parameter(raw))
    assert read_syntax(INVOKE, text)[0] == Calls((pack(box=value),))


def test_an_opening_of_no_call_is_abandoned_immediately() -> None:
    result = read_syntax(INVOKE, "<tool_call>\n<function_calls>x")
    assert result == (NoCall(Reason.NOT_A_CALL), "\n<function_calls>x")


def test_closing_tags_may_omit_the_namespace() -> None:
    text = '<invoke name="pack"><parameter name="box">1</parameter></invoke>'
    assert read_syntax(INVOKE, text)[0] == Calls((WrittenCall("pack", {"box": "1"}),))


def test_a_token_before_every_tag_allows_nested_elements() -> None:
    at = "]<]minimax[>["
    text = f'{at}<tool_call>{at}<invoke name="pack">{at}<box>{at}<item>a{at}</item>{at}<item>b'
    text += f"{at}</item>{at}</box>{at}<by>x{at}</by>{at}</invoke>{at}</tool_call>"
    call = WrittenCall("pack", {"box": {"item": ["a", "b"]}, "by": "x"})
    assert read_syntax(INVOKE, text)[0] == Calls((call,))
    broken = text.replace(f"{at}</box>", "")
    assert isinstance(read_syntax(INVOKE, broken)[0], NoCall)


def test_a_call_without_closing_mark_may_end_in_its_object() -> None:
    result = read_syntax(INVOKE, '<invoke name="pack">{"a": 1} x')
    assert result == (Calls((WrittenCall("pack", {"a": 1}),), closed=False), "x")


def test_a_typed_value_may_be_null() -> None:
    text = f'<{DSML}invoke name="f"><{DSML}parameter name="a" string="false">null'
    text += f"</{DSML}parameter></{DSML}invoke>"
    assert read_syntax(INVOKE, text)[0] == Calls((WrittenCall("f", {"a": None}),))


def test_a_missing_namespace_does_not_end_the_value_of_another_call() -> None:
    inner = '<invoke name="g"><parameter name="b">2</parameter></invoke>'
    text = f'<{DSML}invoke name="f"><{DSML}parameter name="a">{inner}</{DSML}invoke>'
    assert isinstance(read_syntax(INVOKE, text)[0], NoCall)


CALL = WrittenCall("look", {"at": "x"})
NAME = "<name>look</name>"
OBJECT = '{"at": "x"}'


@pytest.mark.parametrize("wrapper", ["tool_call", "tool_use", "function_call"])
@pytest.mark.parametrize("arguments", ["arguments", "parameters", "input"])
def test_a_name_and_an_object_of_arguments_are_read(wrapper: str, arguments: str) -> None:
    text = f"<{wrapper}>\n<tool_name> look </tool_name>\n<{arguments}>\n{OBJECT}\n</{arguments}>\n"
    assert read_syntax(NAMED_TAGS, f"{text}</{wrapper}> x") == (Calls((CALL,)), " x")


def test_the_closing_tag_may_be_missing() -> None:
    text = f"<tool_call>{NAME}<arguments>{OBJECT}</arguments>"
    assert read_syntax(NAMED_TAGS, text)[0] == Calls((CALL,), closed=False)


@pytest.mark.parametrize("arguments", ["", "<arguments></arguments>", "<arguments>{}</arguments>"])
def test_there_may_be_no_arguments(arguments: str) -> None:
    text = f"<tool_call>{NAME}{arguments}</tool_call>"
    assert read_syntax(NAMED_TAGS, text)[0] == Calls((WrittenCall("look", {}),))


START = '<|open|>call tool="sum" index="1"<|sep|>'
KIMI_END = "<|close|>call<|sep|>"


def argument(key: str, kind: str, text: str) -> str:
    return f'<|open|>argument key="{key}" type="{kind}"<|sep|>{text}<|close|>argument<|sep|>'


def test_every_argument_has_a_type() -> None:
    arguments = argument("a", "number", "1") + argument("b", "string", "2")
    text = START + arguments + argument("c", "object", "{oh") + KIMI_END
    call = WrittenCall("sum", {"a": 1, "b": "2", "c": "{oh"})
    assert read_syntax(KIMI_K3, f"{text}x") == (Calls((call,)), "x")
    assert read_syntax(KIMI_K3, START + KIMI_END)[0] == Calls((WrittenCall("sum", {}),))


def test_the_closing_mark_may_be_missing() -> None:
    result = read_syntax(KIMI_K3, START + argument("a", "number", "1"))[0]
    assert result == Calls((WrittenCall("sum", {"a": 1}),), closed=False)


@pytest.mark.parametrize(
    ("syntax", "text", "reason"),
    [
        # Qwen Coder
        (QWEN_CODER, "<tool_call>", Reason.NOT_A_CALL),
        (QWEN_CODER, "<tool_call>{", Reason.NOT_A_CALL),
        (QWEN_CODER, "<tool_call>\n<function", Reason.NOT_A_CALL),
        (QWEN_CODER, "<function=", Reason.NOT_A_CALL),
        (QWEN_CODER, "<function=a b>", Reason.NOT_A_CALL),
        (QWEN_CODER, "<function=edit<parameter=a>", Reason.NOT_A_CALL),
        (QWEN_CODER, "<function=edit>", Reason.BROKEN),
        (QWEN_CODER, "<function=edit>\n</tool_call>", Reason.BROKEN),
        (QWEN_CODER, '<function=edit>{"a": 1', Reason.BROKEN),
        (QWEN_CODER, '<function=edit>{"a": oh}</function>', Reason.BROKEN),
        (QWEN_CODER, "<function=edit><parameter=>1</parameter></function>", Reason.BROKEN),
        (QWEN_CODER, "<function=edit><parameter=a>cut", Reason.BROKEN),
        (QWEN_CODER, "<function=edit><parameter=a>cut</para", Reason.BROKEN),
        (QWEN_CODER, "<function=edit><parameter=a>1</parameter> so", Reason.BROKEN),
        # invocations
        (INVOKE, "<function_calls> x", Reason.NOT_A_CALL),
        (INVOKE, "<function_calls><bos><eos><s></s><bos>" + invocation(), Reason.NOT_A_CALL),
        (INVOKE, "<function_calls><invoke name=>", Reason.NOT_A_CALL),
        (INVOKE, '<invoke name="pack"><bo x>1</bo></invoke>', Reason.BROKEN),
        (INVOKE, '<invoke name="pack"><box>1', Reason.BROKEN),
        (INVOKE, '<invoke name="pack">[1]</invoke>', Reason.BROKEN),
        (
            INVOKE,
            '<invoke name="pack">' + parameter("1") + parameter("2") + "</invoke>",
            Reason.BROKEN,
        ),
        # an envelope of tags
        (NAMED_TAGS, f"<tool_call>{OBJECT}</tool_call>", Reason.NOT_A_CALL),
        (NAMED_TAGS, "<tool_call><name></name></tool_call>", Reason.NOT_A_CALL),
        (NAMED_TAGS, "<tool_call><name>look<b></tool_call>", Reason.NOT_A_CALL),
        (NAMED_TAGS, f"<tool_call><name>{'a' * 201}</name></tool_call>", Reason.NOT_A_CALL),
        (NAMED_TAGS, f"<tool_call>{NAME}", Reason.NOT_A_CALL),
        (NAMED_TAGS, f"<tool_call>{NAME}<arguments>[1]</arguments></tool_call>", Reason.BROKEN),
        (NAMED_TAGS, f"<tool_call>{NAME}<arguments>oh</arguments></tool_call>", Reason.BROKEN),
        (NAMED_TAGS, f"<tool_call>{NAME}<arguments>{OBJECT}", Reason.BROKEN),
        # Kimi K3
        (KIMI_K3, START, Reason.NOT_A_CALL),
        (KIMI_K3, '<|open|>call tool="sum', Reason.NOT_A_CALL),
        (KIMI_K3, START + '<|open|>argument key="a" type="number"<|sep|>1', Reason.BROKEN),
        (KIMI_K3, START + '<|open|>argument key=""<|sep|>1<|close|>argument<|sep|>', Reason.BROKEN),
    ],
)
def test_other_text_is_no_call(syntax: Syntax, text: str, reason: Reason) -> None:
    assert read_syntax(syntax, text)[0] == NoCall(reason)


def test_attributes_may_contain_markup_characters() -> None:
    text = f'<|open|>call tool="a<b"<|sep|>{argument("c<d", "string", "raw")}{KIMI_END}'
    assert read_syntax(KIMI_K3, text)[0] == Calls((WrittenCall("a<b", {"c<d": "raw"}),))


def test_attributes_may_be_escaped() -> None:
    text = (
        '<|open|>call tool="a&amp;b&quot;c" index="1"<|sep|><|open|>argument key="k&amp;q" '
        'type="string"<|sep|>v<|close|>argument<|sep|><|close|>call<|sep|>'
    )
    assert read_syntax(KIMI_K3, text)[0] == Calls((WrittenCall('a&b"c', {"k&q": "v"}),))


@pytest.mark.parametrize(
    "inner", ['<|open|>call tool="b"<|sep|>', '<|open|>argument key="b"<|sep|>']
)
def test_an_unclosed_value_does_not_extend_into_the_next_element(inner: str) -> None:
    text = f'<|open|>call tool="a"<|sep|><|open|>argument key="a"<|sep|>1{inner}2'
    text += "<|close|>argument<|sep|><|close|>call<|sep|>"
    assert read_syntax(KIMI_K3, text)[0] == NoCall(Reason.BROKEN)


def test_a_key_with_a_missing_quotation_mark_is_ignored() -> None:
    text = '<|open|>call tool="a"<|sep|><|open|>argument key="first type="string"<|sep|>1'
    text += "<|close|>argument<|sep|><|close|>call<|sep|>"
    assert read_syntax(KIMI_K3, text)[0] == NoCall(Reason.BROKEN)
