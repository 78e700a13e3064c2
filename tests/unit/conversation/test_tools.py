import pytest

from proxy.conversation.tools import NamedTool, ToolUse, WrittenCall


@pytest.mark.parametrize(
    ("word", "use"),
    [("auto", ToolUse.AUTO), ("none", ToolUse.NONE), ("required", ToolUse.REQUIRED)],
)
def test_tool_use_has_the_values_of_the_openai_field_tool_choice(word: str, use: ToolUse) -> None:
    assert ToolUse(word) is use


def test_named_tools_are_equal_if_their_names_are_equal() -> None:
    assert NamedTool("f") == NamedTool("f") != NamedTool("g")


def test_the_id_of_a_written_call_is_none_by_default() -> None:
    assert WrittenCall("f", {"a": 1}).id is None
