from proxy.context.prompt_totals import KnownPromptTotals
from proxy.conversation.messages import user_message

ONE, TWO, THREE = map(user_message, ("one", "two", "three"))
TOOLS = 7


def test_the_longest_known_beginning_is_found() -> None:
    totals = KnownPromptTotals()
    totals.note((ONE,), TOOLS, 10)
    totals.note((ONE, TWO), TOOLS, 20)
    assert totals.longest((ONE, TWO, THREE), TOOLS) == (2, 20)
    assert totals.longest((ONE, TWO), TOOLS) == (2, 20)
    assert totals.longest((user_message("one"), THREE), TOOLS) == (1, 10)


def test_a_prompt_that_begins_otherwise_is_unknown() -> None:
    totals = KnownPromptTotals()
    totals.note((ONE, TWO), TOOLS, 20)
    assert totals.longest((TWO, ONE), TOOLS) is None
    assert totals.longest((ONE,), TOOLS) is None
    assert totals.longest((ONE, TWO), TOOLS + 1) is None
    assert totals.longest((), TOOLS) is None


def test_the_latest_prompts_are_remembered() -> None:
    totals = KnownPromptTotals(capacity=2)
    totals.note((ONE,), TOOLS, 10)
    totals.note((TWO,), TOOLS, 20)
    totals.note((ONE,), TOOLS, 11)
    totals.note((THREE,), TOOLS, 30)
    assert totals.longest((ONE,), TOOLS) == (1, 11)
    assert totals.longest((TWO,), TOOLS) is None
