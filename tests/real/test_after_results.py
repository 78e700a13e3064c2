"""Replies after a successful call: the failures of small models that users must not see.

`conversations` has the histories; docs/guides/real-models.md describes the failures.
"""

import re

import pytest

from benchmarks.real.judging import APOLOGY, call_key, exposed_markup, identical_calls
from proxy.conversation import json
from tests.real.conftest import LiveTemper
from tests.real.conversations import CONVERSATIONS, TOOL_NAMES, Conversation
from tests.real.models import RealModel

MOST_GENERATIONS = 3
MOST_COPIES = 3  # generation stops at the third copy of a call
_WORD = re.compile(r"[^\W\d_]{2,}")


@pytest.mark.parametrize("conversation", CONVERSATIONS, ids=lambda conversation: conversation.id)
def test_after_tool_results_the_user_gets_text_or_a_new_call(
    temper: LiveTemper, model: RealModel, conversation: Conversation, stream: bool
) -> None:
    if not model.calls_tools:
        pytest.skip("the template of this model has no tools")
    answer = temper.ask(conversation.messages(), stream=stream)
    done = {call_key(step.name, step.arguments) for step in conversation.steps}
    results = [json.dump_text(step.result) for step in conversation.steps]

    calls = [call_key(name, arguments) for name, arguments in answer.calls]
    assert [key for key in calls if key in done] == [], answer.written
    assert len({*calls}) == len(calls), answer.written
    assert exposed_markup(answer.text, TOOL_NAMES, results) == (), answer.written
    assert calls or _WORD.search(answer.text), answer.written
    assert APOLOGY not in answer.text, answer.written
    assert len(answer.generations) <= MOST_GENERATIONS, answer.written
    copies = [identical_calls(pieces, TOOL_NAMES) for pieces in answer.generations]
    assert max(copies) <= MOST_COPIES, answer.written
