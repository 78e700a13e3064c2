import pytest

from proxy.conversation.json import JsonValue
from proxy.conversation.tools import WrittenCall
from proxy.guardrails.rescue.syntax import Calls, NotACall, Reason
from proxy.guardrails.rescue.syntaxes.qwen_coder import QwenCoder
from tests.fakes.arrivals import read_syntax


def edit(**arguments: JsonValue) -> Calls:
    return Calls((WrittenCall("edit", dict(arguments)),))


def test_parameters_stand_in_tags_of_their_own() -> None:
    text = (
        "<tool_call>\n<function=edit>\n<parameter=path>\na.py\n</parameter>\n"
        "<parameter=line>\n12\n</parameter>\n</function>\n</tool_call>\nrest"
    )
    assert read_syntax(QwenCoder(), text) == (edit(path="a.py", line="12"), "\nrest")


def test_the_wrapper_may_be_missing() -> None:
    text = "<function=edit><parameter=path>a.py</parameter></function>\n</tool_call>"
    assert read_syntax(QwenCoder(), text) == (edit(path="a.py"), "\n</tool_call>")


def test_one_wrapper_may_hold_several_functions() -> None:
    text = "<tool_call><function=now></function>\n<function=now></function></tool_call>"
    call = WrittenCall("now", {})
    assert read_syntax(QwenCoder(), text) == (Calls((call, call)), "")


def test_names_may_be_quoted_or_padded() -> None:
    text = '<function="edit" ><parameter="path" >a.py</parameter></function>'
    assert read_syntax(QwenCoder(), text) == (edit(path="a.py"), "")


def test_a_value_keeps_all_but_one_newline_at_either_end() -> None:
    text = "<function=edit><parameter=text>\n\n  x < y\n\n</parameter></function>"
    assert read_syntax(QwenCoder(), text)[0] == edit(text="\n  x < y\n")


@pytest.mark.parametrize("written", ["\nx", "x\n", "\nx\n", "x"])
def test_a_line_end_at_a_mark_may_be_forgotten(written: str) -> None:
    text = f"<function=edit><parameter=text>{written}</parameter></function>"
    assert read_syntax(QwenCoder(), text)[0] == edit(text="x")


def test_of_two_values_for_one_parameter_none_is_chosen() -> None:
    parameters = "<parameter=a>1</parameter><parameter=a>{}</parameter>"
    text = f"<function=edit>{parameters}</function>"
    assert read_syntax(QwenCoder(), text.format(1))[0] == edit(a="1")
    assert read_syntax(QwenCoder(), text.format(2))[0] == NotACall(Reason.BROKEN)


@pytest.mark.parametrize(
    ("body", "closed"),
    [('{"a": 1}</function>', True), ('\n{"a": 1</function>', True), ('{"a": 1}', False)],
)
def test_all_arguments_may_be_one_json_object(body: str, closed: bool) -> None:
    result = read_syntax(QwenCoder(), f"<function=edit>{body}")
    assert result == (Calls(edit(a=1).calls, closed), "")


def test_an_end_mark_inside_a_value_belongs_to_it() -> None:
    value = "a</parameter> b"
    text = f"<function=edit><parameter=a>{value}</parameter></function>"
    assert read_syntax(QwenCoder(), text) == (edit(a=value), "")


def test_seed_has_a_wrapper_of_its_own() -> None:
    text = "<seed:tool_call><function=edit></function></seed:tool_call>"
    assert read_syntax(QwenCoder(), text) == (edit(), "")


@pytest.mark.parametrize(
    "end",
    [
        "<parameter=b>2</parameter></function></tool_call>",
        "\n<parameter=b>\n2\n</function>\n</tool_call>",
    ],
)
def test_the_end_of_a_parameter_may_be_missing_where_the_next_mark_follows(end: str) -> None:
    text = f"<tool_call><function=edit><parameter=a>1{end}"
    assert read_syntax(QwenCoder(), text) == (edit(a="1", b="2"), "")


