import pytest

from proxy.conversation.endings import CALLS, ENDINGS, FILTERED, LENGTH, STOP, ending_of, is_cut


@pytest.mark.fault("F105")
@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("stop", STOP),
        ("STOP", STOP),
        ("eos_token", STOP),
        ("tool_use", CALLS),
        ("function_call", CALLS),
        ("max_tokens", LENGTH),
        ("MAX-TOKENS", LENGTH),
        ("SAFETY", FILTERED),
        ("abort", LENGTH),
        ("error", LENGTH),
        ("repetition", LENGTH),
        ("stop\x1b[2J", LENGTH),
        ("", LENGTH),
    ],
)
def test_the_finish_reason_of_an_engine_is_mapped_to_an_openai_finish_reason(
    reason: str, expected: str
) -> None:
    assert ending_of(reason).reason == expected
    assert is_cut(reason) is (expected in (LENGTH, FILTERED))


def test_no_finish_reason_is_listed_twice() -> None:
    words = [word for ending in ENDINGS for word in (ending.reason, *ending.words)]
    assert len(words) == len(set(words))
