from proxy.conversation.tools import ToolUse
from proxy.dialects.foreign_history import write_choice


def test_the_tool_choice_auto_is_written() -> None:
    assert write_choice(ToolUse.AUTO) == b'"auto"'
