"""`python -m benchmarks.compaction`: how long compaction takes, and how that grows with a history.

An agent's run, made up from a seed, everything counted before, as when Temper decides. Figures
are processor time of the fastest of many: of a turn whose cuts were made in earlier ones, and of
the first turn, which writes all that stands in place of old messages.
"""

import argparse
import json as standard_json
import random
import sys
import time
from collections.abc import Callable, Sequence

from proxy.context.budget import Window
from proxy.context.message_sizes import countable
from proxy.context.replay import Rules, Tiered
from proxy.context.rough_tokens import count_rough_tokens
from proxy.context.shortening import TextCache
from proxy.context.tokens import TokenBook
from proxy.conversation.failures import has_failed
from proxy.conversation.messages import Message, assistant_message, tool_result, user_message
from proxy.conversation.tools import ToolCall

GOAL_MS, GOAL_MESSAGES, GOAL_GROWTH = 10.0, 2_000, 2.5
WORDS = ["the", "old", "file", "has", "a", "line", "with", "some", "more", "text", "about", "it"]
_SYSTEM_WORDS, _ANSWER_TOKENS = 2_000, 512


def history(messages: int, seed: int) -> tuple[Message, ...]:
    """Make an agent's history of so many messages; results are of 40 to 2,000 words."""
    chance = random.Random(seed)  # noqa: S311 - material, not secrets
    made = [user_message(" ".join(WORDS * (_SYSTEM_WORDS // len(WORDS))))]
    while len(made) < messages:
        number = len(made)
        arguments = standard_json.dumps({"path": f"src/part_{number}.py"})
        call = ToolCall(f"call_{number}", "look", arguments)
        count = min(max(int(chance.lognormvariate(6.1, 0.7)), 40), 2_000)
        words = " ".join(chance.choices(WORDS, k=count))
        text = f"Error: none of it\n{words}" if chance.random() < 0.1 else words
        made += [assistant_message("", (call,)), tool_result(call.id, text)]
    return tuple(made)


def counted(messages: Sequence[Message]) -> TokenBook:
    """Return the counts of all messages."""
    book = TokenBook()
    count_all(messages, book)
    return book


def count_all(messages: Sequence[Message], book: TokenBook) -> None:
    """Count messages as a backend does, with a token for each piece."""
    for message in messages:
        book.learn(message, count_rough_tokens(countable(message)))


def fastest(work: Callable[[], object], times: int) -> float:
    """Return the processor time of the fastest run, in ms."""
    taken: list[float] = []
    for _ in range(times):
        began = time.process_time()
        work()
        taken.append(time.process_time() - began)
    return min(taken) * 1e3


def measure(size: int, window: int, seed: int, times: int) -> tuple[float, float]:
    """Return what a later and the first turn take, in ms."""
    messages = history(size, seed)
    book, rules = counted(messages), Rules(has_failed)
    known = Tiered(book, Window(window), rules, TextCache())
    is_settled = False
    while not is_settled:  # what is counted may move the cuts, which then write something else
        with book.note_guesses() as guessed:
            known.fit(messages, (), _ANSWER_TOKENS)
        count_all(guessed, book)
        is_settled = not guessed

    def first() -> None:
        Tiered(book, Window(window), rules, TextCache()).fit(messages, (), _ANSWER_TOKENS)

    later = fastest(lambda: known.fit(messages, (), _ANSWER_TOKENS), times)
    return later, fastest(first, times)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compaction", description=__doc__)
    parser.add_argument("--windows", type=int, nargs="+", default=[14_336, 65_536])
    parser.add_argument("--times", type=int, default=25)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args(arguments)
    sys.stdout.write("| window | messages | a later turn | growth | the first turn |\n")
    sys.stdout.write("|---|---|---|---|---|\n")
    is_met = True
    for window in chosen.windows:
        before: float | None = None
        for size in (GOAL_MESSAGES // 2, GOAL_MESSAGES, 2 * GOAL_MESSAGES):
            later, first = measure(size, window, chosen.seed, chosen.times)
            growth = later / before if before is not None else None
            told = "" if growth is None else f"{growth:.2f}"
            row = f"{window:,} | {size:,} | {later:.1f} ms | {told} | {first:.1f} ms"
            sys.stdout.write(f"| {row} |\n")
            is_met &= growth is None or growth < GOAL_GROWTH
            is_met &= size != GOAL_MESSAGES or later < GOAL_MS
            before = later
    goal = (
        f"{GOAL_MESSAGES:,} messages in {GOAL_MS:g} ms, twice the messages in {GOAL_GROWTH} times"
    )
    sys.stdout.write(f"{'met' if is_met else 'MISSED'}: {goal}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
