"""`python -m benchmarks ablation`: the effect of each heuristic that reads calls in text.

For every switch of `ablation_switches`, a forked process turns off the heuristic of the switch and
reads all replies again. The replies are:

    tests/corpus        the tables of quoted and genuine calls
    --corpus FOLDER     `dev*.jsonl`, `announce_dev.jsonl` and `score.py`
    --replies FOLDER    recorded replies, as for `python -m benchmarks replies`
    --field FOLDER      `cases_*.json` and `run.py`
"""

import argparse
import contextlib
import os
import pickle
import random
import re
import runpy
import signal
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import chain
from json import loads  # unlike msgspec, it accepts lone surrogates
from pathlib import Path

from benchmarks import announcement_corpus, rescue_corpus
from benchmarks.ablation_switches import Switch, list_switches
from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.replies import ReplyEvent, ReplyFinished, TextDelta, ToolCalled
from proxy.dialects.openai_chat.decode import decode_request
from proxy.guardrails.model_quirks import GENERIC, Quirks
from proxy.guardrails.reasoning import EnoughReadError
from proxy.guardrails.rescue import modes
from proxy.guardrails.rescue.values.cursor import Literals
from proxy.inference.plan import Policy
from proxy.inference.preparation import begin, plan_request
from proxy.profiles.files import load_profiles
from proxy.profiles.recognition import Evidence, recognize
from temper_evals.bfcl import objection_to_calls
from temper_evals.reply_bed import ReplyScenario, load_replies
from temper_evals.scenarios.scenario import PlannedCall
from tests.corpus import cases as tests
from tests.corpus.genuine import genuine
from tests.corpus.negatives import negatives
from tests.corpus.quotations import beside_words, in_markup, quotations, traps
from tests.corpus.quoted import quoted
from tests.corpus.test_quotations import must_stay

_SECONDS = 60  # of CPU time; a fork that needs more is ended
_COUNTS = (
    *("corpora", "negatives", "announced", "false alarms"),
    *("right", "wrong", "lost", "needless", "field", "promoted", "missed"),
)
_HEAD = f"| without | changed | {' | '.join(_COUNTS)} |\n|---|{'---:|' * (len(_COUNTS) + 1)}"
# the conditions of field cases that this benchmark checks; all other conditions are ignored
_CHECKED = ("calls", "calls_one_of", "no_calls", "text", "text_has", "text_lacks")


@dataclass(slots=True)
class Outcome:
    """The result of each reply, by the key of its case, and the totals."""

    replies: dict[str, object] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)

    def changed_from(self, base: "Outcome") -> list[str]:
        return [key for key, value in base.replies.items() if self.replies.get(key) != value]


@dataclass(slots=True)
class Answer:
    """The response to a client, and the number of generations that it needed."""

    calls: list[tuple[str, JsonValue]] = field(default_factory=list)
    text: str = ""
    generations: int = 0


def play(request: JsonObject, replies: Sequence[str], quirks: Quirks = GENERIC) -> Answer:
    """Run a request on a model that replies with these texts in turn; the last text repeats."""
    plan = plan_request(decode_request(json.dump(request)), Policy(quirks))
    turn, answer = begin(plan, lambda: "id", lambda: True), Answer()
    while turn.next_request() is not None:
        text = replies[min(answer.generations, len(replies) - 1)]
        answer.generations += 1
        events: list[ReplyEvent] = []
        with contextlib.suppress(EnoughReadError):
            events += turn.receive(TextDelta(text))
        events += turn.receive(ReplyFinished("stop"))
        calls = [event.call for event in events if isinstance(event, ToolCalled)]
        answer.calls += [(call.name, json.parse(call.arguments)) for call in calls]
        answer.text += "".join(event.text for event in events if isinstance(event, TextDelta))
    return answer


def cache_literals() -> None:
    """Cache the prepared `Literals` of each set of tools; preparing them takes most of the time."""
    cached = cache(Literals)
    vars(modes)["Literals"] = lambda texts: cached(frozenset(texts))


@cache
def quirks_of(name: str) -> Quirks:
    return recognize(Evidence((name,)), load_profiles()).profile.quirks


