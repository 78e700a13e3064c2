import pytest

from proxy.conversation.tools import NamedTool, ToolUse, WrittenCall


@pytest.mark.parametrize(
    ("word", "use"),
    [("auto", ToolUse.AUTO), ("none", ToolUse.NONE), ("required", ToolUse.REQUIRED)],
)
def test_the_ways_to_use_tools_are_called_as_on_the_wire(word: str, use: ToolUse) -> None:
    assert ToolUse(word) is use


def test_a_tool_that_must_be_called_is_known_by_its_name() -> None:
    assert NamedTool("f") == NamedTool("f") != NamedTool("g")


def test_a_written_call_need_not_have_an_id() -> None:
    assert WrittenCall("f", {"a": 1}).id is None
