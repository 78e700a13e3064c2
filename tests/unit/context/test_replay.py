from dataclasses import replace
from itertools import pairwise
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import structs

from proxy.context.budget import LEAST_ANSWER, Window
from proxy.context.compaction import Fitted
from proxy.context.replay import HistoryReplay, Rules, Sliding, Tiered
from proxy.context.shortening import TextCache, head_and_tail, with_content
from proxy.conversation.messages import Message, assistant_message, tool_result, user_message
from proxy.conversation.tools import ToolCall
from proxy.errors import ContextOverflow
from proxy.facts import Compacted
from proxy.guardrails.history_repair.history import heal_messages
from tests.examples import examples, mostly_deep
from tests.fakes.arrivals import is_linear
from tests.fakes.histories import history
from tests.unit.context.conversations import (
    FIXED,
    KEPT_TOOL,
    MATERIALS,
    RULES,
    TOKENIZERS,
    Pieces,
    Tokenized,
    agent_run,
    has_failed,
    raw_history,
    step,
    system_message,
    words,
)

QUESTION = user_message("Find it.")


def replay(messages: tuple[Message, ...], room: int, rules: Rules = RULES) -> HistoryReplay:
    replayed = HistoryReplay(rules, Pieces(), room, FIXED, texts=TextCache())
    for message in messages:
        replayed.add(message)
    replayed.settle()
    return replayed


def is_unchanged(replayed: HistoryReplay) -> bool:
    """Return whether no message was shortened or removed."""
    cuts = replayed.cuts
    return not (cuts.epoch or cuts.stubs or cuts.trims or cuts.folded or cuts.digest.size)


def steps(*numbers: int, length: int = 200) -> tuple[Message, ...]:
    return tuple(message for number in numbers for message in step(number, length))


def test_a_history_up_to_the_high_watermark_is_unchanged() -> None:
    messages = (QUESTION, *steps(*range(8)))
    size = Pieces().prompt(messages)
    rules = replace(RULES, high=1.0)
    assert is_unchanged(replay(messages, size, rules))
    assert replay(messages, size - 1, rules).cuts.epoch == 1


def test_results_are_cleared_from_the_oldest_until_the_low_watermark_is_reached() -> None:
    replayed = replay((QUESTION, *steps(*range(16))), 4_000)
    assert replayed.cuts.epoch == 1
    cleared = list(replayed.cuts.stubs)
    assert cleared == list(range(2, 2 + 2 * len(cleared), 2))
    sizes = [
        replay((QUESTION, *steps(*range(16))), 4_000, replace(RULES, low=low)).size
        for low in (0.7, 0.6, 0.5)
    ]
    assert sizes == sorted(sizes, reverse=True)


def test_the_results_of_the_latest_groups_of_calls_are_not_shortened() -> None:
    replayed = replay((QUESTION, *steps(*range(6), length=500)), 2_500)
    assert replayed.cuts.epoch
    assert not replayed.cuts.stubs.keys() & {8, 10, 12}
    assert not replayed.cuts.trims


@pytest.mark.parametrize("room", [3_000, 1_100])
def test_the_oldest_steps_are_folded_first(room: int) -> None:
    replayed = replay((QUESTION, *steps(*range(60))), room)
    folded = [unit.number for unit in replayed.cuts.folded]
    assert folded == list(range(len(folded)))
    assert len(folded) > 40


def test_results_of_never_clear_tools_are_never_shortened() -> None:
    tokens = step(90, 500, tool=KEPT_TOOL)
    replayed = replay((QUESTION, *tokens, *steps(*range(30))), 2_500)
    assert replayed.cuts.folded
    assert 2 not in replayed.cuts.stubs
    assert all(1 not in unit.indexes for unit in replayed.cuts.folded)


def test_a_group_of_calls_with_a_missing_result_is_not_shortened() -> None:
    calls = (ToolCall("a", "look", "{}"), ToolCall("b", "look", "{}"))
    waiting = (assistant_message("", calls), tool_result("a", words(400)))
    before = (QUESTION, *waiting, *steps(*range(20)))
    assert 2 not in replay(before, 3_000).cuts.stubs
    replayed = replay((*before, tool_result("b", "x"), *steps(*range(20, 40))), 3_000)
    assert any(1 in unit.indexes for unit in replayed.cuts.folded)


