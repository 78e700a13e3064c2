"""Recorded replies of real models, played to a proxy over HTTP: what becomes of each.

A folder has `questions.jsonl`, and a file of the same kind for each model; both may be compressed
(`.jsonl.gz`). Replies are raw texts, as a model wrote them before any parser. The backend gives the
same text to each attempt, so a reply that is asked about again stays as wrong as it was.
"""

import gzip
import re
from collections import defaultdict
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.errors import InvalidConfiguration
from temper_evals.bfcl import BfclWorld, objection_to_calls
from temper_evals.loop import ModelTarget
from temper_evals.records import RunRecord
from temper_evals.scenarios.scenario import Judgement, PlannedCall, Scenario, Transcript, World
from temper_evals.scenarios.worlds import function_of
from temper_evals.simulated.server import CaseUsage, serve

QUESTIONS = "questions"
NO_CALL, NEEDLESS = "no call", "a call, and none is due"
_ENDS = (".jsonl.gz", ".jsonl")
_PIECE = 24  # characters of a reply that come at once
_DONE = "Done."
_UNSAFE = re.compile(r"[^\w.-]+")


@dataclass(frozen=True, slots=True)
class RecordedQuestion:
    """A question with its tools; `truth` has the calls that are due, as BFCL writes them.

    Without truth no call is due. Names may have dots, which some engines do not take.
    """

    messages: list[JsonValue]
    tools: list[JsonValue]
    truth: list[JsonObject]


@dataclass(frozen=True, slots=True)
class RecordedReply:
    """What a model wrote; whether its own handler read that right, and with `dotted` names."""

    category: str
    id: str
    text: str
    own_handler_right: bool
    dotted: bool


@dataclass(frozen=True, slots=True)
class ReplyScenario:
    """One question, answered by one recorded reply."""

    question: RecordedQuestion
    reply: RecordedReply
    key: int

    limit = 2

    @property
    def family(self) -> str:
        return self.reply.category

    @property
    def name(self) -> str:
        return f"{self.reply.category}-{self.reply.id}"

    def request(self, seed: int) -> JsonObject:
        """Return the request; its seed is what the backend knows the reply by."""
        tools = self.question.tools
        shown = tools if self.reply.dotted else [*map(_without_dots, tools)]
        return {"messages": self.question.messages, "tools": shown, "seed": self.key}

    def first_fields(self) -> JsonObject:
        return {}

    def world(self) -> BfclWorld:
        return BfclWorld()

    def judge(self, end: World, said: Transcript) -> Judgement:
        """Judge the calls of the first reply."""
        assert isinstance(end, BfclWorld)  # noqa: S101 - made above
        made = end.calls_of_first_reply(said)
        truth = self.question.truth
        if not truth:
            return Judgement(right=not made, why=NEEDLESS if made else "")
        if not made:
            return Judgement(right=False, why=NO_CALL)
        plain = [PlannedCall(one.name.replace(".", "_"), one.arguments) for one in made]
        why = objection_to_calls(plain, truth)
        return Judgement(right=not why, why=why)


@dataclass(slots=True)
class RecordedServer:
    """A backend that gives each request the reply that was recorded for it."""

    texts: Mapping[int, str]
    url: str = ""
    asked: dict[int, int] = field(default_factory=lambda: defaultdict(int))

    def app(self) -> Starlette:
        routes = [
            Route("/v1/chat/completions", self._chat, methods=["POST"]),
            Route("/v1/models", self._models),
        ]
        return Starlette(routes=routes)

    async def _chat(self, request: Request) -> Response:
        body = json.parse(await request.body())
        asked = body if isinstance(body, dict) else {}
        text = self._text_for(asked)
        if asked.get("stream") is not True:
            message: JsonObject = {"role": "assistant", "content": text}
            return JSONResponse(_completion({"message": message}, "stop"))
        cut = range(0, len(text), _PIECE)
        deltas: list[JsonObject] = [{"content": text[start : start + _PIECE]} for start in cut]
        events = [_completion({"delta": one}, None) for one in deltas]
        events.append(_completion({"delta": {}}, "stop"))
        told = b"".join(b"data: %s\n\n" % json.dump(one) for one in events)
        return Response(told + b"data: [DONE]\n\n", media_type="text/event-stream")

    def _text_for(self, asked: JsonObject) -> str:
        # what follows a call is no part of the question, be it nudged or not
        if any(one.get("role") == "tool" for one in _objects(asked.get("messages"))):
            return _DONE
        key = asked.get("seed")
        number = key if isinstance(key, int) else -1
        self.asked[number] += 1
        return self.texts.get(number, _DONE)

    async def _models(self, _request: Request) -> Response:
        entry: JsonObject = {"id": "recorded", "object": "model", "owned_by": "nobody"}
        return JSONResponse({"object": "list", "data": [entry]})


def _completion(choice: JsonObject, reason: str | None) -> JsonObject:
    kind = "chat.completion" if "message" in choice else "chat.completion.chunk"
    whole: JsonObject = {"index": 0, **choice, "finish_reason": reason}
    head: JsonObject = {"id": "c", "object": kind, "created": 0, "model": "recorded"}
    return {**head, "choices": [whole]}


