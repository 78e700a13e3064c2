import pytest

from proxy.conversation.tools import WrittenCall
from proxy.guardrails.rescue.syntax import Calls
from proxy.guardrails.rescue.syntaxes.function_tags import AttributedTags, FunctionTags
from tests.fakes.arrivals import read_syntax


@pytest.mark.parametrize("space", [" ", ""])
def test_the_space_before_the_name_may_be_missing(space: str) -> None:
    text = f'<function{space}name="f"><param{space}name="a">1 < 2</param></function> x'
    assert read_syntax(FunctionTags(), text) == (Calls((WrittenCall("f", {"a": "1 < 2"}),)), " x")


@pytest.mark.parametrize(
    "text",
    [
        '<tool_call name="f">{"a": "1"}</tool_call>',
        '<tool_call name="f"><parameter name="a">1</parameter></tool_call>',
        '<function_call name="f"><param name="a">1</param></function_call>',
        '<tool name="f"><a>1</a></tool>',
    ],
)
def test_other_tags_may_have_the_name_as_well(text: str) -> None:
    assert read_syntax(AttributedTags(), text) == (Calls((WrittenCall("f", {"a": "1"}),)), "")


def test_parameters_may_be_spelled_out() -> None:
    text = '<function name="f"><parameter name="a">1</parameter></function>'
    assert read_syntax(FunctionTags(), text)[0] == Calls((WrittenCall("f", {"a": "1"}),))