def test_the_end_of_a_function_may_be_missing_where_its_wrapper_ends() -> None:
    text = "<tool_call><function=edit><parameter=a>1</parameter>\n</tool_call>"
    assert read_syntax(QwenCoder(), text) == (edit(a="1"), "")


@pytest.mark.parametrize("end", ["", "\n", "\n<tool_call>", "</function>", "</function>\n"])
def test_the_end_of_the_wrapper_may_be_missing(end: str) -> None:
    text = f"<tool_call><function=edit><parameter=a>1</parameter>{end}"
    result, _ = read_syntax(QwenCoder(), text)
    assert result == Calls(edit(a="1").calls, closed=False)


@pytest.mark.parametrize("end", ["", "<function=now></function>", "</tool_call>"])
def test_the_end_of_a_function_may_be_missing(end: str) -> None:
    text = f"<function=edit><parameter=a>1</parameter>{end}"
    assert read_syntax(QwenCoder(), text) == (Calls(edit(a="1").calls, closed=False), end)


def test_marks_inside_a_value_belong_to_it_where_nothing_fits_behind_them() -> None:
    value = "x </function>\n y </tool_call>\n</tool_call> z"
    text = f"<tool_call><function=edit><parameter=a>{value}</parameter></function></tool_call>"
    assert read_syntax(QwenCoder(), text) == (edit(a=value), "")


def test_a_parameter_inside_a_value_makes_the_call_unreadable_rather_than_wrong() -> None:
    value = "a <parameter=x>1</parameter> b"
    text = f"<function=edit><parameter=a>{value}</parameter></function>"
    assert read_syntax(QwenCoder(), text)[0] == NotACall(Reason.BROKEN)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("<tool_call>", Reason.NOT_A_CALL),
        ("<tool_call>{", Reason.NOT_A_CALL),
        ("<tool_call>\n<function", Reason.NOT_A_CALL),
        ("<function=", Reason.NOT_A_CALL),
        ("<function=a b>", Reason.NOT_A_CALL),
        ("<function=edit<parameter=a>", Reason.NOT_A_CALL),
        ("<function=edit>", Reason.BROKEN),
        ("<function=edit>\n</tool_call>", Reason.BROKEN),
        ('<function=edit>{"a": 1', Reason.BROKEN),
        ('<function=edit>{"a": oh}</function>', Reason.BROKEN),
        ("<function=edit><parameter=>1</parameter></function>", Reason.BROKEN),
        ("<function=edit><parameter=a>cut", Reason.BROKEN),
        ("<function=edit><parameter=a>cut</para", Reason.BROKEN),
        ("<function=edit><parameter=a>1</parameter> so", Reason.BROKEN),
    ],
)
def test_anything_else_is_no_call(text: str, reason: Reason) -> None:
    assert read_syntax(QwenCoder(), text)[0] == NotACall(reason)


@pytest.mark.parametrize(
    "body",
    [
        '<parameter name="a">1</parameter>',
        "<param=a>1</param>",
        "<a>1</a>",
        "<parameter=a>1</a>",
    ],
)
def test_parameters_may_be_spelled_otherwise(body: str) -> None:
    text = f"<function=edit>{body}</function>"
    assert read_syntax(QwenCoder(), text)[0] == Calls((WrittenCall("edit", {"a": "1"}),))


def test_the_bracket_of_the_first_tag_may_be_forgotten_at_the_end_of_its_line() -> None:
    text = "<function=edit\n<parameter=a>1</parameter></function>"
    assert read_syntax(QwenCoder(), text)[0] == Calls((WrittenCall("edit", {"a": "1"}),))