@dataclass(slots=True)
class RecordedSetup:
    """A model of which replies were recorded."""

    name: str
    scenarios: tuple[ReplyScenario, ...]
    _server: RecordedServer | None = None

    @asynccontextmanager
    async def open(self, *, is_ceiling: bool) -> AsyncGenerator[ModelTarget, None]:
        """Serve the replies; nobody knows a ceiling."""
        self._server = RecordedServer({one.key: one.reply.text for one in self.scenarios})
        async with serve(self._server) as url:
            yield ModelTarget(url, "recorded")

    def usage_of(self, case: str) -> CaseUsage | None:
        """Tell how often a question was asked; what follows a call is not counted."""
        name = case.rpartition("/")[0]
        key = next((one.key for one in self.scenarios if one.name == name), -1)
        return CaseUsage(0 if self._server is None else self._server.asked[key])

    def adapt(self, scenario: Scenario) -> Scenario:
        return scenario


def load_replies(folder: Path, most: int | None = None) -> list[RecordedSetup]:
    """Read the replies of every model, `most` of each category; raises InvalidConfiguration."""
    files = {name: path for path in sorted(folder.iterdir()) if (name := _name_of(path))}
    if QUESTIONS not in files:
        raise InvalidConfiguration("--replies", f"{folder} has no {QUESTIONS}.jsonl")
    questions = {
        (str(one.get("category")), str(one.get("id"))): RecordedQuestion(
            _list(one.get("messages")), _list(one.get("tools")), _objects(one.get("truth"))
        )
        for one in _lines(files.pop(QUESTIONS))
    }
    found: list[RecordedSetup] = []
    for name, path in files.items():
        scenarios = (
            ReplyScenario(questions[one.category, one.id], one, key)
            for key, one in enumerate(_few(map(_reply, _lines(path)), most))
            if (one.category, one.id) in questions
        )
        if known := tuple(scenarios):
            found.append(RecordedSetup(_UNSAFE.sub("_", name), known))
    if not found:
        raise InvalidConfiguration("--replies", f"{folder} has no reply to any of its questions")
    return found


def _name_of(path: Path) -> str:
    return next((path.name.removesuffix(end) for end in _ENDS if path.name.endswith(end)), "")


def _lines(path: Path) -> Iterator[JsonObject]:
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rb") as lines:
        for number, line in enumerate(lines, 1):
            try:
                value = json.parse(line)
            except ValueError as error:
                problem = f"line {number} is no JSON"
                raise InvalidConfiguration(str(path), problem) from error
            if isinstance(value, dict):
                yield value


def _reply(line: JsonObject) -> RecordedReply:
    return RecordedReply(
        str(line.get("category")),
        str(line.get("id")),
        str(line.get("text") or ""),
        line.get("own_handler_right") is True,
        line.get("dotted") is not False,
    )


def _list(value: JsonValue) -> list[JsonValue]:
    return value if isinstance(value, list) else []


def _objects(value: JsonValue) -> list[JsonObject]:
    return [one for one in _list(value) if isinstance(one, dict)]


def _few(replies: Iterable[RecordedReply], most: int | None) -> Iterator[RecordedReply]:
    by_category: dict[str, list[RecordedReply]] = defaultdict(list)
    for one in replies:
        by_category[one.category].append(one)
    for several in by_category.values():
        yield from islice(several, most)


def _without_dots(tool: JsonValue) -> JsonValue:
    if not isinstance(tool, dict):
        return tool
    function = function_of(tool)
    return {**tool, "function": {**function, "name": str(function.get("name")).replace(".", "_")}}


@dataclass(slots=True)
class ReplyCounts:
    """What became of the replies of a category.

    `own` were read right by the model's own handler. Of those `lost` came to no call and nobody was
    asked again, `asked` to none though the model was asked, and `wrong` to other calls. `needless`
    calls were made where none is due, and `again` counts requests that were asked more than once.
    """

    count: int = 0
    right: int = 0
    own: int = 0
    lost: int = 0
    asked: int = 0
    wrong: int = 0
    needless: int = 0
    again: int = 0
    failed: int = 0

    def add(self, run: RunRecord, *, own: bool) -> None:
        is_again, is_due = run.generations > 1, run.why != NEEDLESS
        has_lost = own and not run.right and is_due
        self.count += 1
        self.right += run.right
        self.own += own
        self.lost += has_lost and run.why == NO_CALL and not is_again
        self.asked += has_lost and run.why == NO_CALL and is_again
        self.wrong += has_lost and run.why != NO_CALL and run.ending != "failed"
        self.needless += not is_due
        self.again += is_again
        self.failed += run.ending == "failed"


def count_replies(
    runs: Iterable[RunRecord], setups: Iterable[RecordedSetup]
) -> dict[tuple[str, str, str], ReplyCounts]:
    """Count by arm, model and category; what is of all models comes last, as the model `all`."""
    own = {
        (setup.name, one.name): one.reply.own_handler_right
        for setup in setups
        for one in setup.scenarios
    }
    found: dict[tuple[str, str, str], ReplyCounts] = defaultdict(ReplyCounts)
    for run in runs:
        for bed in (run.bed, "all"):
            is_own = own.get((run.bed, run.scenario), False)
            found[run.arm, bed, run.family].add(run, own=is_own)
    return dict(sorted(found.items(), key=lambda item: (item[0][1] == "all", item[0][1:], item[0])))
