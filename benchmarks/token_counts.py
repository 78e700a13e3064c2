"""`python -m benchmarks.token_counts`: how near an estimate comes to the real number of tokens.

It starts the embedded llama-server with one small model for each of three chat templates, or with
the model of `--model`, and compares estimates for made-up histories with what the server counts.
"""

# What is estimated
# -----------------
# An estimate adds up the tokens of the single texts (contents, names and arguments of calls) and
# what a template writes around them. Those constants are learned from six tiny conversations:
#
#   exchange   a user's message and an answer in words
#   round      a message with one call, and its result
#   pair       one more call and its result in the same round
#
# Five forms differ in what they take as known:
#
#   whole      nothing: the start of a prompt, with and without a system message, is learned as
#              well, and a tool counts as much as its JSON and a constant
#   offered    the exact count of the tools with tiny messages: one question for each list of tools
#   head       the exact count of system, tools and the first user message: one question to the
#              server for each conversation
#   anchored   the exact count of everything but the last round, as the reply before told it
#   usage      the same and no text at all: what Temper does where a backend cannot count

import argparse
import asyncio
import json as standard_json
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.token_material import TEMPLATES, Histories, Words, build_silent_model, spoken_words
from proxy.backends.llama_server import LlamaServer
from proxy.backends.transport import BackendClient
from proxy.context.tokens import TokenBook
from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.messages import Message
from proxy.conversation.requests import Question
from proxy.conversation.tools import Tool
from proxy.dialects.openai_chat.decode import decode_request
from proxy.processes.launch import LaunchPlan, embedded_program
from proxy.processes.llama_server import start_llama_server

_CONTEXT_TOKENS = 32768
FORMS = ("whole", "offered", "head", "anchored", "usage")


class CannotCount(Exception):
    """The server did not count."""


def question_of(body: JsonObject) -> Question:
    """Make what is put to a backend of a request's body."""
    request = decode_request(json.dump(body))
    return Question(request, request.messages, request.tools, request.tool_choice)


def texts_of(message: Message) -> list[str]:
    """Return the texts of a message that a template writes."""
    called = (text for call in message.calls for text in (call.name, rendered(call.arguments)))
    return [message.text, *called]


def rendered(document: str | bytes) -> str:
    """Write arguments or a tool as templates do: they get an object and write it with `tojson`."""
    return standard_json.dumps(standard_json.loads(document), ensure_ascii=False)


@dataclass(slots=True)
class Counting:
    """Asks the server, remembers what single texts have, and how long it took, in ms."""

    server: LlamaServer
    known: dict[str, int] = field(default_factory=dict)
    book: TokenBook = field(default_factory=TokenBook)
    prompt_times: list[float] = field(default_factory=list)
    text_times: list[float] = field(default_factory=list)

    async def exact(self, question: Question) -> int:
        """Return what the server counts."""
        began = time.perf_counter()
        counted = await self.server.count(question, {})
        self.prompt_times.append((time.perf_counter() - began) * 1e3)
        if counted is None:
            raise CannotCount
        return counted

    async def learn(self, texts: Sequence[str]) -> None:
        """Count texts that are new."""
        new = [text for text in dict.fromkeys(texts) if text not in self.known]
        began = time.perf_counter()
        counted = await self.server.count_texts(new, {})
        self.text_times.append((time.perf_counter() - began) * 1e3)
        if counted is None:
            raise CannotCount
        self.known.update(zip(new, counted, strict=True))

    def content(self, messages: Sequence[Message]) -> int:
        """Add up what the texts of messages have."""
        return sum(self.known[text] for message in messages for text in texts_of(message))

    def named(self, tools: Sequence[Tool]) -> int:
        """Add up what tools have."""
        return sum(self.known[rendered(tool.source)] for tool in tools)