def test_all_inner_marks_may_be_missing_at_the_end_of_the_reply() -> None:
    text = "<tool_call><function=edit><parameter=a>1\n</tool_call>"
    found = read_syntax(QwenCoder(), text)[0]
    assert found == Calls((WrittenCall("edit", {"a": "1"}),), closed=False)
    assert isinstance(read_syntax(QwenCoder(), f"{text} x")[0], NotACall)
    doubtful = "<tool_call><function=edit><parameter=a>1</parameter> 2</tool_call>"
    assert isinstance(read_syntax(QwenCoder(), doubtful)[0], NotACall)


def test_a_call_without_arguments_and_mark_counts_in_a_wrapper() -> None:
    text = "<tool_call><function=edit></tool_call>"
    assert read_syntax(QwenCoder(), text)[0] == Calls((WrittenCall("edit", {}),))


def test_a_tag_of_the_grammar_is_no_argument() -> None:
    text = "<function=edit><parameter>a=1</parameter></function>"
    assert isinstance(read_syntax(QwenCoder(), text)[0], NotACall)


@pytest.mark.parametrize(
    "second", ["<function=now>", "<tool_call>", "<|tool_call>", "[TOOL_CALLS]"]
)
@pytest.mark.parametrize("end", ["<parameter=b>2</parameter></function>", "</function>"])
def test_a_value_without_end_does_not_run_into_another_call(second: str, end: str) -> None:
    text = f"<function=edit><parameter=a>1\n{second}{end}</tool_call>"
    assert read_syntax(QwenCoder(), text)[0] == NotACall(Reason.BROKEN)


@pytest.mark.parametrize("tag", ["tool_call", "tool_calls", "function_call", "invoke", "param"])
def test_a_tag_of_any_grammar_is_no_argument(tag: str) -> None:
    text = f"<function=edit><{tag}>x</{tag}></function>"
    assert isinstance(read_syntax(QwenCoder(), text)[0], NotACall)


def test_a_tag_named_like_the_argument_does_not_swallow_another_call() -> None:
    text = "<function=edit><a>1<function=edit><a>2</a></function>"
    assert read_syntax(QwenCoder(), text)[0] == NotACall(Reason.BROKEN)
    nested = "<function=edit><a>1<a>2</a></function>"
    assert read_syntax(QwenCoder(), nested)[0] == edit(a="1<a>2")


def test_the_first_characters_of_a_tag_are_text() -> None:
    value = "a <parameter= b <parameter\n=c"
    text = f"<function=edit><parameter=a>{value}</parameter></function>"
    assert read_syntax(QwenCoder(), text)[0] == edit(a=value)


def test_both_closing_marks_are_text_where_the_line_goes_on_to_both() -> None:
    value = "a</parameter></function> b"
    text = f"<function=edit><parameter=a>{value}</parameter></function>"
    assert read_syntax(QwenCoder(), text) == (edit(a=value), "")
    cut = "<function=edit><parameter=a>a</parameter></function> b"
    assert read_syntax(QwenCoder(), cut) == (edit(a="a"), " b")


def test_a_call_end_is_none_if_more_values_end_behind_it_than_begin() -> None:
    value = "a</function><function=b> c"
    text = f"<function=edit><parameter=a>{value}</parameter></function>"
    assert read_syntax(QwenCoder(), text)[0] == NotACall(Reason.BROKEN)
    whole = "a</function><function=b><parameter=c>1</parameter></function> d"
    text = f"<function=edit><parameter=a>{whole}</parameter></function>"
    assert read_syntax(QwenCoder(), text)[0] == NotACall(Reason.BROKEN)


def test_a_value_right_behind_its_tag_keeps_its_line_end() -> None:
    path, body = "<parameter=path>a.py</parameter>", "<parameter=text>x\n</parameter>"
    text = f"<seed:tool_call><function=edit>{path}{body}</function></seed:tool_call>"
    assert read_syntax(QwenCoder(), text)[0] == edit(path="a.py", text="x\n")
    several = "<function=edit><parameter=text>x\ny\n</parameter></function>"
    assert read_syntax(QwenCoder(), several)[0] == edit(text="x\ny\n")
