"""Conversations and token counters for the tests of compaction."""

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from random import Random

from proxy.context.message_sizes import countable
from proxy.context.replay import Rules
from proxy.context.rough_tokens import count_rough_tokens
from proxy.conversation import json
from proxy.conversation.json import JsonObject
from proxy.conversation.messages import Message, assistant_message, tool_result, user_message
from proxy.conversation.tools import Tool, ToolCall
from tests.fakes.histories import call, called, result, said

FIXED = 40
OVERHEAD = 4
KEPT_TOOL = "plan"
WORDS = ["the", "old", "file", "has", "a", "line", "with", "some", "more", "text", "about", "it"]


_count = lru_cache(count_rough_tokens)


def _count_call(made: ToolCall) -> int:
    return _count(made.name) + _count(made.arguments)


class Pieces:
    """Counts rough tokens, and adds constants for each message and for the template."""

    overhead = OVERHEAD

    def of(self, message: Message) -> int:
        """Count a message."""
        return _count(message.text) + sum(map(_count_call, message.calls)) + OVERHEAD

    def count_besides(self, tools: tuple[Tool, ...]) -> int:
        """Return a constant that does not depend on the tools."""
        return FIXED

    def estimate(self, messages: Sequence[Message], tools: tuple[Tool, ...]) -> int:
        """Return the tokens of a prompt with tools."""
        return self.count_besides(tools) + sum(map(self.of, messages))

    def prompt(self, messages: tuple[Message, ...]) -> int:
        """Count a prompt."""
        return self.estimate(messages, ())


def spelled(length: int) -> Callable[[str], int]:
    """Return a tokenizer that makes a token of `length` letters or of one other character."""

    def count(text: str) -> int:
        runs = re.findall(r"[A-Za-z]+|[^A-Za-z]", text)
        return sum(-(-len(run) // length) for run in runs)

    return count


def in_bytes(text: str) -> int:
    return len(text.encode(errors="replace"))


TOKENIZERS = {**{f"{size} letters": spelled(size) for size in (1, 2, 4, 8)}, "bytes": in_bytes}
MATERIALS = {
    "prose": "The value is returned as it was read, and the next argument follows.\n",
    "Chinese": "请先列出目录里的文件。告诉我哪个最大。\n",
    "base64": "QmFzZTY0IGVuY29kZWQgdGV4dCBvZiBubyB1c2UgdG8gYW55Ym9keSBhdCBhbGw+\n",
    "hexadecimal": "4f3ab2c3d4e5f60718293a4b5c6d7e8f90a1b2c3d4e5f60718293a4b\n",
    "JSON": '{"id":4711,"tags":["a","b"],"price":19.99,"stock":null},',
    "emoji": "✅🎉😅🚀 ✨🔥👀🤖🧵 ",
}


class Tokenized(Pieces):
    """Counts the tokens of texts with the function `count`."""

    def __init__(self, count: Callable[[str], int]) -> None:
        self._count = lru_cache(count)

    def of(self, message: Message) -> int:
        """Count a message."""
        return self._count(countable(message)) + self.overhead


def has_failed(text: str) -> bool:
    """Return whether a result of these conversations reports a failure."""
    return text.startswith("Error")


RULES = Rules(has_failed, frozenset((KEPT_TOOL,)))


def system_message(text: str) -> Message:
    return Message("system", text, json.dump({"role": "system", "content": text}))


def words(count: int) -> str:
    """Return `count` words, ten per line."""
    lines = (WORDS[:10] for _ in range(count // 10))
    return "\n".join(map(" ".join, [*lines, WORDS[: count % 10]]))


def step(number: int, length: int, failure: str = "", tool: str = "look") -> tuple[Message, ...]:
    """Return a call and its result of about `length` tokens."""
    made = ToolCall(f"call_{number}", tool, json.dump_text({"path": f"src/part_{number}.py"}))
    return assistant_message("", (made,)), tool_result(made.id, f"{failure}{words(length)}")


def agent_run(steps: int, seed: int) -> list[tuple[Message, ...]]:
    """Return the histories of all requests of one run; results have 40 to 2,000 tokens."""
    random = Random(seed)
    messages: tuple[Message, ...] = (system_message(words(2_500)), user_message(words(200)))
    requests = [messages]
    for number in range(steps):
        length = min(max(int(random.lognormvariate(6.1, 0.7)), 40), 2_000)
        failure = "Error: no.\n" if random.random() < 0.1 else ""
        messages += step(number, length, failure)
        requests.append(messages)
    return requests


def raw_history(tape: bytes) -> list[JsonObject]:
    """Generate a history from random bytes, two for each message; it may be invalid.

    Results may be late, missing or without a call, as in requests of real clients.
    """
    history: list[JsonObject] = [said("system", words(12)), said("user", words(8))]
    waiting: list[str] = []
    for number, (kind, size) in enumerate(zip(tape[::2], tape[1::2], strict=False)):
        text = words(size if kind % 3 else size * 4)
        match kind % 16:
            case 0 | 1:
                history.append(said("user", text))
            case 2 | 3:
                history.append(said("assistant", text))
            case 4 if size % 5 == 0:
                history.append(said("system", text[:80]))
            case 5 if waiting:
                history.append(
                    result(waiting.pop(), text)
                )  # the call may be many messages earlier, or already have a result
            case 6 if waiting:
                waiting.pop(0)  # this call never gets a result
            case _:
                history += _round(number, kind, text, waiting)
    return history


def _round(number: int, kind: int, text: str, waiting: list[str]) -> list[JsonObject]:
    name = KEPT_TOOL if kind % 31 == 0 else "look"
    arguments = "{broken" if kind % 29 == 0 else json.dump_text({"path": f"src/{number}.py"})
    ids = [f"call_{number % 40}_{index}" for index in range(1 + (kind % 7 == 0))]
    calls = called(*(call(id_, name, arguments) for id_ in ids))
    if kind % 11 == 0:
        waiting.append(ids.pop())
    failure = "Error: " if kind % 5 == 0 else ""
    return [calls, *(result(id_, failure + text) for id_ in ids)]
