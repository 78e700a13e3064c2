from proxy.conversation.tools import ToolUse
from proxy.dialects.foreign_history import write_choice


def test_a_choice_of_auto_can_be_written() -> None:
    assert write_choice(ToolUse.AUTO) == b'"auto"'
