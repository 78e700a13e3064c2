"""`python -m benchmarks ablation`: what each heuristic of provenance is worth.

Every switch of `ablation_switches` is turned off in a fork that reads all replies again, and, if
none of them came out differently, runs the tests. The data is given as folders: `--corpus` has
`dev*.jsonl`, `announce_dev.jsonl` and `score.py`, `--replies` is a folder for
`python -m benchmarks replies`, and `--field` has `cases_*.json` and `run.py`. A folder that is not
given is left out.
"""

import argparse
import importlib.util
import os
import pickle
import re
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from json import loads
from pathlib import Path
from types import ModuleType

import pytest

from benchmarks import announcement_corpus, rescue_corpus
from benchmarks.ablation_switches import Switch, list_switches
from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.replies import (
    ReasoningDelta,
    ReplyEvent,
    ReplyFinished,
    TextDelta,
    ToolCallArgumentsDelta,
    ToolCalled,
    ToolCallStarted,
)
from proxy.dialects.openai_chat.decode import decode_request
from proxy.guardrails.model_quirks import GENERIC, Quirks
from proxy.guardrails.reasoning import EnoughHeardError
from proxy.inference.plan import Policy
from proxy.inference.preparation import begin, plan_request
from proxy.profiles.files import load_profiles
from proxy.profiles.recognition import Evidence, recognise
from temper_evals.reply_bed import ReplyScenario, load_replies
from temper_evals.bfcl import objection_to_calls
from temper_evals.scenarios.scenario import PlannedCall

_SECONDS = 120  # after which a fork counts as hanging
_PIECE = 24  # characters
# What is counted; more of the first five is better, and less of the others.
GOOD = ("corpus right", "announced", "right", "field", "tests")
BAD = ("negatives", "false alarms", "wrong", "lost", "needless")


@dataclass(slots=True)
class Outcome:
    """What became of all replies and tests: what each came to, and the counts."""

    replies: dict[str, object] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    failed: set[str] = field(default_factory=set)

    def changed_from(self, base: "Outcome") -> list[str]:
        return [key for key, value in base.replies.items() if self.replies.get(key) != value]


@dataclass(slots=True)
class Answer:
    """What a client gets of a reply, and how often the model was asked."""

    calls: list[tuple[str, JsonObject]] = field(default_factory=list)
    text: str = ""
    reasoning: str = ""
    asked: int = 0


def play(
    request: JsonObject, replies: Sequence[Sequence[ReplyEvent]], quirks: Quirks = GENERIC
) -> Answer:
    """Play a request whose model gives these replies, the last one again and again."""
    policy = Policy(quirks)
    turn = begin(plan_request(decode_request(json.dump(request)), policy), lambda: "id", lambda: True)
    answer = Answer()
    while turn.next_question() is not None:
        events = replies[min(answer.asked, len(replies) - 1)]
        answer.asked += 1
        shown: list[ReplyEvent] = []
        try:
            for event in events:
                shown += turn.receive(event)
        except EnoughHeardError:
            shown += turn.receive(ReplyFinished("stop"))
        for one in shown:
            match one:
                case ToolCalled(call=call):
                    arguments = json.parse(call.arguments)
                    answer.calls.append((call.name, arguments if isinstance(arguments, dict) else {}))
                case TextDelta(text):
                    answer.text += text
                case ReasoningDelta(text):
                    answer.reasoning += text
                case _:
                    pass
    return answer


def events_of(reply: Mapping[str, JsonValue], piece: int = _PIECE) -> list[ReplyEvent]:
    events: list[ReplyEvent] = []
    for kind, key in ((ReasoningDelta, "reasoning"), (TextDelta, "text")):
        text = str(reply.get(key) or "")
        events += (kind(text[at : at + piece]) for at in range(0, len(text), piece))
    calls = reply.get("calls")
    for number, call in enumerate(calls if isinstance(calls, list) else []):
        name, arguments, *_ = call if isinstance(call, list) else ["", ""]
        events.append(ToolCallStarted(number, f"call_{number}", str(name)))
        events.append(ToolCallArgumentsDelta(number, str(arguments)))
    return [*events, ReplyFinished("tool_calls" if calls else "stop")]


