import pytest

from proxy.context.budget import Window
from proxy.context.compaction import Fitted, Reported, Unshortened, leave_unchanged
from proxy.context.replay import Tiered
from proxy.conversation.messages import Message, user_message
from proxy.errors import ContextOverflow
from proxy.facts import Compacted
from tests.unit.context.conversations import RULES, Pieces, step, words

MESSAGES = (user_message("one"), user_message("two"))
LONG = (user_message("one"), *(message for n in range(30) for message in step(n, 200)))


def test_every_strategy_sends_a_short_prompt_unchanged() -> None:
    size = Pieces().prompt(MESSAGES)
    fitted = leave_unchanged(MESSAGES, size, 3_000)
    assert fitted.messages is MESSAGES
    assert fitted == Tiered(Pieces(), Window(3_000), RULES).fit(MESSAGES, (), None)


def test_the_strategy_named_reported_describes_the_cuts_but_sends_all_messages() -> None:
    strategy = Tiered(Pieces(), Window(3_000), RULES)
    done = strategy.fit(LONG, (), None).compacted
    fitted = Reported(strategy).fit(LONG, (), None)
    assert fitted.messages is LONG
    assert done is not None
    assert fitted.compacted is not None
    assert done.sent < fitted.compacted.sent == fitted.compacted.client == done.client
    assert fitted.compacted.tier == done.tier == 2


def test_the_strategy_named_reported_does_not_reject_an_oversized_prompt() -> None:
    messages = (user_message(words(5_000)),)
    fitted = Reported(Tiered(Pieces(), Window(3_000), RULES)).fit(messages, (), None)
    size = Pieces().prompt(messages)
    assert fitted == Fitted(messages, compacted=Compacted(4, 0, 0, 0, size, size, 3_000))


def test_the_strategy_named_reported_makes_no_report_without_token_counts() -> None:
    class Uncounted:
        def fit(self, messages: tuple[Message, ...], *_: object) -> Fitted:
            return Fitted(messages)

    assert Reported(Uncounted()).fit(MESSAGES, (), None) == Fitted(MESSAGES)


def test_the_strategy_named_unshortened_sends_a_prompt_unchanged_or_raises_context_overflow() -> (
    None
):
    size = Pieces().prompt(LONG)
    fitted = Unshortened(Pieces(), Window(2 * size)).fit(LONG, (), None)
    assert fitted == Fitted(LONG, compacted=Compacted(0, 0, 0, 0, size, size, 2 * size))
    with pytest.raises(ContextOverflow, match=f"has {size} tokens, and compaction is disabled"):
        Unshortened(Pieces(), Window(3_000)).fit(LONG, (), None)
