from random import Random

import pytest

from proxy.context.message_sizes import countable
from proxy.context.rough_tokens import count_rough_tokens
from proxy.context.tokens import KnownPromptTotals, TokenBook
from proxy.conversation import json
from proxy.conversation.messages import Message, tool_result, user_message
from proxy.conversation.tools import Tool
from tests.unit.context.conversations import agent_run, system_message, words

ONE, TWO, THREE = map(user_message, ("one", "two", "three"))
TOOLS_KEY = 7


def test_the_method_longest_returns_the_total_of_the_longest_known_prefix() -> None:
    totals = KnownPromptTotals()
    totals.note((ONE,), TOOLS_KEY, 10)
    totals.note((ONE, TWO), TOOLS_KEY, 20)
    assert totals.longest((ONE, TWO, THREE), TOOLS_KEY) == (2, 20)
    assert totals.longest((ONE, TWO), TOOLS_KEY) == (2, 20)
    assert totals.longest((user_message("one"), THREE), TOOLS_KEY) == (1, 10)


def test_the_method_longest_returns_none_for_a_prompt_with_another_beginning() -> None:
    totals = KnownPromptTotals()
    totals.note((ONE, TWO), TOOLS_KEY, 20)
    assert totals.longest((TWO, ONE), TOOLS_KEY) is None
    assert totals.longest((ONE,), TOOLS_KEY) is None
    assert totals.longest((ONE, TWO), TOOLS_KEY + 1) is None
    assert totals.longest((), TOOLS_KEY) is None


def test_only_totals_of_the_latest_prompts_are_stored() -> None:
    totals = KnownPromptTotals(capacity=2)
    totals.note((ONE,), TOOLS_KEY, 10)
    totals.note((TWO,), TOOLS_KEY, 20)
    totals.note((ONE,), TOOLS_KEY, 11)
    totals.note((THREE,), TOOLS_KEY, 30)
    assert totals.longest((ONE,), TOOLS_KEY) == (1, 11)
    assert totals.longest((TWO,), TOOLS_KEY) is None


TOOLS = (Tool("look", True, json.dump({"name": "look", "description": words(40)})),)
HI = user_message("Hi")
LONG = user_message(words(500))


def rendered(messages: tuple[Message, ...]) -> int:
    """Return the tokens of a prompt as a backend counts them, with the marks of its template."""
    overheads = {"system": 5, "user": 5, "assistant": 6, "tool": 9}
    total = sum(
        count_rough_tokens(countable(message)) + overheads[message.role] for message in messages
    )
    calls = sum(7 * len(message.calls) for message in messages)
    return total + calls + 180


def learn_all(messages: tuple[Message, ...], book: TokenBook) -> TokenBook:
    for message in messages:
        book.learn(message, count_rough_tokens(countable(message)))
    return book


def test_a_learned_token_count_is_used_unchanged() -> None:
    book = TokenBook()
    book.learn(HI, 17)
    assert book.of(user_message("Hi")) == 17 + book.overhead


def test_unknown_messages_are_estimated_with_a_margin() -> None:
    book = TokenBook()
    size = count_rough_tokens(LONG.text)
    assert 1.09 * size <= book.of(LONG) - book.overhead <= 1.11 * size


def test_counted_messages_calibrate_the_estimates_of_other_messages() -> None:
    book = TokenBook()
    other = user_message(words(400))
    learn_all((LONG,), book)
    exact = count_rough_tokens(other.text)
    assert exact <= book.of(other) - book.overhead <= 1.17 * exact


def test_the_least_recently_used_count_is_evicted() -> None:
    book = TokenBook(capacity=2)
    messages = [user_message(text) for text in ("one", "two", "three")]
    book.learn(messages[0], 100)
    book.learn(messages[1], 200)
    assert book.of(messages[0]) > 100
    book.learn(messages[2], 300)
    assert [book.of(message) >= 100 for message in messages] == [True, False, True]


def test_totals_calibrate_the_estimates_if_no_message_was_counted() -> None:
    book = TokenBook()
    for request in agent_run(12, 1):
        book.calibrate(request, TOOLS, rendered(request))
    request = agent_run(12, 2)[-1]
    exact = rendered(request)
    assert exact <= book.estimate(request, TOOLS) <= 1.25 * exact


