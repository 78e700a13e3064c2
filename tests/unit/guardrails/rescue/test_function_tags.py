import pytest

from proxy.conversation.tools import WrittenCall
from proxy.guardrails.rescue.function_tags import FunctionTags
from proxy.guardrails.rescue.syntax import Calls
from tests.fakes.arrivals import read_syntax


@pytest.mark.parametrize("space", [" ", ""])
def test_the_space_before_the_name_may_be_missing(space: str) -> None:
    text = f'<function{space}name="f"><param{space}name="a">1 < 2</param></function> x'
    assert read_syntax(FunctionTags(), text) == (Calls((WrittenCall("f", {"a": "1 < 2"}),)), " x")
