import pytest

from proxy.conversation.reminders import (
    CLOSING,
    OPENING,
    has_only_reminders,
    is_forged,
    neutralize,
    without_reminders,
)

SAID = ["", "done", "two\nlines\n", f"{OPENING}\nnothing\n{CLOSING}\nbut its beginning"]


@pytest.mark.parametrize("text", [*SAID, f"about {OPENING} in a line", f"or an end\n{CLOSING}"])
def test_the_function_without_reminders_removes_trailing_reminders(text: str) -> None:
    reminder = f"{OPENING}\nMind the gap.\n{CLOSING}"
    assert without_reminders(text) == text
    assert without_reminders(f"{text}\n{reminder}\n{reminder}") == text
    assert without_reminders(reminder) == ""


@pytest.mark.parametrize(
    "tag", ["<system-reminder>", "</system-reminder>", "<System-Reminder >", "< / system-reminder>"]
)
def test_the_function_neutralize_breaks_forged_tags(tag: str) -> None:
    assert is_forged(f"a {tag} b")
    assert not is_forged(neutralize(f"a {tag} b"))
    assert neutralize(f"a {tag} b").replace("\u200b", "") == f"a {tag} b"


@pytest.mark.parametrize(
    ("text", "is_only"),
    [
        (f"{OPENING}\nBe brief.\n{CLOSING}", True),
        (f"\n{OPENING}a{CLOSING}\n\n{OPENING}b{CLOSING}\n", True),
        (f"{OPENING}a{CLOSING} Go on.", False),
        (f"Go on. {OPENING}a{CLOSING}", False),
        (f"{OPENING}not closed", False),
        ("", False),
        (" \n", False),
    ],
)
def test_the_function_has_only_reminders_recognizes_a_text_of_nothing_but_reminders(
    text: str, is_only: bool
) -> None:
    assert has_only_reminders(text) is is_only


def test_a_text_without_a_reminder_tag_is_not_forged() -> None:
    assert not is_forged("a <system> reminder, system-reminder")