class Data:
    """The replies of the folders that were given."""

    def __init__(self, chosen: argparse.Namespace) -> None:
        corpus: Path | None = chosen.corpus
        files = [*corpus.glob("dev*.jsonl")] if corpus else []
        self._score = _load(corpus / "score.py") if corpus else None
        self._cases = [one for file in sorted(files) for one in _lines(file)]
        self._prose = _lines(corpus / "announce_dev.jsonl") if corpus else []
        setups = load_replies(chosen.replies, chosen.limit) if chosen.replies else []
        self._setups = [(quirks_of(one.name), one) for one in setups]
        self._run = _load(chosen.field / "run.py") if chosen.field else None
        fields = sorted(chosen.field.glob("cases_*.json")) if chosen.field else []
        self._fields = [one for file in fields for one in _cases(file) if _is_playable(one)]

    def measure(self) -> Outcome:
        found = Outcome()
        for part in (self._corpus, self._announcements, self._replies, self._field):
            part(found)
        return found

    def _corpus(self, found: Outcome) -> None:
        for case in self._cases:
            assert self._score is not None  # noqa: S101 - it has cases
            read = rescue_corpus.rescue(str(case["raw"]), self._score.offered(case))
            calls = [{**one, "arguments": self._score.args_of(one["arguments"])} for one in read["tool_calls"]]
            found.replies[f"corpus {case['id']}"] = calls
            if case["kind"] == "negative":
                found.counts["negatives"] += bool(calls) and not case.get("contested")
            elif not case.get("idiosyncratic"):
                _, lenient, _ = self._score.judge(case, {"calls": calls})
                found.counts["corpus right"] += bool(lenient)

    def _announcements(self, found: Outcome) -> None:
        for row in self._prose:
            tools = [str(one) for one in _list(row["tools"])]
            is_found = announcement_corpus.announces(str(row["text"]), tools, False)  # noqa: FBT003
            found.replies[f"announcement {row['id']}"] = is_found
            if not str(row.get("note", "")).startswith("doubtful"):
                is_due = row["label"] == "announce"
                found.counts["announced" if is_due else "false alarms"] += is_found

    def _replies(self, found: Outcome) -> None:
        for quirks, setup in self._setups:
            for one in setup.scenarios:
                for told in (GENERIC, quirks) if quirks.syntaxes else (GENERIC,):
                    answer = play(one.request(0), [events_of({"text": one.reply.text})], told)
                    key = f"reply {setup.name} {one.name} {told is GENERIC}"
                    found.replies[key] = (answer.calls, answer.text, answer.asked)
                    _judge(one, answer, found.counts)

    def _field(self, found: Outcome) -> None:
        for case in self._fields:
            assert self._run is not None  # noqa: S101 - it has cases
            for piece in (_PIECE, 100_000):
                request = self._run.build(case, "chat", False, "m")  # noqa: FBT003
                script = case.get("script")
                replies = [events_of(one, piece) for one in (script if isinstance(script, list) else [script]) if isinstance(one, dict)]
                answer = play(request, replies, quirks_of(str(case.get("profile") or "")))
                told = {"calls": [[*one] for one in answer.calls], "text": answer.text, "reasoning": answer.reasoning}
                wrong = [self._run.check(one, told, [{}] * answer.asked) for one in _list(case["expect"]) if _is_checked(one)]
                found.replies[f"field {case['id']} {piece}"] = (answer.calls, answer.text, answer.asked)
                found.counts["field"] += not any(wrong)


def _judge(scenario: ReplyScenario, answer: Answer, counts: Counter[str]) -> None:
    truth, own = scenario.question.truth, scenario.reply.own_handler_right
    if not truth:
        counts["right" if not answer.calls else "needless"] += 1
        return
    made = [PlannedCall(name.replace(".", "_"), arguments) for name, arguments in answer.calls]
    if made and not objection_to_calls(made, truth):
        counts["right"] += 1
    elif own and made:
        counts["wrong"] += 1
    elif own and answer.asked == 1:
        counts["lost"] += 1


def quirks_of(name: str) -> Quirks:
    return recognise(Evidence((name,)), load_profiles()).profile.quirks


_CHECKED = ("calls", "calls_one_of", "no_calls", "text", "text_has", "text_lacks", "reasoning_has")


def _is_checked(condition: JsonValue) -> bool:
    names = (*_CHECKED, "questions_max", "questions_min")
    return isinstance(condition, dict) and any(name in condition for name in names)


def _is_playable(case: JsonObject) -> bool:
    """Return whether a field case is about the text of replies, and not about HTTP."""
    script, request = case.get("script"), case.get("request")
    replies = script if isinstance(script, list) else [script]
    known = {"text", "reasoning", "calls", "piece", "finish"}
    is_text = all(isinstance(one, dict) and known >= one.keys() for one in replies)
    is_http = isinstance(request, dict) and {"path", "method", "headers", "encoding"} & request.keys()
    return is_text and not is_http and not case.get("server")


