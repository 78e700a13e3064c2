from dataclasses import replace

import pytest

from proxy.context.replay import HistoryReplay, Rules
from proxy.context.shortening import TextCache, head_and_tail, with_content
from proxy.conversation.messages import Message, assistant_message, tool_result, user_message
from proxy.conversation.tools import ToolCall
from tests.unit.context.conversations import FIXED, KEPT_TOOL, RULES, Pieces, step, words

QUESTION = user_message("Find it.")


def replay(messages: tuple[Message, ...], room: int, rules: Rules = RULES) -> HistoryReplay:
    walked = HistoryReplay(rules, Pieces(), room, FIXED, texts=TextCache())
    for message in messages:
        walked.add(message)
    walked.settle()
    return walked


def is_whole(walked: HistoryReplay) -> bool:
    """Tell whether nothing was given up."""
    cuts = walked.cuts
    return not (cuts.epoch or cuts.stubs or cuts.trims or cuts.folded or cuts.digest.size)


def steps(*numbers: int, length: int = 200) -> tuple[Message, ...]:
    return tuple(message for number in numbers for message in step(number, length))


def test_up_to_the_high_watermark_nothing_happens() -> None:
    messages = (QUESTION, *steps(*range(8)))
    size = Pieces().prompt(messages)
    rules = replace(RULES, high=1.0)
    assert is_whole(replay(messages, size, rules))
    assert replay(messages, size - 1, rules).cuts.epoch == 1


def test_a_cut_goes_down_to_the_low_watermark_and_no_further() -> None:
    walked = replay((QUESTION, *steps(*range(16))), 4_000)
    assert walked.cuts.epoch == 1
    cleared = list(walked.cuts.stubs)
    assert cleared == list(range(2, 2 + 2 * len(cleared), 2))
    sizes = [
        replay((QUESTION, *steps(*range(16))), 4_000, replace(RULES, low=low)).size
        for low in (0.7, 0.6, 0.5)
    ]
    assert sizes == sorted(sizes, reverse=True)


def test_the_latest_groups_stay() -> None:
    walked = replay((QUESTION, *steps(*range(6), length=500)), 2_500)
    assert walked.cuts.epoch
    assert not walked.cuts.stubs.keys() & {8, 10, 12}
    assert not walked.cuts.trims


@pytest.mark.parametrize("room", [3_000, 1_100])
def test_the_oldest_steps_fold_first(room: int) -> None:
    walked = replay((QUESTION, *steps(*range(60))), room)
    folded = [unit.number for unit in walked.cuts.folded]
    assert folded == list(range(len(folded)))
    assert len(folded) > 40


def test_groups_of_spared_tools_stay_even_when_nothing_else_helps() -> None:
    spared = step(90, 500, tool=KEPT_TOOL)
    walked = replay((QUESTION, *spared, *steps(*range(30))), 2_500)
    assert walked.cuts.folded
    assert 2 not in walked.cuts.stubs
    assert all(1 not in unit.places for unit in walked.cuts.folded)


def test_a_group_that_waits_for_a_result_stays_until_it_has_come() -> None:
    calls = (ToolCall("a", "look", "{}"), ToolCall("b", "look", "{}"))
    waiting = (assistant_message("", calls), tool_result("a", words(400)))
    before = (QUESTION, *waiting, *steps(*range(20)))
    assert 2 not in replay(before, 3_000).cuts.stubs
    walked = replay((*before, tool_result("b", "x"), *steps(*range(20, 40))), 3_000)
    assert any(1 in unit.places for unit in walked.cuts.folded)


def test_short_results_are_not_worth_a_stub() -> None:
    walked = replay((QUESTION, *steps(0, length=20), *steps(*range(1, 16))), 4_000)
    assert 2 not in walked.cuts.stubs
    assert 4 in walked.cuts.stubs


def test_a_digest_of_next_to_nothing_is_not_made() -> None:
    chat = (QUESTION, assistant_message("Yes."), user_message("Go on."))
    walked = replay((*chat, *step(0, 1_000, tool=KEPT_TOOL)), 1_000)
    assert walked.size > 1_000
    assert is_whole(walked)


def test_a_chat_without_tools_folds_its_oldest_messages() -> None:
    chat: tuple[Message, ...] = (QUESTION,)
    for _ in range(12):
        chat += (assistant_message(words(100)), user_message(words(30)))
    walked = replay(chat, 1_500)
    assert [unit.places for unit in walked.cuts.folded] == [
        [place] for place in range(1, 1 + len(walked.cuts.folded))
    ]
    assert walked.size <= 1_350


class Heard(Pieces):
    """Remembers how long the texts are that it counts."""

    def __init__(self) -> None:
        self.lengths: list[int] = []

    def of(self, message: Message) -> int:
        self.lengths.append(len(message.text))
        return super().of(message)


@pytest.mark.parametrize("doublings", [0, 3, 6, 9])
def test_a_result_of_many_windows_ends_as_if_every_half_of_it_were_written(doublings: int) -> None:
    call, long = step(0, 1_500)
    result = tool_result("call_0", (long.text + "\n") * 2**doublings)
    heard = Heard()
    walked = HistoryReplay(RULES, heard, 1_000, FIXED, texts=TextCache())
    for message in (QUESTION, call, result):
        walked.add(message)
    walked.settle()
    left = whole = Pieces().of(result)
    room = int(RULES.high * 1_000) - Pieces().prompt((QUESTION, call))
    trimmed = result
    while Pieces().of(trimmed) > room:
        limit = left // 2 - Pieces.overhead
        left = (left + 1) // 2
        trimmed = with_content(result, head_and_tail(result.text, limit, limit / whole))
    assert walked.cuts.trims == {2: trimmed}
    lengths = {length for length in heard.lengths if length != len(result.text)}
    assert max(lengths) < 8 * 1_000 * 6


def test_the_longest_results_are_halved_until_all_fits() -> None:
    calls = tuple(ToolCall(name, "look", "{}") for name in "abc")
    results = [tool_result("a", words(900)), tool_result("b", words(300)), tool_result("c", "x")]
    walked = replay((QUESTION, assistant_message("", calls), *results), 600)
    assert walked.cuts.tier == 3
    assert walked.cuts.trims.keys() == {2, 3}
    assert walked.size <= 540
    tiny = replay((QUESTION, assistant_message("", calls), *results), 100)
    assert tiny.size > 100
    assert all(Pieces().of(trimmed) < 128 for trimmed in tiny.cuts.trims.values())


def test_a_cut_that_could_change_nothing_is_none() -> None:
    walked = replay((QUESTION, user_message(words(2_000))), 1_000)
    assert walked.settle() is False
    assert is_whole(walked)


class Guesses(Pieces):
    """Counts what was written here as far too long, as a guess may do."""

    def of(self, message: Message) -> int:
        """Count a message."""
        return super().of(message) * (9 if "[" in message.text else 1)


def test_what_would_not_become_shorter_stays_as_it_is() -> None:
    messages = (QUESTION, *steps(*range(6), length=300))
    walked = HistoryReplay(RULES, Guesses(), 1_000, FIXED, texts=TextCache())
    for message in messages:
        walked.add(message)
    assert walked.settle()
    assert not walked.cuts.stubs
    assert walked.cuts.trims.keys() <= {8, 10, 12}
    assert walked.size < Pieces().prompt(messages)
    assert walked.settle() is False
