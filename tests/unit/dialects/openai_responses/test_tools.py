from proxy.conversation.tools import ToolUse
from proxy.dialects.openai_responses.tools import ToolTable, read_choice


def test_an_empty_tool_list_is_omitted() -> None:
    table = ToolTable([])
    table.offer(None)
    assert table.find(None) == []
    table.check()
    assert table.tools == ()


def test_a_missing_tool_choice_is_omitted() -> None:
    assert read_choice(None, ToolTable([])) == (ToolUse.AUTO, None)
