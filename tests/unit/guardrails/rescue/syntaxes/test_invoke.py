import pytest

from proxy.conversation.json import JsonValue
from proxy.conversation.tools import WrittenCall
from proxy.guardrails.rescue.syntax import Calls, NotACall, Reason
from proxy.guardrails.rescue.syntaxes.invoke import Invoke
from tests.fakes.arrivals import read_syntax

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
def test_tags_may_stand_in_a_namespace(namespace: str) -> None:
    text = invocation(namespace, f"\n{parameter('a<b>c', namespace)}\n")
    assert read_syntax(Invoke(), f"{text} x") == (Calls((pack(box="a<b>c"),)), " x")


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
def test_a_wrapper_may_hold_several_calls(start: str, end: str) -> None:
    text = start + invocation() + "\n" + invocation("", parameter("1")) + end
    assert read_syntax(Invoke(), text) == (Calls((pack(), pack(box="1"))), "")


def test_the_end_of_the_wrapper_may_be_missing() -> None:
    text = "<function_calls>" + invocation("", parameter("1"))
    assert read_syntax(Invoke(), text) == (Calls((pack(box="1"),), closed=False), "")


def test_an_attribute_tells_what_is_no_string() -> None:
    def boxed(text: str, kind: str) -> Calls | NotACall:
        written = parameter(text, "", f' string="{kind}"')
        return read_syntax(Invoke(), invocation("", written))[0]

    assert boxed("[1, 2]", "false") == Calls((pack(box=[1, 2]),))
    assert boxed("[1, 2]", "true") == Calls((pack(box="[1, 2]"),))
    assert boxed('["a"', "false") == Calls((pack(box='["a"'),))
    assert boxed("oh", "false") == Calls((pack(box="oh"),))


@pytest.mark.parametrize(
    ("written", "more", "expected"),
    [
        ('{"box": 1}', ' string="false"', pack(box=1)),
        (' {"box": 1}', "", pack(box=1)),
        ("{oh", "", pack(arguments="{oh")),
        ("oh", "", pack(arguments="oh")),
        ("5", ' string="false"', pack(arguments=5)),
    ],
)
def test_a_single_parameter_may_hold_all_arguments(
    written: str, more: str, expected: WrittenCall
) -> None:
    text = f'<parameter name="arguments"{more}>{written}</parameter>'
    assert read_syntax(Invoke(), invocation("", text))[0] == Calls((expected,))


def test_tags_may_be_named_like_their_parameters() -> None:
    assert read_syntax(Invoke(), invocation("", "<box>a</box>\n<lid>b</lid>"))[0] == Calls(
        (pack(box="a", lid="b"),)
    )
    mark = "]<]minimax[>["
    text = f'{mark}<tool_call>\n{mark}<invoke name="pack">{mark}<box>a{mark}</box>'
    text += f"{mark}</invoke>\n{mark}</tool_call>"
    assert read_syntax(Invoke(), text) == (Calls((pack(box="a"),)), "")


def test_a_call_without_arguments_is_doubtful_without_a_wrapper_and_lines_of_its_own() -> None:
    assert read_syntax(Invoke(), invocation()) == (Calls((pack(),), is_doubtful=True), "")
    assert read_syntax(Invoke(), invocation("", "\n")) == (Calls((pack(),)), "")
    assert read_syntax(Invoke(), invocation("", "\n")[:-1])[0] == NotACall(Reason.BROKEN)


@pytest.mark.parametrize(
    ("written", "value"),
    [("\na\n", "a"), ("a\n", "a\n"), ("\na", "\na"), ("\n\na\n\n", "\na\n"), ("\n", "")],
)
def test_a_line_end_belongs_to_a_mark_only_if_there_is_one_at_either(
    written: str, value: str
) -> None:
    text = invocation("", parameter(written))
    assert read_syntax(Invoke(), text)[0] == Calls((pack(box=value),))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("<function_calls> x", Reason.NOT_A_CALL),
        ("<function_calls><bos><eos><s></s><bos>" + invocation(), Reason.NOT_A_CALL),
        ("<function_calls><invoke name=>", Reason.NOT_A_CALL),
        ('<invoke name="pack"><bo x>1</bo></invoke>', Reason.BROKEN),
        ('<invoke name="pack"><box>1', Reason.BROKEN),
        ('<invoke name="pack">[1]</invoke>', Reason.BROKEN),
        ('<invoke name="pack">' + parameter("1") + parameter("2") + "</invoke>", Reason.BROKEN),
    ],
)
def test_anything_else_is_no_call(text: str, reason: Reason) -> None:
    assert read_syntax(Invoke(), text)[0] == NotACall(reason)


def test_an_opening_that_is_no_call_is_given_up_at_once() -> None:
    result = read_syntax(Invoke(), "<tool_call>\n<function_calls>x")
    assert result == (NotACall(Reason.NOT_A_CALL), "\n<function_calls>x")


def test_the_namespace_may_be_forgotten_in_closing_tags() -> None:
    text = '<invoke name="pack"><parameter name="box">1</parameter></invoke>'
    assert read_syntax(Invoke(), text)[0] == Calls((WrittenCall("pack", {"box": "1"}),))


def test_a_token_before_every_tag_allows_elements_within_elements() -> None:
    at = "]<]minimax[>["
    text = f'{at}<tool_call>{at}<invoke name="pack">{at}<box>{at}<item>a{at}</item>{at}<item>b'
    text += f"{at}</item>{at}</box>{at}<by>x{at}</by>{at}</invoke>{at}</tool_call>"
    call = WrittenCall("pack", {"box": {"item": ["a", "b"]}, "by": "x"})
    assert read_syntax(Invoke(), text)[0] == Calls((call,))
    broken = text.replace(f"{at}</box>", "")
    assert isinstance(read_syntax(Invoke(), broken)[0], NotACall)


def test_a_call_without_closing_mark_may_end_in_its_object() -> None:
    result = read_syntax(Invoke(), '<invoke name="pack">{"a": 1} x')
    assert result == (Calls((WrittenCall("pack", {"a": 1}),), closed=False), "x")


def test_a_typed_value_may_be_null() -> None:
    text = f'<{DSML}invoke name="f"><{DSML}parameter name="a" string="false">null'
    text += f"</{DSML}parameter></{DSML}invoke>"
    assert read_syntax(Invoke(), text)[0] == Calls((WrittenCall("f", {"a": None}),))


def test_a_forgotten_namespace_does_not_end_the_value_of_another_call() -> None:
    inner = '<invoke name="g"><parameter name="b">2</parameter></invoke>'
    text = f'<{DSML}invoke name="f"><{DSML}parameter name="a">{inner}</{DSML}invoke>'
    assert isinstance(read_syntax(Invoke(), text)[0], NotACall)