def test_short_results_are_not_replaced_by_stubs() -> None:
    replayed = replay((QUESTION, *steps(0, length=20), *steps(*range(1, 16))), 4_000)
    assert 2 not in replayed.cuts.stubs
    assert 4 in replayed.cuts.stubs


def test_units_shorter_than_their_digest_are_not_folded() -> None:
    chat = (QUESTION, assistant_message("Yes."), user_message("Go on."))
    replayed = replay((*chat, *step(0, 1_000, tool=KEPT_TOOL)), 1_000)
    assert replayed.size > 1_000
    assert is_unchanged(replayed)


def test_a_chat_without_tools_folds_its_oldest_messages() -> None:
    chat: tuple[Message, ...] = (QUESTION,)
    for _ in range(12):
        chat += (assistant_message(words(100)), user_message(words(30)))
    replayed = replay(chat, 1_500)
    assert [unit.indexes for unit in replayed.cuts.folded] == [
        [index] for index in range(1, 1 + len(replayed.cuts.folded))
    ]
    assert replayed.size <= 1_350


class RecordingCounts(Pieces):
    """Records the lengths of the counted texts."""

    def __init__(self) -> None:
        self.lengths: list[int] = []

    def of(self, message: Message) -> int:
        self.lengths.append(len(message.text))
        return super().of(message)


@pytest.mark.parametrize("doublings", [0, 3, 6, 9])
def test_halving_a_long_result_counts_no_text_much_longer_than_the_watermark(
    doublings: int,
) -> None:
    call, long = step(0, 1_500)
    result = tool_result("call_0", (long.text + "\n") * 2**doublings)
    counting = RecordingCounts()
    replayed = HistoryReplay(RULES, counting, 1_000, FIXED, texts=TextCache())
    for message in (QUESTION, call, result):
        replayed.add(message)
    replayed.settle()
    left = whole = Pieces().of(result)
    room = int(RULES.high * 1_000) - Pieces().prompt((QUESTION, call))
    trimmed = result
    while Pieces().of(trimmed) > room:
        limit = left // 2 - Pieces.overhead
        left = (left + 1) // 2
        trimmed = with_content(result, head_and_tail(result.text, limit, limit / whole))
    assert replayed.cuts.trims == {2: trimmed}
    lengths = {length for length in counting.lengths if length != len(result.text)}
    assert max(lengths) < 8 * 1_000 * 6


def test_the_longest_results_are_halved_until_the_history_fits() -> None:
    calls = tuple(ToolCall(name, "look", "{}") for name in "abc")
    results = [tool_result("a", words(900)), tool_result("b", words(300)), tool_result("c", "x")]
    replayed = replay((QUESTION, assistant_message("", calls), *results), 600)
    assert replayed.cuts.tier == 3
    assert replayed.cuts.trims.keys() == {2, 3}
    assert replayed.size <= 540
    tiny = replay((QUESTION, assistant_message("", calls), *results), 100)
    assert tiny.size > 100
    assert all(Pieces().of(trimmed) < 128 for trimmed in tiny.cuts.trims.values())


def test_settle_returns_false_if_two_user_messages_alone_exceed_the_room() -> None:
    replayed = replay((QUESTION, user_message(words(2_000))), 1_000)
    assert replayed.settle() is False
    assert is_unchanged(replayed)


class WrongCounts(Pieces):
    """Multiplies the counts of shortened texts by nine, like a very inaccurate estimate."""

    def of(self, message: Message) -> int:
        """Count a message."""
        return super().of(message) * (9 if "[" in message.text else 1)


