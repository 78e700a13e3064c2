import pytest

from proxy.conversation.tools import NamedTool, ToolUse, WrittenCall


@pytest.mark.parametrize(
    ("word", "use"),
    [("auto", ToolUse.AUTO), ("none", ToolUse.NONE), ("required", ToolUse.REQUIRED)],
)
def test_tool_choices_have_their_wire_names(word: str, use: ToolUse) -> None:
    assert ToolUse(word) is use


def test_a_required_tool_is_identified_by_name() -> None:
    assert NamedTool("f") == NamedTool("f") != NamedTool("g")


def test_the_id_of_a_written_call_is_none_by_default() -> None:
    assert WrittenCall("f", {"a": 1}).id is None
