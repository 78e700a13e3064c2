from proxy.conversation.tools import ToolUse
from proxy.dialects.openai_responses.tools import ToolTable, read_choice


def test_a_request_without_tools_gives_an_empty_table() -> None:
    table = ToolTable([])
    table.offer(None)
    assert table.find(None) == []
    table.check()
    assert table.tools == ()


def test_a_missing_tool_choice_is_auto() -> None:
    assert read_choice(None, ToolTable([])) == (ToolUse.AUTO, None)
