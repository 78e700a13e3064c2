"""`python -m benchmarks.context_run`: an agent's run that outgrows the window, for each strategy.

A real llama-server, a recorder, Temper in a process of its own, and a client that sends the whole
history again with every turn, as agents do. All counts of tokens are the server's own.
"""

# What is compared
# ----------------
#   tiered, sliding   Temper's strategies; the server's window is that of `--window`
#   none              everything is counted and sent as it came; the server's window is large
#                     enough for the whole run, and prompts are counted that `--window` could not
#                     hold together with their answer
#   off               nothing is even counted: what Temper costs without compaction
#
# A prompt has a break if the server could reuse less of it than the whole prompt before. What
# Temper adds is the time between the client's question and its answer, less the time that the
# server needed for its part (recorder included); its questions about tokens count as Temper's.

import argparse
import asyncio
import inspect
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from benchmarks.context_material import AgentRun, Planted, tools
from benchmarks.context_model import Words, build_reading_model, learn_words, no_words
from benchmarks.context_plot import MissingLibrary, draw
from benchmarks.context_recorder import Recorder, Sent
from benchmarks.context_results import Recall, Run, TurnFound, goals, table
from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.processes.launch import LaunchPlan, embedded_program
from proxy.processes.llama_server import start_llama_server
from proxy.processes.process import Process, python_module

STRATEGIES = ("tiered", "sliding", "none", "off")
TOKENS = ("words", "letters")
_MOST_TURNS = 60  # as many answers as the model has room for
_PATIENCE_SECONDS = 300.0


class RunFailed(Exception):
    """An answer was not what the run needs to go on."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What all strategies have in common: the window, the answer's part of it, and the run."""

    window: int
    answer_tokens: int | None
    agent: AgentRun


@asynccontextmanager
async def temper_before(url: str, api_key: str, strategy: str) -> AsyncGenerator[str, None]:
    """Run Temper in a process of its own and yield its address."""
    address: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def listen(line: str) -> None:
        if line.startswith('{"url"') and not address.done():
            announced = json.parse(line)
            assert isinstance(announced, dict)  # noqa: S101 - what `--json` promises
            address.set_result(str(announced["url"]))

    command = python_module("proxy")
    process = await Process.start(
        (*command, "serve", "--backend-url", url, "--port", "0", "--json"),
        name="temper",
        environment=_environment(api_key, strategy),
        listener=listen,
    )
    try:
        yield await asyncio.wait_for(address, _PATIENCE_SECONDS)
    finally:
        await process.stop()


def _environment(api_key: str, strategy: str) -> dict[str, str]:
    return {
        "TEMPER_BACKEND__API_KEY": api_key,
        "TEMPER_CONTEXT__COMPACTION": "off" if strategy == "off" else "auto",
        "TEMPER_CONTEXT__STRATEGY": "none" if strategy == "off" else strategy,
    }


async def play(setting: Setting, strategy: str, model: Path, context_tokens: int) -> Run:
    """Play the whole run with one strategy."""
    plan = LaunchPlan(embedded_program(), model, context_tokens, alias="scripted")
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(start_llama_server(plan))
        recorder = Recorder(server.base_url)
        between = await stack.enter_async_context(recorder.running())
        url = await stack.enter_async_context(temper_before(between, server.api_key, strategy))
        client = await stack.enter_async_context(
            httpx.AsyncClient(base_url=url, timeout=_PATIENCE_SECONDS, trust_env=False)
        )
        player = _Player(setting, recorder, client)
        turns = [await player.turn(step) for step in range(setting.agent.turns)]
        facts = recall(setting.agent.planted, turns, recorder.sent)
        return Run(strategy, tuple(turns), facts)


class _Player:
    """The client: it sends the whole history with every turn."""

    def __init__(self, setting: Setting, recorder: Recorder, client: httpx.AsyncClient) -> None:
        self._setting = setting
        self._recorder = recorder
        self._client = client
        self._messages = setting.agent.first_messages()
        self._before = 0
        self._is_counted = False

    async def turn(self, step: int) -> TurnFound:
        """Ask for a call, and append it with its result."""
        counting_before = self._recorder.counting_seconds
        began = time.perf_counter()
        answer = await self._client.post("/v1/chat/completions", json=self._request())
        seconds = time.perf_counter() - began
        if answer.status_code != httpx.codes.OK:
            raise RunFailed(f"turn {step + 1}: {answer.status_code} {answer.text}")
        self._go_on(step, json.parse(answer.content))
        if len(self._recorder.sent) != step + 1:
            raise RunFailed(f"turn {step + 1}: {len(self._recorder.sent)} prompts were sent")
        last = self._recorder.sent[-1]
        counting = self._recorder.counting_seconds - counting_before
        self._is_counted = self._is_counted or counting > 0
        shape = _shape(answer.headers.get("x-temper-context", ""))
        found = TurnFound(
            step=step + 1,
            prompt=last.prompt,
            cached=last.cached,
            estimate=shape.get("sent"),
            client=shape.get("client"),
            tier=shape.get("tier", 0),
            epoch=shape.get("epoch", 0),
            is_broken=last.cached < self._before,
            is_over=last.prompt + (self._setting.answer_tokens or 1) > self._setting.window,
            is_counted=self._is_counted,
            facts=self._facts(b"".join(last.messages)),
            added_ms=(seconds - last.seconds) * 1e3,
            counting_ms=counting * 1e3,
        )
        self._before = last.prompt
        return found

    def _facts(self, prompt: bytes) -> int:
        """Count the planted facts that a prompt holds."""
        return sum(fact.words.encode() in prompt for fact in self._setting.agent.planted)

    def _request(self) -> JsonObject:
        plain: JsonObject = {
            "model": "scripted",
            "messages": self._messages,
            "tools": tools(),
            "temperature": 0,
        }
        most = self._setting.answer_tokens
        return plain if most is None else {**plain, "max_tokens": most}

    def _go_on(self, step: int, answer: JsonValue) -> None:
        message = _message(answer)
        calls = message.get("tool_calls")
        if not isinstance(calls, list) or not calls or not isinstance(calls[0], dict):
            raise RunFailed(f"turn {step + 1}: no call but {message}")
        result = self._setting.agent.results[step]
        self._messages.append(
            {"role": "assistant", "content": message.get("content"), "tool_calls": calls[:1]}
        )
        self._messages.append({"role": "tool", "tool_call_id": calls[0]["id"], "content": result})
        if remark := self._setting.agent.remarks.get(step):
            self._messages.append({"role": "user", "content": remark})