@dataclass(frozen=True, slots=True)
class Constants:
    """What a template writes around the texts, in tokens."""

    start: int
    system: int
    exchange: int
    round: int
    pair: int
    offer: int
    tool: int

    def around(self, messages: Sequence[Message]) -> float:
        """Return what is around messages of which none begins the conversation."""
        calls = sum(len(message.calls) for message in messages)
        rounds = sum(1 for message in messages if message.calls)
        words = sum(1 for message in messages if message.role != "tool" and not message.calls)
        return self.exchange * words / 2 + self.round * rounds + self.pair * (calls - rounds)


def _said(role: str) -> JsonObject:
    return {"role": role, "content": "x"}


def _round(calls: int) -> list[JsonObject]:
    """Make a message with calls, and their results."""
    names = [f"call_{number}" for number in range(calls)]
    function: JsonObject = {"name": "x", "arguments": '{"x": 1}'}
    made: JsonObject = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": name, "type": "function", "function": function} for name in names],
    }
    return [made, *({**_said("tool"), "tool_call_id": name} for name in names)]


def _tool(number: int) -> JsonObject:
    parameters: JsonObject = {"type": "object", "properties": {"x": {"type": "string"}}}
    name = f"x{number}"
    function: JsonObject = {"name": name, "description": "x", "parameters": parameters}
    return {"type": "function", "function": function}


async def learn_constants(counting: Counting) -> Constants:
    """Ask for tiny conversations; all but their constants is known and taken off."""
    user, words = _said("user"), [_said("assistant"), _said("user")]

    async def around(messages: Sequence[JsonObject], tools: int = 0) -> int:
        body: JsonObject = {"messages": list(messages)}
        offered: list[JsonValue] = [_tool(number) for number in range(tools)]
        question = question_of({**body, "tools": offered} if tools else body)
        await counting.learn(_all_texts(question))
        inside = counting.content(question.messages) + counting.named(question.tools)
        return await counting.exact(question) - inside

    start = await around([user])
    once = await around([user, *_round(1), *words])
    one, two = await around([user], 1), await around([user], 2)
    return Constants(
        start=start,
        system=await around([_said("system"), user]) - start,
        exchange=await around([user, *words]) - start,
        round=await around([user, *_round(1), *_round(1), *words]) - once,
        pair=await around([user, *_round(2), *words]) - once,
        offer=one - start - (two - one),
        tool=two - one,
    )


def _all_texts(question: Question) -> list[str]:
    texts = [text for message in question.messages for text in texts_of(message)]
    return [*texts, *(rendered(tool.source) for tool in question.tools)]


@dataclass(slots=True)
class Errors:
    """How far estimates are off, as shares of the exact count."""

    sizes: list[int] = field(default_factory=list)
    shares: dict[str, list[float]] = field(default_factory=lambda: {form: [] for form in FORMS})

    def add(self, exact: int, estimates: dict[str, float]) -> None:
        """Take note of one history."""
        self.sizes.append(exact)
        for form, estimate in estimates.items():
            self.shares[form].append(abs(estimate - exact) / exact)


async def estimates_for(
    counting: Counting, constants: Constants, question: Question
) -> dict[str, float]:
    """Estimate one history in every form."""
    messages = question.messages
    await counting.learn(_all_texts(question))
    first = 2 if messages[0].role == "system" else 1
    rest = constants.around(messages[first:]) + counting.content(messages[first:])
    whole = constants.start + counting.content(messages[:first]) + rest
    whole += constants.system if first == 2 else 0
    if question.tools:
        whole += constants.offer + constants.tool * len(question.tools)
        whole += counting.named(question.tools)
    tiny = question_of(_tiny(question, first))
    await counting.learn(_all_texts(tiny))
    start = await counting.exact(tiny) - counting.content(tiny.messages)
    offered = start + counting.content(messages[:first])
    head = await counting.exact(_cut(question, first))
    last = _last_round(messages, first)
    before = await counting.exact(_cut(question, last))
    new = constants.around(messages[last:]) + counting.content(messages[last:])
    counting.book.calibrate(messages[:last], question.tools, before)
    return {
        "whole": whole,
        "offered": offered + rest,
        "head": head + rest,
        "anchored": before + new,
        "usage": counting.book.estimate(messages, question.tools),
    }