def _load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None  # noqa: S101 - a Python file
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _lines(path: Path) -> list[JsonObject]:
    read = map(json.parse, path.read_bytes().splitlines())
    return [one for one in read if isinstance(one, dict)]


def _cases(path: Path) -> list[JsonObject]:
    read: JsonValue = loads(path.read_bytes())  # which takes lone surrogates
    listed = read.get("cases") if isinstance(read, dict) else read
    return [one for one in _list(listed) if isinstance(one, dict)]


def _list(value: JsonValue) -> list[JsonValue]:
    return value if isinstance(value, list) else []


class Ablation:
    """A plugin of pytest: with the tests collected, it runs all of the measure in forks."""

    def __init__(self, chosen: argparse.Namespace) -> None:
        self._data = Data(chosen)
        self._only = re.compile(chosen.only)
        self._runs_all: bool = chosen.all_tests
        self._output: Path = chosen.output
        self._failed: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._failed.add(report.nodeid)

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        base = in_fork(lambda: self._run(session, None, None))
        assert base is not None, "nothing can be read"  # noqa: S101 - there is nothing to compare
        write = sys.__stdout__.write if sys.__stdout__ else print
        rows = [_row("as it is", base, base)]
        for switch in filter(lambda one: self._only.search(one.name), list_switches()):
            found = in_fork(lambda: self._run(session, switch, base))  # noqa: B023 - at once
            rows.append(_row(switch.name, found, base))
            write(f"{rows[-1]}\n")
            self._output.write_text("\n".join([*_HEAD, *rows, ""]), encoding="utf-8")
        return True

    def _run(self, session: pytest.Session, switch: Switch | None, base: Outcome | None) -> Outcome:
        if switch is not None:
            switch.turn_off()
        found = self._data.measure()
        if base is None or self._runs_all or not found.changed_from(base):
            for item, following in zip(session.items, [*session.items[1:], None], strict=True):
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            found.failed = self._failed
        return found


_HEAD = (
    f"| without | changed | {' | '.join((*GOOD[:4], *BAD))} | failed tests |",
    f"|---|{'---:|' * (len(GOOD) + len(BAD))}---|",
)


def _row(name: str, found: Outcome | None, base: Outcome) -> str:
    if found is None:
        return f"| {name} | crashes or hangs |{' |' * 10}"
    failed = sorted(found.failed - base.failed)
    deltas = [found.counts[one] - base.counts[one] for one in (*GOOD[:4], *BAD)]
    if found is base:
        deltas = [base.counts[one] for one in (*GOOD[:4], *BAD)]
    changed = found.changed_from(base)
    shown = (f"{one:+}" if one and found is not base else str(one or "") for one in deltas)
    tests = ", ".join([str(len(failed)), *(one.rpartition("::")[2][:60] for one in failed[:3])])
    tests = tests.replace("|", "/").replace("\n", " ")
    return f"| {name} | {len(changed) or ''} | {' | '.join(shown)} | {tests if failed else ''} |"


def in_fork(work: Callable[[], Outcome]) -> Outcome | None:
    """Run `work` in a copy of this process; None if it fails or takes too long."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        signal.alarm(_SECONDS)
        try:
            sent = pickle.dumps(work())
        except BaseException as error:  # noqa: BLE001 - whatever a switch breaks
            sys.stderr.write(f"{error!r}\n")
            sent = b""
        with os.fdopen(writing, "wb") as pipe:
            pipe.write(sent)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        sent = pipe.read()
    os.waitpid(child, 0)
    return pickle.loads(sent) if sent else None  # noqa: S301 - of this program


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--corpus", type=Path)
    parser.add_argument("--replies", type=Path)
    parser.add_argument("--limit", type=int, default=40, help="replies of a model and category")
    parser.add_argument("--field", type=Path)
    parser.add_argument("--tests", nargs="*", default=["tests/corpus", "tests/playbooks"])
    parser.add_argument("--all-tests", action="store_true", help="even where replies differ")
    parser.add_argument("--only", default="", help="switches whose name has this pattern")
    parser.add_argument("--output", type=Path, default=Path("ablation.md"))
    parser.set_defaults(command=run)


def run(chosen: argparse.Namespace) -> int:
    options = ["-q", "-s", "-p", "no:cacheprovider", "-p", "no:terminal", *chosen.tests]
    return int(pytest.main(options, plugins=[Ablation(chosen)]))