class Data:
    """The replies in the folders of the command line."""

    def __init__(self, chosen: argparse.Namespace) -> None:
        corpus, fields = chosen.corpus, chosen.field
        self._score = runpy.run_path(str(corpus / "score.py")) if corpus else {}
        self._cases = _read(corpus, "dev*.jsonl")
        self._cases_of_tests = labeled_cases(chosen.step)
        self._prose = _read(corpus, "announce_dev.jsonl")
        self._setups = load_replies(chosen.replies, chosen.limit) if chosen.replies else []
        self._uses_profiles: bool = chosen.told
        self._run = runpy.run_path(str(fields / "run.py")) if fields else {}
        self._fields = [case for case in _read(fields, "cases_*.json") if _texts_of(case)]

    def measure(self) -> Outcome:
        outcome = Outcome()
        for part in (self._corpora, self._announcements, self._replies, self._field_cases):
            part(outcome)
        for number, case in enumerate(self._cases_of_tests):
            played = tests.outcome(case, [case.reply])
            outcome.replies[f"table {number} {case.title}"] = (played.calls, played.text)
            outcome.counts["promoted"] += played.calls != case.calls[: len(played.calls)]
            outcome.counts["missed"] += len(played.calls) < len(case.calls)
        return outcome

    def _corpora(self, outcome: Outcome) -> None:
        for case in self._cases:
            read = rescue_corpus.rescue(str(case["raw"]), self._score["offered"](case))
            calls = read["tool_calls"]
            calls = [
                {**call, "arguments": self._score["args_of"](call["arguments"])} for call in calls
            ]
            outcome.replies[f"corpus {case['id']}"] = calls
            if case["kind"] == "negative":
                outcome.counts["negatives"] += bool(calls) and not case.get("contested")
            else:
                outcome.counts["corpora"] += bool(self._score["judge"](case, {"calls": calls})[1])

    def _announcements(self, outcome: Outcome) -> None:
        for row in self._prose:
            tools = [str(tool) for tool in _list(row["tools"])]
            is_found = announcement_corpus.announces(str(row["text"]), tools, False)  # noqa: FBT003
            outcome.replies[f"announcement {row['id']}"] = is_found
            outcome.counts["announced" if row["label"] == "announce" else "false alarms"] += (
                is_found
            )

    def _replies(self, outcome: Outcome) -> None:
        for setup in self._setups:
            quirks = quirks_of(setup.name) if self._uses_profiles else GENERIC
            for scenario in setup.scenarios:
                answer = play(scenario.request(0), [scenario.reply.text], quirks)
                outcome.replies[f"reply {setup.name} {scenario.name}"] = answer
                if kind := judge(scenario, answer):
                    outcome.counts[kind] += 1

    def _field_cases(self, outcome: Outcome) -> None:
        for case in self._fields:
            request = self._run["build"](case, "chat", False, "m")  # noqa: FBT003
            answer = play(request, _texts_of(case), quirks_of(str(case.get("profile"))))
            answered = {"calls": [[*call] for call in answer.calls], "text": answer.text}
            expected = [condition for condition in _list(case["expect"]) if _is_checked(condition)]
            check = self._run["check"]
            outcome.replies[f"field {case['id']}"] = answer
            outcome.counts["field"] += not any(
                check(condition, answered, []) for condition in expected
            )


def judge(scenario: ReplyScenario, answer: Answer) -> str:
    """Return the name of the count that a recorded reply increases, such as "right" or "lost".

    Returns "" for two kinds of replies that are not right: those that BFCL's handler could not read
    either, and those for which Temper returned no call despite a retry.
    """
    truth, is_readable = scenario.question.truth, scenario.reply.own_handler_right
    if not truth:
        return "needless" if answer.calls else "right"
    made = [
        PlannedCall(name.replace(".", "_"), arguments)
        for name, arguments in answer.calls
        if isinstance(arguments, dict)
    ]
    if made and not objection_to_calls(made, truth):
        return "right"
    return "" if not is_readable else "wrong" if made else "lost" if answer.generations == 1 else ""


def _texts_of(case: JsonObject) -> list[str]:
    """Return the replies of a field case; [] if the case tests more than the texts of replies."""
    script, request = case.get("script"), case.get("request")
    replies = _list(script) or [script]
    is_http = isinstance(request, dict) and not request.keys() <= {"tools", "user", "system"}
    is_text = all(
        isinstance(reply, dict) and reply.keys() <= {"text", "piece"} for reply in replies
    )
    texts = [str(reply["text"]) for reply in replies if isinstance(reply, dict) and "text" in reply]
    return texts if is_text and not is_http else []


