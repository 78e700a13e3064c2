import pytest

from proxy.conversation.tools import WrittenCall
from proxy.guardrails.rescue.syntax import Calls, NotACall, Reason
from proxy.guardrails.rescue.syntaxes.named_tags import NamedTags
from tests.fakes.arrivals import read_syntax

CALL = WrittenCall("look", {"at": "x"})
NAME = "<name>look</name>"
OBJECT = '{"at": "x"}'


@pytest.mark.parametrize("wrapper", ["tool_call", "tool_use", "function_call"])
@pytest.mark.parametrize("arguments", ["arguments", "parameters", "input"])
def test_a_name_and_an_object_of_arguments_are_read(wrapper: str, arguments: str) -> None:
    text = f"<{wrapper}>\n<tool_name> look </tool_name>\n<{arguments}>\n{OBJECT}\n</{arguments}>\n"
    assert read_syntax(NamedTags(), f"{text}</{wrapper}> x") == (Calls((CALL,)), " x")


def test_the_closing_tag_may_be_missing() -> None:
    text = f"<tool_call>{NAME}<arguments>{OBJECT}</arguments>"
    assert read_syntax(NamedTags(), text)[0] == Calls((CALL,), closed=False)


@pytest.mark.parametrize("arguments", ["", "<arguments></arguments>", "<arguments>{}</arguments>"])
def test_there_may_be_no_arguments(arguments: str) -> None:
    text = f"<tool_call>{NAME}{arguments}</tool_call>"
    assert read_syntax(NamedTags(), text)[0] == Calls((WrittenCall("look", {}),))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (f"<tool_call>{OBJECT}</tool_call>", Reason.NOT_A_CALL),
        ("<tool_call><name></name></tool_call>", Reason.NOT_A_CALL),
        ("<tool_call><name>look<b></tool_call>", Reason.NOT_A_CALL),
        (f"<tool_call><name>{'a' * 201}</name></tool_call>", Reason.NOT_A_CALL),
        (f"<tool_call>{NAME}", Reason.NOT_A_CALL),
        (f"<tool_call>{NAME}<arguments>[1]</arguments></tool_call>", Reason.BROKEN),
        (f"<tool_call>{NAME}<arguments>oh</arguments></tool_call>", Reason.BROKEN),
        (f"<tool_call>{NAME}<arguments>{OBJECT}", Reason.BROKEN),
    ],
)
def test_anything_else_is_no_call(text: str, reason: Reason) -> None:
    assert read_syntax(NamedTags(), text)[0] == NotACall(reason)
