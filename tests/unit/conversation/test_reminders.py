import pytest

from proxy.conversation.reminders import CLOSING, OPENING, without_reminders

SAID = ["", "done", "two\nlines\n", f"{OPENING}\nnothing\n{CLOSING}\nbut its beginning"]


@pytest.mark.parametrize("said", [*SAID, f"about {OPENING} in a line", f"or an end\n{CLOSING}"])
def test_a_reminder_at_the_end_is_no_part_of_what_was_said(said: str) -> None:
    reminder = f"{OPENING}\nMind the gap.\n{CLOSING}"
    assert without_reminders(said) == said
    assert without_reminders(f"{said}\n{reminder}\n{reminder}") == said
    assert without_reminders(reminder) == ""
