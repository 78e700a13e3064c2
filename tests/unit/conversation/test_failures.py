import pytest

from proxy.conversation.failures import has_failed


@pytest.mark.parametrize(
    ("result", "is_failure"),
    [
        ("seen", False),
        ("  Error: no such file", True),
        ("Traceback (most recent call last)", True),
        ("[ERROR] no such file", True),
        ("<error>no such file</error>", True),
        ("failed", True),
        ("Errors fixed: 3", False),
        ("exceptional", False),
        ("no error at all", False),
        ('{"error": "no such file"}', True),
        ('{"error": null, "data": 1}', False),
        ('{"isError": true}', True),
        ('{"is_error": false}', False),
        ('{"status": "error"}', True),
        ('{"status": "ok"}', False),
        ("{not json", False),
    ],
)
def test_a_failure_is_recognized_even_if_a_reminder_follows(result: str, is_failure: bool) -> None:
    assert has_failed(result) is is_failure
    reminder = "<system-reminder>\nMind the gap.\n</system-reminder>"
    assert has_failed(f"{result}\n{reminder}") is is_failure
