from proxy.conversation.replies import UsageReported
from proxy.inference.usage import Spending

FIRST = UsageReported({"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15})
SECOND = UsageReported({"prompt_tokens": 20, "completion_tokens": 7, "total_tokens": 27}, {"x": 1})


def test_one_attempt_is_told_as_it_came() -> None:
    spending = Spending()
    spending.add(FIRST)
    assert spending.told_with(FIRST) is FIRST
    assert spending.first_reply == 5


def test_several_attempts_are_added_up_beside_the_usage_of_the_one_that_counts() -> None:
    spending = Spending()
    for one in (FIRST, SECOND):
        spending.add(one)
    told = spending.told_with(SECOND)
    assert told.timings == {"x": 1}
    assert told.usage == {
        **SECOND.usage,
        "temper": {
            "attempts": 2,
            "prompt_tokens": 30,
            "completion_tokens": 12,
            "total_tokens": 42,
        },
    }
    assert spending.first_reply == 5


def test_what_a_backend_does_not_count_counts_nothing() -> None:
    spending = Spending()
    for usage in ({}, {"completion_tokens": None}, {"completion_tokens": "7"}):
        spending.add(UsageReported({**usage}))
    assert spending.first_reply is None
    assert spending.told_with(FIRST).usage["temper"] == {
        "attempts": 3,
        "prompt_tokens": 0,
        "completion_tokens": 0,
        "total_tokens": 0,
    }
