"""Replies that quote a call or copy one from a tool result, and answers that must not change."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec.structs import replace as replace_struct

from proxy.conversation import json
from proxy.conversation.replies import ToolCalled
from proxy.facts import RejectedReply
from proxy.guardrails.offer import TextPolicy
from proxy.inference.plan import Policy
from proxy.inference.turn import TurnState
from tests.corpus.cases import PARIS, Case, after_user, ask, outcome, outcomes
from tests.corpus.quotations import beside_words, in_markup, quotations, traps
from tests.examples import PROFILE
from tests.fakes.playbook import Playbook, call, write

ALL = PROFILE != "quick"
STAY = Path(__file__).with_name("must_stay") / "answers.txt"


def promoted(case: Case) -> bool:
    played = replace(case, policy=TextPolicy.AUTO)
    return outcome(played, [played.reply]).calls != ()


def test_a_random_quotation_of_a_call_is_never_returned_as_a_call() -> None:
    replies = [case.reply for case in quotations(5_000 if ALL else 100, seed=26) if promoted(case)]
    assert replies == []


@pytest.mark.parametrize(("cases", "steps"), [(in_markup, (1, 19)), (beside_words, (5, 67))])
def test_a_call_quoted_with_any_markup_or_phrase_is_never_returned_as_a_call(
    cases: Callable[[int], Iterator[Case]], steps: tuple[int, int]
) -> None:
    replies = [case.reply for case in cases(steps[0] if ALL else steps[1]) if promoted(case)]
    assert replies == []


def test_a_call_copied_from_a_tool_result_is_never_returned_as_a_call() -> None:
    replies = [case.reply for case in traps(2_000 if ALL else 60, seed=29) if promoted(case)]
    assert replies == []


def test_a_copied_call_is_neither_quoted_in_the_nudge_nor_accepted_in_the_retry() -> None:
    count = 0
    for case in traps(2_000 if ALL else 60, seed=29):
        for streams in (False, True):
            request = replace_struct(case.request, stream=streams)
            book = Playbook.of(request, Policy(text_policy=TextPolicy.AUTO)).ask()
            write(book, case.reply)
            book.shown.clear()
            if book.turn.state is not TurnState.ASKING:
                continue
            book.ask()
            count += 1
            assert book.upstream_request is not None
            appended = book.upstream_request.messages[len(request.messages) :]
            assert not any("Paris" in message.text for message in appended), case.reply
            call(book, PARIS[0], json.dump_text(PARIS[1]))
            assert not any(isinstance(event, ToolCalled) for event in book.shown), case.reply
    assert count > 0


def test_quoted_and_copied_calls_have_the_same_result_in_any_chunking() -> None:
    for case in (*quotations(140 if ALL else 40, seed=1), *traps(70 if ALL else 20, seed=2)):
        whole, *pieces = outcomes(replace(case, policy=TextPolicy.AUTO))
        assert all(piece == whole for piece in pieces), case.reply


def must_stay() -> list[Case]:
    """Read the listed answers; before an answer, a line with @ may give the user message."""
    _, *entries = f"\n{STAY.read_text(encoding='utf-8')}".split("\n=== ")
    return [_read(*entry.partition("\n")) for entry in entries]


def _read(title: str, _: str, text: str) -> Case:
    request = ask()
    if text.startswith("@ "):
        name, _, text = text[2:].partition("\n")
        request = after_user(name)
    text = text.removesuffix("\n")
    return Case(title, text, request, policy=TextPolicy.AUTO, text=text)


@pytest.mark.parametrize("case", must_stay(), ids=lambda case: case.title)
def test_a_listed_answer_is_returned_unchanged_without_a_retry(case: Case) -> None:
    for result in outcomes(case):
        assert result.calls == ()
        assert result.text == case.text
        assert not any(isinstance(fact, RejectedReply) for fact in result.facts)