def test_a_result_is_unchanged_if_its_replacement_has_more_tokens() -> None:
    messages = (QUESTION, *steps(*range(6), length=300))
    replayed = HistoryReplay(RULES, WrongCounts(), 1_000, FIXED, texts=TextCache())
    for message in messages:
        replayed.add(message)
    assert replayed.settle()
    assert not replayed.cuts.stubs
    assert replayed.cuts.trims.keys() <= {8, 10, 12}
    assert replayed.size < Pieces().prompt(messages)
    assert replayed.settle() is False


COUNTS = Pieces()
WRITTEN = TextCache()
MANY = settings(
    max_examples=max(examples(1_000), settings.default.max_examples if settings.default else 0),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
LONG_TAPES = st.integers(0, 2**32).map(lambda seed: Random(seed).randbytes(seed % 160))
TAPES = st.one_of(st.binary(max_size=100), LONG_TAPES, LONG_TAPES)
SLOTS = st.sampled_from([1_200, 1_800, 3_000, 6_000, 12_000])


def tiered(slot: int) -> Tiered:
    return Tiered(COUNTS, Window(slot), RULES)


def healed(tape: bytes) -> tuple[Message, ...]:
    return heal_messages(history(*raw_history(tape)))[0]


def fit_messages(messages: tuple[Message, ...], slot: int) -> tuple[Fitted, Compacted]:
    fitted = tiered(slot).fit(messages, (), None)
    assert fitted.compacted is not None
    return fitted, fitted.compacted


def sources(messages: tuple[Message, ...]) -> list[bytes]:
    return [message.source for message in messages]


def exempt(messages: tuple[Message, ...], tier: int) -> list[Message]:
    """List the messages that no cut of this tier may change."""
    users = [message for message in messages if message.role == "user"]
    tokens = [message for message in messages if message.role in ("system", "developer")]
    tokens += [*users[:1], *users[-1:]]
    groups: list[list[Message]] = []
    waiting: dict[str, list[list[Message]]] = {}
    for message in messages:
        if message.calls:
            groups.append([message])
            waiting.update((call.id, []) for call in message.calls)
            for call in message.calls:
                waiting[call.id].append(groups[-1])
        elif message.role == "tool":
            waiting[message.tool_call_id or ""].pop(0).append(message)
    for group in groups[-RULES.recent :]:
        tokens += group if tier < 3 else group[:1]
    for group in groups:
        tokens += group if any(call.name == KEPT_TOOL for call in group[0].calls) else ()
    return tokens


@MANY
@given(TAPES, SLOTS)
def test_any_history_is_shortened_to_a_valid_prompt_that_fits_the_window(
    tape: bytes, slot: int
) -> None:
    messages = healed(tape)
    try:
        fitted, compacted = fit_messages(messages, slot)
    except ContextOverflow:
        return
    sent = fitted.messages
    room = Window(slot).budget(None).room
    most = max(room, slot - LEAST_ANSWER)
    assert COUNTS.prompt(sent) == compacted.sent <= most
    assert compacted.client == COUNTS.prompt(messages)
    assert heal_messages(sent)[1] == ()  # each result has a call, and each call has a result
    if compacted.client <= RULES.high * room:
        assert sent is messages
    kept = {id(message) for message in sent}
    assert all(id(message) in kept for message in exempt(messages, compacted.tier))
    indexes = {id(message): index for index, message in enumerate(messages)}
    order = [indexes[id(message)] for message in sent if id(message) in indexes]
    assert order == sorted(order)
    again, _ = fit_messages(tuple(map(structs.replace, messages)), slot)
    assert sources(again.messages) == sources(sent)


@MANY
@given(TAPES, SLOTS, st.integers(0, 100))
def test_until_the_next_cut_appended_messages_change_no_earlier_part_of_the_prompt(
    tape: bytes, slot: int, share: int
) -> None:
    messages = healed(tape)
    replies = [index for index, message in enumerate(messages) if message.role == "assistant"]
    cut = replies[share * (len(replies) - 1) // 100] if replies else len(messages)
    before, after = messages[:cut], messages[cut:]
    try:
        (first, compacted), (second, later) = (
            fit_messages(before, slot),
            fit_messages(messages, slot),
        )
    except ContextOverflow:
        return
    if later.epoch == compacted.epoch:
        assert sources(second.messages) == sources(first.messages + after)
    room = Window(slot).budget(None).room
    stopping, direct = (HistoryReplay(RULES, COUNTS, room, FIXED, texts=WRITTEN) for _ in range(2))
    for message in before:
        stopping.add(message)
    stopping.settle()
    for message in after:
        stopping.add(message)
    for message in messages:
        direct.add(message)
    stopping.settle()
    direct.settle()
    assert (stopping.cuts, stopping.size) == (direct.cuts, direct.size)


def reuse(
    strategy: Tiered | Sliding, requests: list[tuple[Message, ...]], counts: Pieces = COUNTS
) -> tuple[float, int]:
    """Return the share of tokens that repeat the start of the previous prompt, and the breaks.

    A break is a prompt that does not continue the previous prompt. Whole messages are compared.
    """
    before: tuple[Message, ...] = ()
    total = reused = breaks = 0
    for request in requests:
        sent = strategy.fit(request, (), None).messages
        pairs = enumerate(zip(before, sent, strict=False))
        same = next((at for at, (left, other) in pairs if left.source != other.source), len(before))
        breaks += same < len(before)
        total += counts.prompt(sent)
        reused += counts.prompt(sent[:same]) if before else 0
        before = sent
    return reused / total, breaks


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_an_agent_run_reuses_the_prefix_cache(seed: int) -> None:
    requests = agent_run(50, seed)
    window = Window(19_051)  # the prompt may use 14,000 tokens
    room = window.budget(None).room
    assert 30 <= sum(COUNTS.prompt(request) > room for request in requests) <= 40
    share, breaks = reuse(Tiered(COUNTS, window, RULES), requests)
    sliding, _ = reuse(Sliding(COUNTS, window), requests)
    assert share >= 0.85
    assert breaks <= 8
    assert share >= sliding + 0.25


HEAD = (system_message("Be brief."), user_message("Find it."))


def run_of(count: int, length: int = 100, failure: str = "") -> tuple[Message, ...]:
    steps = (step(number, length, failure) for number in range(count))
    return HEAD + tuple(message for step in steps for message in step)


def test_a_prompt_below_the_high_watermark_is_returned_as_the_same_object() -> None:
    messages = run_of(9)
    fitted, compacted = fit_messages(messages, 3_000)
    assert fitted.messages is messages
    size = COUNTS.prompt(messages)
    assert compacted == Compacted(0, 0, 0, 0, size, size, 3_000)


def test_old_results_are_cleared_first_and_their_calls_are_kept() -> None:
    messages = run_of(16, 200)
    fitted, compacted = fit_messages(messages, 5_000)
    assert compacted.tier == 1
    assert compacted.folded == 0
    assert 0 < compacted.cleared <= 13
    assert fitted.messages[2::2] == messages[2::2]
    assert fitted.messages[-6:] == messages[-6:]
    assert fitted.messages[3].text.startswith("[cut, ")
    assert "look path:src/part_0" in fitted.messages[3].text


def test_failed_results_are_cleared_after_successful_results() -> None:
    messages = HEAD + step(0, 200, "Error: ") + run_of(15, 200)[2:]
    fitted, compacted = fit_messages(messages, 5_000)
    assert compacted.cleared
    assert fitted.messages[3] is messages[3]
    failed, compacted = fit_messages(run_of(8, 1_000, "Error: "), 11_050)
    assert (compacted.tier, compacted.epoch) == (1, 1)
    assert failed.messages[3].text.startswith("[cut, ")


def test_old_steps_are_folded_if_stubs_are_not_enough() -> None:
    messages = run_of(60)
    fitted, compacted = fit_messages(messages, 3_000)
    assert compacted.tier == 2
    assert compacted.folded
    note = fitted.messages[2]
    assert note.role == "user"
    assert "steps before these are left out" in note.text
    assert "- look path:src/part_" in note.text
    assert compacted.epoch > 1


def test_a_user_message_is_folded_only_if_there_is_a_later_user_message() -> None:
    question = user_message("Now the other one, please, and tell me more of it.")
    chat = HEAD + run_of(20)[2:] + (question,) + run_of(40)[2:]
    sent = fit_messages(chat, 3_000)[0].messages
    assert sent[2].text.startswith("[Note: earlier steps")
    assert question in sent[3:]
    later = (*chat, user_message("And now?"), *run_of(40)[2:])
    fitted, _ = fit_messages(later, 3_000)
    assert not any(message is question for message in fitted.messages)


def test_a_result_longer_than_the_window_loses_its_middle() -> None:
    messages = HEAD + step(0, 9_000)
    fitted, compacted = fit_messages(messages, 3_000)
    assert compacted.tier == 3
    assert "the middle of" in fitted.messages[3].text
    assert fitted.messages[3].text[:40] == messages[3].text[:40]
    assert fitted.messages[3].text[-40:] == messages[3].text[-40:]
    later, compacted = fit_messages(messages + run_of(12)[2:], 3_000)
    assert later.messages[3].text.startswith("[cut, ")
    assert compacted.tier == 1


def test_a_prompt_that_cannot_be_shortened_raises_context_overflow() -> None:
    messages = (*HEAD, user_message(words(4_000)))
    with pytest.raises(ContextOverflow) as caught:
        fit_messages(messages, 3_000)
    assert caught.value.prompt_tokens == COUNTS.prompt(messages)
    assert caught.value.window == 3_000


def test_a_prompt_that_cannot_be_shortened_may_use_the_reserve_for_the_answer() -> None:
    messages = (*HEAD, user_message(words(2_200)))
    fitted, compacted = fit_messages(messages, 3_000)
    assert fitted.messages is messages
    assert compacted.answer == 3_000 - COUNTS.prompt(messages) > LEAST_ANSWER
    assert fit_messages(run_of(9), 3_000)[1].answer is None


def test_a_compaction_is_marked_as_new_only_for_the_request_that_made_the_cut() -> None:
    made = [fit_messages(run_of(count), 3_000)[1] for count in range(3, 40)]
    for before, now in pairwise(made):
        assert now.is_new == (now.epoch > before.epoch)
    assert any(cut.is_new for cut in made)


FACTS = [
    (line, value)
    for number in range(5)
    for line, value in (
        (f"id: ord-{number}417", f"ord-{number}417"),
        (f"path: /srv/data/{number}/list.csv", f"/srv/data/{number}/list.csv"),
        (f'{{"orderId": "a7f-{number}", "url": "https://shop.test"}}', f"a7f-{number}"),
        (f"connection error code E10{number}2", f"E10{number}2"),
    )
]


def test_ids_and_paths_and_errors_remain_in_the_prompt_after_results_are_cleared() -> None:
    planted: tuple[Message, ...] = HEAD
    for number, (line, _) in enumerate(FACTS):
        called, result_ = step(number, 60)
        text = f"{words(150)}\n{line}\n{words(150)}"
        result = tool_result(result_.tool_call_id or "", text)
        planted += (called, result)
    failures = [f"E77{number} in /srv/logs/{number}.log" for number in range(20, 26)]
    for number, failure in enumerate(failures, 20):
        planted += step(number, 60, f"Error: {failure}\n")
    planted += run_of(40, 20)[-6:]
    fitted, compacted = fit_messages(planted, 7_300)
    assert compacted.tier == 1
    assert compacted.cleared >= 16
    cleared = [value for _, value in FACTS[: compacted.cleared]]
    sent = "\n".join(message.text for message in fitted.messages)
    assert sum(value in sent for value in cleared) >= 0.9 * len(cleared)
    assert all(failure in sent for failure in failures)
    assert [message.calls for message in fitted.messages] == [message.calls for message in planted]


def test_shortening_takes_time_linear_in_the_history() -> None:
    strategy = replace(tiered(19_051), rules=replace(RULES, has_failed=has_failed))

    def work(text: str) -> Fitted:
        return strategy.fit(run_of(len(text)), (), None)

    assert is_linear(work, lambda size: "x" * size, 400)


def least(counts: Tokenized, messages: tuple[Message, ...], room: int) -> int:
    """Return the tokens of a history after every allowed cut, plus a quarter of the room."""
    tokens = {id(message): counts.of(message) for message in exempt(messages, 3)}
    results = RULES.recent * (128 + counts.of(user_message("the middle of it is left out " * 3)))
    return FIXED + sum(tokens.values()) + results + room // 4


@settings(max_examples=examples(60), deadline=None)
@given(
    st.sampled_from(sorted(TOKENIZERS)),
    st.lists(st.sampled_from(sorted(MATERIALS)), min_size=1, max_size=3),
    st.integers(0, 2**16),
    st.sampled_from([2_400, 6_000, 14_336]),
)
def test_prompts_fit_the_window_for_any_tokenizer(
    tokenizer: str, materials: list[str], seed: int, slot: int
) -> None:
    counts = Tokenized(TOKENIZERS[tokenizer])
    random = Random(seed)
    strategy = Tiered(counts, Window(slot), RULES)
    messages: tuple[Message, ...] = HEAD
    budget = Window(slot).budget(None)
    for number in range(12):
        called, result_ = step(number, 0)
        text = MATERIALS[random.choice(materials)] * random.randint(1, 40)
        messages += (called, tool_result(result_.tool_call_id or "", text))
        try:
            fitted = strategy.fit(messages, (), None)
        except ContextOverflow:
            assert least(counts, messages, budget.room) > budget.room
            continue
        assert fitted.compacted is not None
        assert counts.prompt(fitted.messages) == fitted.compacted.sent <= budget.most
        if fitted.compacted.sent > budget.room:
            assert least(counts, messages, budget.room) > budget.room


@pytest.mark.parametrize("tokenizer", mostly_deep(sorted(TOKENIZERS)))
@pytest.mark.parametrize("material", sorted(MATERIALS))
def test_fifty_steps_need_at_most_eight_cuts_for_any_tokenizer(
    tokenizer: str, material: str
) -> None:
    counts = Tokenized(TOKENIZERS[tokenizer])
    line = MATERIALS[material]
    per_line = counts.of(user_message(line)) - counts.overhead
    requests: list[tuple[Message, ...]] = [HEAD]
    for number, tokens in enumerate(Random(7).choices(range(150, 900), k=50)):
        called, result_ = step(number, 0)
        text_ = f"record {number} of PAY-{number}417\n{line * (tokens // per_line)}"
        result = tool_result(result_.tool_call_id or "", text_)
        requests.append((*requests[-1], called, result))
    share, breaks = reuse(Tiered(counts, Window(14_336), RULES), requests, counts)
    assert share >= 0.85
    assert 1 <= breaks <= 8


SLIDING = Sliding(Pieces(), Window(3_000))
STEPS = tuple(message for number in range(30) for message in step(number, 100))


def test_the_strategy_sliding_does_not_change_a_prompt_that_fits() -> None:
    messages = HEAD + STEPS[:10]
    fitted = SLIDING.fit(messages, (), None)
    assert fitted.messages is messages
    size = Pieces().prompt(messages)
    assert fitted.compacted == Compacted(0, 0, 0, 0, size, size, 3_000)


def test_the_strategy_sliding_drops_the_oldest_steps_but_not_the_last_user_message() -> None:
    question = user_message("And now?")
    fitted = SLIDING.fit((*HEAD, question, *STEPS), (), None)
    left = len(fitted.messages) - 3
    assert fitted.messages == (*HEAD, question, *STEPS[-left:])
    assert fitted.compacted is not None
    assert fitted.compacted.sent == Pieces().prompt(fitted.messages) <= 1_962
    assert fitted.compacted.folded == 30 - left // 2


def test_the_strategy_sliding_never_drops_the_last_step() -> None:
    with pytest.raises(ContextOverflow):
        SLIDING.fit((*HEAD, *STEPS, *step(30, 3_000)), (), None)
    with pytest.raises(ContextOverflow):
        SLIDING.fit((user_message(words(3_000)),), (), None)