def _is_checked(condition: JsonValue) -> bool:
    return isinstance(condition, dict) and not condition.keys().isdisjoint(_CHECKED)


def _read(folder: Path | None, pattern: str) -> list[JsonObject]:
    """Read JSON lines, or JSON files that contain a list or an object with a list `cases`."""
    rows: list[JsonValue] = []
    for path in sorted(folder.glob(pattern)) if folder else ():
        is_lines = path.suffix == ".jsonl"
        for text in path.read_bytes().splitlines() if is_lines else [path.read_bytes()]:
            value: JsonValue = loads(text)
            value = value.get("cases", value) if isinstance(value, dict) else value
            rows += value if isinstance(value, list) else [value]
    return [row for row in rows if isinstance(row, dict)]


def _list(value: JsonValue) -> list[JsonValue]:
    return value if isinstance(value, list) else []


def labeled_cases(step: int) -> list[tests.Case]:
    """Return 1/`step` of the test cases, chosen at random because consecutive cases are similar."""
    quotes = (quotations(900, seed=26), in_markup(7), beside_words(29), traps(400, seed=29))
    tables = [*negatives().values(), *quoted().values(), *genuine().values(), *quotes]
    cases = [*must_stay(), *chain.from_iterable(tables)]
    return random.Random(41).sample(cases, len(cases) // step)  # noqa: S311 - no secret


def row(name: str, outcome: Outcome | None, base: Outcome) -> str:
    """Return a row of the table: `base` itself, or the differences of `outcome` from `base`."""
    if outcome is None:
        return f"| {name} | fails{' |' * (len(_COUNTS) + 1)}"
    cells = [str(base.counts[name]) for name in _COUNTS]
    if outcome is not base:
        deltas = [outcome.counts[name] - base.counts[name] for name in _COUNTS]
        cells = [f"{delta:+}" if delta else "" for delta in deltas]
    changed = len(base.replies) if outcome is base else len(outcome.changed_from(base)) or ""
    return f"| {name} | {changed} | {' | '.join(cells)} |"


def in_fork(work: Callable[[], Outcome]) -> Outcome | None:
    """Run `work` in a copy of this process; None if it fails or takes too long."""
    reading, writing = os.pipe()
    # a fork, because a switch changes the modules of its process irreversibly
    child = os.fork()
    if child == 0:
        # CPU time, because other work on the machine must not end a fork early
        signal.setitimer(signal.ITIMER_VIRTUAL, _SECONDS)
        sent = b""
        try:
            sent = pickle.dumps(work())
        except BaseException as error:  # noqa: BLE001 - a switch can cause any error
            sys.stderr.write(f"{error!r}\n")
        with os.fdopen(writing, "wb") as pipe:
            pipe.write(sent)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        received = pipe.read()
    os.waitpid(child, 0)
    return pickle.loads(received) if received else None  # noqa: S301 - written by this program


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--corpus", type=Path)
    parser.add_argument("--replies", type=Path)
    parser.add_argument("--limit", type=int, default=40, help="replies of a model and category")
    parser.add_argument("--told", action="store_true", help="choose profiles by the models' names")
    parser.add_argument("--field", type=Path)
    parser.add_argument("--step", type=int, default=5, help="of the cases of tests")
    parser.add_argument("--only", default="", help="switches whose name has this pattern")
    parser.add_argument("--output", type=Path, default=Path("ablation.md"))
    parser.set_defaults(command=run)


def run(chosen: argparse.Namespace) -> int:
    cache_literals()
    data = Data(chosen)
    base = data.measure()
    rows = [row("nothing", base, base)]
    for switch in list_switches():
        if re.search(chosen.only, switch.name):
            rows.append(row(switch.name, in_fork(partial(_measure_without, data, switch)), base))
            chosen.output.write_text("\n".join([_HEAD, *rows, ""]), encoding="utf-8")
    return 0


def _measure_without(data: Data, switch: Switch) -> Outcome:
    switch.turn_off()
    return data.measure()