def test_the_tokens_of_tools_are_learned_from_a_total_and_reused() -> None:
    book = learn_all((HI,), TokenBook())
    assert not book.knows(TOOLS)
    book.calibrate((HI,), TOOLS, 801)
    assert book.knows(TOOLS)
    assert not book.knows(())
    fixed = book.count_besides(TOOLS)
    assert fixed == 800 - book.overhead
    book.calibrate((HI, LONG), TOOLS, 1 + fixed + 2 * book.overhead + len(LONG.text) // 4)
    assert book.count_besides(TOOLS) == fixed
    exact = len(LONG.text) // 4
    assert exact <= book.of(LONG) - book.overhead <= 1.17 * exact


def test_the_tokens_of_tools_are_estimated_until_a_total_is_known() -> None:
    book = TokenBook()
    assert book.count_besides(TOOLS) > book.count_besides(()) == 64


@pytest.mark.deep
@pytest.mark.parametrize("seed", [1, 2])
def test_with_learned_counts_an_estimate_is_off_by_at_most_two_percent(seed: int) -> None:
    book = TokenBook()
    random = Random(seed)
    wrong: list[float] = []
    for number in range(60):
        run = agent_run(random.randrange(5, 50), seed * 100 + number)[-1]
        learn_all(book.unknown(run), book)
        exact = rendered(run)
        if number >= 5:
            wrong.append(abs(book.estimate(run, TOOLS) - exact) / exact)
        book.calibrate(run, TOOLS, exact)
    assert max(wrong) <= 0.02


def test_only_one_of_two_equal_messages_is_listed_as_unknown() -> None:
    book = TokenBook()
    first, other = user_message("one"), user_message("another")
    again = user_message("one")
    assert book.unknown((first, other, again)) == (again, other)
    book.learn(first, 3)
    assert book.unknown((first, other, again)) == (other,)


def test_a_partly_counted_prompt_does_not_change_the_constants() -> None:
    """Otherwise the error of an estimated message would count as overhead of the template."""
    book = TokenBook()
    counted, guessed = user_message("word " * 300), user_message("a few words")
    book.learn(counted, 300)
    before = book.overhead, book.count_besides(())
    for count in range(1, 40):
        book.calibrate((counted, *[guessed] * count), (), 5_000)
    assert (book.overhead, book.count_besides(())) == before
    book.calibrate((counted,), (), 340)
    assert book.knows(())


def test_each_uncounted_message_is_listed_as_unknown_once() -> None:
    messages = (system_message("Be brief."), HI, tool_result("a", "seen"))
    assert set(TokenBook().unknown(messages)) == set(messages)
    assert TokenBook().unknown(()) == ()


def test_the_estimate_of_a_continued_prompt_is_nearly_exact() -> None:
    """The backend has no endpoint that counts tokens, so only totals are known."""
    book = TokenBook()
    *requests, last = agent_run(30, 3)
    wrong: list[float] = []
    for number, request in enumerate(requests):
        if number >= 3:
            exact = rendered(request)
            wrong.append(abs(book.estimate(request, TOOLS) - exact) / exact)
        book.calibrate(request, TOOLS, rendered(request))
    assert max(wrong) <= 0.02
    expected = book.expect(last, TOOLS)
    assert 0 < expected.guessed < 0.3 * expected.tokens
    assert expected.tokens < expected.most < 1.05 * expected.tokens


def test_all_tokens_of_an_unknown_prompt_are_estimated() -> None:
    expected = TokenBook().expect((LONG,), TOOLS)
    assert expected.tokens - 10 <= expected.guessed <= expected.tokens
    known = learn_all((LONG,), TokenBook())
    known.calibrate((LONG,), TOOLS, 700)
    assert known.expect((LONG,), TOOLS).guessed == 0
    assert known.estimate((LONG,), TOOLS) == 700


WINDOW = 4_000


def calibrated() -> TokenBook:
    """Return a book that has learned that each rough token is one token."""
    book = TokenBook()
    for size in (300, 600, 900):
        message = user_message(words(size))
        assert book.observe_total((message,), (), count_rough_tokens(message.text), WINDOW) is None
    return book


def message_of(count: int) -> Message:
    return user_message("word, " * (count // 2))


def test_a_prompt_count_far_below_the_estimate_means_truncation() -> None:
    missing = calibrated().observe_total((message_of(9_000),), (), 3_900, WINDOW)
    assert missing is not None
    assert 8_000 <= missing <= 10_000
    assert calibrated().observe_total((message_of(3_200),), (), 1_200, WINDOW) == WINDOW + 1


@pytest.mark.parametrize("total", [1_900, 3_900, 4_000, 9_000])
def test_a_total_of_more_than_half_the_estimate_does_not_mean_truncation(total: int) -> None:
    assert calibrated().observe_total((message_of(3_500),), (), total, WINDOW) is None


def test_a_truncated_prompt_does_not_change_the_estimates() -> None:
    book = calibrated()
    before = book.of(LONG)
    assert book.observe_total((message_of(9_000),), (), 3_900, WINDOW) is not None
    # this prompt may have been read completely
    assert book.observe_total((message_of(6_000),), (), 3_900, WINDOW) is None
    assert book.of(LONG) == before


def test_images_and_reasoning_do_not_make_a_prompt_look_truncated() -> None:
    """Most templates drop reasoning, and the number of tokens of an image is unknown."""
    picture = Message("user", "", b'{"type":"image_url","image_url":{}}' * 9)
    source = json.dump({"role": "assistant", "content": "", "reasoning_content": "word, " * 4_500})
    thought = Message("assistant", "", source)
    assert (
        calibrated().observe_total((message_of(900), picture, thought), (), 1_000, WINDOW) is None
    )


def test_before_calibration_only_impossible_totals_mean_truncation() -> None:
    assert TokenBook().observe_total((message_of(7_000),), (), 3_900, WINDOW) is None
    assert TokenBook().observe_total((message_of(10_000),), (), 3_900, WINDOW) is not None


def test_equally_small_totals_for_all_prompts_do_not_mean_truncation() -> None:
    book = calibrated()
    before = book.of(LONG)
    assert book.observe_total((message_of(1_000),), (), 90, WINDOW) is None
    assert book.observe_total((message_of(8_000),), (), 90, WINDOW) is None
    assert book.of(LONG) == before


def test_no_truncation_is_reported_if_messages_were_counted() -> None:
    book = learn_all((LONG,), TokenBook())
    assert book.observe_total((message_of(10_000),), (), 3_900, WINDOW) is None


def test_messages_estimated_within_a_block_of_note_guesses_are_collected() -> None:
    book = learn_all((HI,), TokenBook())
    book.of(LONG)
    with book.note_guesses() as guessed:
        book.of(HI)
        book.of(LONG)
    book.of(user_message("Later"))
    assert guessed == [LONG]


def test_a_rejected_prompt_raises_the_count_error() -> None:
    book = learn_all((HI, LONG), TokenBook())
    book.calibrate((HI, LONG), (), 600)
    counted = book.count_besides(()) + book.of(HI) + book.of(LONG)
    book.refuse((HI, LONG), (), 606, 590)
    assert book.count_error * counted >= 606
    assert book.count_error < 1.12
    book.observe_total((HI, LONG), (), 600, WINDOW)
    assert book.count_error * counted >= 606
    book.refuse((HI, LONG), (), 1_200, 590)
    book.observe_total((HI, LONG), (), 600, WINDOW)
    assert book.count_error < 1.12


def test_a_prompt_rejected_without_a_token_count_is_assumed_to_exceed_the_window() -> None:
    book = learn_all((LONG,), TokenBook())
    book.refuse((LONG,), (), None, WINDOW)
    assert book.count_error * (book.count_besides(()) + book.of(LONG)) > WINDOW
    silent = learn_all((LONG,), TokenBook())
    silent.refuse((LONG,), (), None, None)
    assert silent.count_error == 1


def test_a_rejection_with_a_token_count_changes_the_rate_but_not_the_count_error() -> None:
    book = TokenBook()
    book.refuse((LONG,), (), 4 * count_rough_tokens(LONG.text), 1_500)
    assert book.of(LONG) >= 4 * count_rough_tokens(LONG.text)
    assert book.count_error <= 1.05


def test_tokens_can_be_guessed_after_a_rate_was_learned() -> None:
    assert not learn_all((HI,), TokenBook()).can_guess
    assert learn_all((LONG,), TokenBook()).can_guess


def test_the_lower_bound_includes_an_eighth_of_the_estimated_tokens() -> None:
    expected = learn_all((HI,), TokenBook()).expect((HI, LONG), ())
    assert 0 < expected.guessed < expected.tokens < expected.most
    assert expected.least == expected.tokens - expected.guessed * 7 // 8


def test_an_exact_total_lowers_the_count_error() -> None:
    book = learn_all((LONG,), TokenBook())
    book.refuse((LONG,), (), None, WINDOW)
    first, counted = book.count_error, book.count_besides(()) + book.of(LONG)
    book.count_whole((LONG,), (), counted)
    assert book.count_error < first
