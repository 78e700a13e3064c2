import pytest

from proxy.context.budget import Window
from proxy.context.sliding import Sliding
from proxy.conversation.messages import user_message
from proxy.errors import ContextOverflow
from proxy.facts import Compacted
from tests.unit.context.conversations import Pieces, step, system_message, words

SLIDING = Sliding(Pieces(), Window(3_000))
HEAD = (system_message("Be brief."), user_message("Find it."))
STEPS = tuple(message for number in range(30) for message in step(number, 100))


def test_what_fits_is_left_alone() -> None:
    messages = HEAD + STEPS[:10]
    fitted = SLIDING.fit(messages, (), None)
    assert fitted.messages is messages
    size = Pieces().prompt(messages)
    assert fitted.compacted == Compacted(0, 0, 0, 0, size, size, 3_000)


def test_the_oldest_steps_are_dropped_and_questions_stay() -> None:
    question = user_message("And now?")
    fitted = SLIDING.fit((*HEAD, question, *STEPS), (), None)
    left = len(fitted.messages) - 3
    assert fitted.messages == (*HEAD, question, *STEPS[-left:])
    assert fitted.compacted is not None
    assert fitted.compacted.sent == Pieces().prompt(fitted.messages) <= 1_962
    assert fitted.compacted.folded == 30 - left // 2


def test_the_last_step_is_never_dropped() -> None:
    with pytest.raises(ContextOverflow):
        SLIDING.fit((*HEAD, *STEPS, *step(30, 3_000)), (), None)
    with pytest.raises(ContextOverflow):
        SLIDING.fit((user_message(words(3_000)),), (), None)
