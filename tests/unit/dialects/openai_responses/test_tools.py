from proxy.conversation.tools import ToolUse
from proxy.dialects.openai_responses.tools import ToolTable, read_choice


def test_no_tools_are_no_tools() -> None:
    table = ToolTable([])
    table.offer(None)
    assert table.find(None) == []
    table.check()
    assert table.tools == ()


def test_no_choice_is_none() -> None:
    assert read_choice(None, ToolTable([])) == (ToolUse.AUTO, None)