def _message(answer: JsonValue) -> JsonObject:
    """Find the message in a completion."""
    choices = answer.get("choices") if isinstance(answer, dict) else None
    first = choices[0] if isinstance(choices, list) and choices else None
    message = first.get("message") if isinstance(first, dict) else None
    if not isinstance(message, dict):
        raise RunFailed(f"no completion: {answer}")
    return message


def _shape(told: str) -> dict[str, int]:
    """Read the header `x-temper-context`."""
    pairs = (part.strip().split("=") for part in told.split(";") if part)
    return {name: int(number) for name, number in pairs}


def recall(planted: Sequence[Planted], turns: Sequence[TurnFound], sent: Sequence[Sent]) -> Recall:
    """Look for the planted facts in the first prompt that was cut."""
    first = next((turn for turn in turns if turn.epoch and turn.is_broken), None)
    if first is None:
        return Recall(len(planted), None, ())
    prompt = b"".join(sent[first.step - 1].messages)
    missing = (fact for fact in planted if fact.words.encode() not in prompt)
    return Recall(len(planted), first.step, tuple(f"{one.kind}: {one.words}" for one in missing))


async def run(
    setting: Setting, strategies: Sequence[str], tell: Callable[[str], None]
) -> list[Run]:
    """Play the run with every strategy, each with a server of its own."""
    words = _vocabulary(setting.agent)
    with tempfile.TemporaryDirectory(prefix="temper-context-") as folder:
        found: list[Run] = []
        for strategy in strategies:
            is_cut = strategy in ("tiered", "sliding")
            tokens = setting.window if is_cut else max(setting.window, 1024 * setting.agent.turns)
            model = Path(folder, f"{strategy}.gguf")
            scripts = setting.agent.scripts
            build_reading_model(model, scripts, words, context_tokens=tokens)
            tell(f"{strategy}: {setting.agent.turns} turns, a window of {tokens} tokens")
            found.append(await play(setting, strategy, model, tokens))
        return found


def _vocabulary(agent: AgentRun) -> Words:
    if agent.spelled:
        return no_words()
    others = AgentRun(_MOST_TURNS, agent.seed + 1)
    return learn_words("\n".join([*others.results, inspect.getsource(argparse)]))


def report(runs: Sequence[Run]) -> str:
    """Write the table, the goals, and which facts were lost."""
    lines = [table(runs)]
    lines += [f"{'met   ' if is_met else 'MISSED'}  {words}" for words, is_met in goals(runs)]
    for one in runs:
        if one.recall.cut is not None:
            lost = ", ".join(one.recall.missing) or "nothing"
            lines.append(f"{one.strategy}: lost at the first cut (turn {one.recall.cut}): {lost}")
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Play, print and write; return the exit code."""
    chosen = _parser().parse_args(arguments)
    if not 2 <= chosen.turns <= _MOST_TURNS:
        sys.stderr.write(f"--turns must be from 2 to {_MOST_TURNS}\n")
        return 2
    agent = AgentRun(chosen.turns, chosen.seed, spelled=chosen.tokens == "letters")
    setting = Setting(chosen.window, chosen.answer_tokens or None, agent)
    try:
        runs = asyncio.run(run(setting, chosen.strategies, _say))
        if chosen.plot:
            draw(runs, setting.window, chosen.plot)
    except (RunFailed, MissingLibrary) as problem:
        _say(str(problem))
        return 1
    if chosen.output:
        found: list[JsonValue] = [one.document() for one in runs]
        size: JsonObject = {"window": setting.window, "answer_tokens": setting.answer_tokens}
        document: JsonObject = {**size, "seed": setting.agent.seed, "runs": found}
        chosen.output.write_bytes(json.dump(document))
    sys.stdout.write(report(runs))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.context_run", description=__doc__)
    parser.add_argument("--turns", type=int, default=50)
    parser.add_argument("--window", type=int, default=14336, help="tokens")
    parser.add_argument(
        "--answer-tokens", type=int, default=512, help="max_tokens of the client; 0 to leave it out"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tokens", choices=TOKENS, default="words", help="what the model reads")
    parser.add_argument("--strategies", nargs="+", choices=STRATEGIES, default=STRATEGIES)
    parser.add_argument("--output", type=Path, help="a JSON file for every turn's figures")
    parser.add_argument("--plot", type=Path, help="a PNG file for a picture")
    return parser


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")


if __name__ == "__main__":
    sys.exit(main())