def _tiny(question: Question, first: int) -> JsonObject:
    """Make a request with the same tools and next to nothing else."""
    messages: list[JsonValue] = [_said(message.role) for message in question.messages[:first]]
    tools = [json.parse(tool.source) for tool in question.tools]
    return {"messages": messages, "tools": tools} if tools else {"messages": messages}


def _cut(question: Question, end: int) -> Question:
    request = question.request
    return Question(request, question.messages[:end], question.tools, question.tool_choice)


def _last_round(messages: Sequence[Message], first: int) -> int:
    """Find where the newest messages begin: the last call, or the answer before the last words."""
    places = [i for i, message in enumerate(messages) if message.role == "assistant"]
    return max(places[-1], first) if places else first


def share(values: Sequence[float], part: float) -> float:
    """Return the value that `part` of the values do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]


@asynccontextmanager
async def serving(model: Path, context_tokens: int) -> AsyncGenerator[LlamaServer, None]:
    """Run a model on the embedded server."""
    plan = LaunchPlan(embedded_program(), model, context_tokens)
    async with start_llama_server(plan) as started:
        server = LlamaServer(BackendClient(started.base_url, started.api_key))
        try:
            yield server
        finally:
            await server.close()


async def measure(server: LlamaServer, histories: int, seed: int) -> tuple[Errors, Counting]:
    """Compare estimates with counts."""
    counting = Counting(server)
    constants = await learn_constants(counting)
    sys.stderr.write(f"{constants}\n")
    counting = Counting(server, dict(counting.known))
    material, errors = Histories(seed), Errors()
    for _ in range(histories):
        question = question_of(material.body())
        estimates = await estimates_for(counting, constants, question)
        errors.add(await counting.exact(question), estimates)
    return errors, counting


def table(name: str, errors: Errors, counting: Counting) -> str:
    """Write what was found for one model as lines of a table."""
    lines = [
        f"{name:10} {form:9} {100 * share(shares, 0.5):8.3f} {100 * share(shares, 0.99):8.3f} "
        f"{100 * max(shares):8.3f}"
        for form, shares in errors.shares.items()
    ]
    sizes = errors.sizes
    lines.append(
        f"{name:10} {len(sizes)} histories, {share(sizes, 0.5):.0f} tokens (p50), {max(sizes)} "
        f"(most); ms p50/p99: prompt {_times(counting.prompt_times)}, "
        f"new texts {_times(counting.text_times)}"
    )
    return "\n".join(lines) + "\n"


def _times(times: Sequence[float]) -> str:
    return f"{share(times, 0.5):.1f}/{share(times, 0.99):.1f}"


async def run(chosen: argparse.Namespace, words: Callable[[], Words] = spoken_words) -> None:
    """Measure one model, or one for each template."""
    heads = f"{'':20} {'p50 %':>8} {'p99 %':>8} {'most %':>8}\n"
    sys.stdout.write(heads)
    with tempfile.TemporaryDirectory() as folder:
        models = {"model": Path(chosen.model)} if chosen.model else {}
        for name, template in {} if models else TEMPLATES.items():
            models[name] = Path(folder, f"{name}.gguf")
            build_silent_model(models[name], template, words(), context_tokens=_CONTEXT_TOKENS)
        for name, model in models.items():
            async with serving(model, _CONTEXT_TOKENS) as server:
                errors, counting = await measure(server, chosen.histories, chosen.seed)
            sys.stdout.write(table(name, errors, counting))
            sys.stdout.flush()


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.token_counts", description=__doc__)
    parser.add_argument("--histories", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--model", help="a GGUF file with a template of its own")
    asyncio.run(run(parser.parse_args(arguments)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
