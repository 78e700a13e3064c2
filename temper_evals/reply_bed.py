"""A backend that sends recorded replies of real models.

A folder has `questions.jsonl` with the questions, and `MODEL.jsonl` with the replies of each model;
the files may be compressed (`.jsonl.gz`). Replies are raw texts, not parsed by any engine. The
backend sends the same text for every attempt, so a retry cannot improve a wrong reply.
"""

import gzip
import re
from collections import defaultdict
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
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
from temper_evals.scenarios.scenario import Judgment, PlannedCall, Scenario, Transcript, World
from temper_evals.scenarios.worlds import function_of, objects_in
from temper_evals.simulated.server import CaseUsage, serve

QUESTIONS = "questions"
NO_CALL, NEEDLESS = "no call", "needless call"
_ENDS = (".jsonl.gz", ".jsonl")
_PIECE = 24  # characters per delta
_DONE = "Done."
# field of `ReplyCounts` -> its name in the published JSON, if the names differ
_PUBLISHED = {"handler_right": "own", "retried": "asked"}
_UNSAFE = re.compile(r"[^\w.-]+")


@dataclass(frozen=True, slots=True)
class RecordedQuestion:
    """A question with its tools; the names of tools may contain dots, which some engines refuse.

    `truth` has the right calls in BFCL's format; [] if no call is right.
    """

    messages: list[JsonValue]
    tools: list[JsonValue]
    truth: list[JsonObject]


@dataclass(frozen=True, slots=True)
class RecordedReply:
    """The raw text of a model.

    `own_handler_right` tells whether BFCL's handler for this model read the right calls from the
    text, and `dotted` whether the model was shown tool names with dots.
    """

    category: str
    id: str
    text: str
    own_handler_right: bool
    dotted: bool


@dataclass(frozen=True, slots=True)
class ReplyScenario:
    """One question with one recorded reply."""

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
        """Return the request; the backend finds the reply by the seed in the request."""
        tools = self.question.tools
        shown = tools if self.reply.dotted else [*map(_without_dots, tools)]
        return {"messages": self.question.messages, "tools": shown, "seed": self.key}

    def first_fields(self) -> JsonObject:
        return {}

    def world(self) -> BfclWorld:
        return BfclWorld()

    def judge(self, end: World, transcript: Transcript) -> Judgment:
        """Judge the calls of the first reply."""
        assert isinstance(end, BfclWorld)  # noqa: S101 - made by `world`
        made = end.calls_of_first_reply(transcript)
        truth = self.question.truth
        if not truth:
            return Judgment(right=not made, why=NEEDLESS if made else "")
        if not made:
            return Judgment(right=False, why=NO_CALL)
        plain = [PlannedCall(call.name.replace(".", "_"), call.arguments) for call in made]
        why = objection_to_calls(plain, truth)
        return Judgment(right=not why, why=why)


@dataclass(slots=True)
class RecordedServer:
    """A backend that returns the recorded reply to each request."""

    texts: Mapping[int, str]
    url: str = ""
    request_counts: dict[int, int] = field(default_factory=lambda: defaultdict(int))

    def app(self) -> Starlette:
        routes = [
            Route("/v1/chat/completions", self._chat, methods=["POST"]),
            Route("/v1/models", self._models),
        ]
        return Starlette(routes=routes)

    async def _chat(self, request: Request) -> Response:
        body = json.parse(await request.body())
        document = body if isinstance(body, dict) else {}
        text = self._text_for(document)
        if document.get("stream") is not True:
            message: JsonObject = {"role": "assistant", "content": text}
            return JSONResponse(_completion({"message": message}, "stop"))
        cut = range(0, len(text), _PIECE)
        deltas: list[JsonObject] = [{"content": text[start : start + _PIECE]} for start in cut]
        events = [_completion({"delta": delta}, None) for delta in deltas]
        events.append(_completion({"delta": {}}, "stop"))
        stream = b"".join(b"data: %s\n\n" % json.dump(event) for event in events)
        return Response(stream + b"data: [DONE]\n\n", media_type="text/event-stream")

    def _text_for(self, body: JsonObject) -> str:
        # a request with tool results comes after the recorded reply, so the run can end
        if any(message.get("role") == "tool" for message in objects_in(body.get("messages"))):
            return _DONE
        key = body.get("seed")
        number = key if isinstance(key, int) else -1
        self.request_counts[number] += 1
        return self.texts.get(number, _DONE)

    async def _models(self, _request: Request) -> Response:
        entry: JsonObject = {"id": "recorded", "object": "model", "owned_by": "nobody"}
        return JSONResponse({"object": "list", "data": [entry]})


def _completion(choice: JsonObject, reason: str | None) -> JsonObject:
    kind = "chat.completion" if "message" in choice else "chat.completion.chunk"
    full_choice: JsonObject = {"index": 0, **choice, "finish_reason": reason}
    head: JsonObject = {"id": "c", "object": kind, "created": 0, "model": "recorded"}
    return {**head, "choices": [full_choice]}


@dataclass(slots=True)
class RecordedSetup:
    """A model whose replies were recorded."""

    name: str
    scenarios: tuple[ReplyScenario, ...]
    # `open` creates a new server, so that every arm starts with zero counts
    _server: RecordedServer | None = None

    @asynccontextmanager
    async def open(self, *, is_ceiling: bool) -> AsyncGenerator[ModelTarget, None]:
        """Serve the replies; `is_ceiling` is ignored, because recorded replies have no ceiling."""
        self._server = RecordedServer(
            {scenario.key: scenario.reply.text for scenario in self.scenarios}
        )
        async with serve(self._server) as url:
            yield ModelTarget(url, "recorded")

    def usage_of(self, case: str) -> CaseUsage | None:
        """Return the number of generations for a question.

        The generation after the tool results, which only ends the run, is not counted.
        """
        name = case.rpartition("/")[0]
        key = next((scenario.key for scenario in self.scenarios if scenario.name == name), -1)
        return CaseUsage(0 if self._server is None else self._server.request_counts[key])

    def adapt(self, scenario: Scenario) -> Scenario:
        return scenario


def load_replies(folder: Path, most: int | None = None) -> list[RecordedSetup]:
    """Read up to `most` replies per category of every model; raises InvalidConfiguration."""
    files = {name: path for path in sorted(folder.iterdir()) if (name := _name_of(path))}
    if QUESTIONS not in files:
        raise InvalidConfiguration("--replies", f"{folder} has no {QUESTIONS}.jsonl")
    questions = {
        (str(question.get("category")), str(question.get("id"))): RecordedQuestion(
            _list(question.get("messages")),
            _list(question.get("tools")),
            objects_in(question.get("truth")),
        )
        for question in _lines(files.pop(QUESTIONS))
    }
    setups: list[RecordedSetup] = []
    for name, path in files.items():
        scenarios = (
            ReplyScenario(questions[reply.category, reply.id], reply, key)
            for key, reply in enumerate(_limit_by_category(map(_reply, _lines(path)), most))
            if (reply.category, reply.id) in questions
        )
        if known := tuple(scenarios):
            setups.append(RecordedSetup(_UNSAFE.sub("_", name), known))
    if not setups:
        raise InvalidConfiguration("--replies", f"{folder} has no reply to any of its questions")
    return setups


def _name_of(path: Path) -> str:
    return next((path.name.removesuffix(end) for end in _ENDS if path.name.endswith(end)), "")


def _lines(path: Path) -> Iterator[JsonObject]:
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rb") as lines:
        for number, line in enumerate(lines, 1):
            try:
                value = json.parse(line)
            except ValueError as error:
                problem = f"line {number} is not JSON"
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


def _limit_by_category(
    replies: Iterable[RecordedReply], most: int | None
) -> Iterator[RecordedReply]:
    by_category: dict[str, list[RecordedReply]] = defaultdict(list)
    for reply in replies:
        by_category[reply.category].append(reply)
    for replies_of_category in by_category.values():
        yield from islice(replies_of_category, most)


def _without_dots(tool: JsonValue) -> JsonValue:
    if not isinstance(tool, dict):
        return tool
    function = function_of(tool)
    return {**tool, "function": {**function, "name": str(function.get("name")).replace(".", "_")}}


@dataclass(slots=True)
class ReplyCounts:
    """The outcomes of the recorded replies of a category.

    BFCL's handler for the model read `handler_right` of the replies correctly. Of these replies,
    `lost` counts those for which Temper returned no call and sent no retry, `retried` those for
    which Temper returned no call despite a retry, and `wrong` those for which Temper returned other
    calls. `needless` counts calls to questions for which no call is right. `again` counts requests
    with more than one generation, and `failed` counts runs with a failed request.
    """

    count: int = 0
    right: int = 0
    handler_right: int = 0
    lost: int = 0
    retried: int = 0
    wrong: int = 0
    needless: int = 0
    again: int = 0
    failed: int = 0

    def document(self) -> JsonObject:
        """Return the counts under the names that `temper eval --json` publishes."""
        return {_PUBLISHED.get(name, name): count for name, count in asdict(self).items()}

    def add(self, run: RunRecord, *, is_own_right: bool) -> None:
        was_retried, is_needless = run.generations > 1, run.why == NEEDLESS
        is_worse = is_own_right and not run.right and not is_needless
        self.count += 1
        self.right += run.right
        self.handler_right += is_own_right
        self.lost += is_worse and run.why == NO_CALL and not was_retried
        self.retried += is_worse and run.why == NO_CALL and was_retried
        self.wrong += is_worse and run.why != NO_CALL and run.ending != "failed"
        self.needless += is_needless
        self.again += was_retried
        self.failed += run.ending == "failed"


def count_replies(
    runs: Iterable[RunRecord], setups: Iterable[RecordedSetup]
) -> dict[tuple[str, str, str], ReplyCounts]:
    """Count by arm, model and category; the model `all` has the sums over all models."""
    read_right = {
        (setup.name, scenario.name): scenario.reply.own_handler_right
        for setup in setups
        for scenario in setup.scenarios
    }
    counts: dict[tuple[str, str, str], ReplyCounts] = defaultdict(ReplyCounts)
    for run in runs:
        for bed in (run.bed, "all"):
            is_own = read_right.get((run.bed, run.scenario), False)
            counts[run.arm, bed, run.family].add(run, is_own_right=is_own)
    return dict(
        sorted(counts.items(), key=lambda item: (item[0][1] == "all", item[0][1:], item[0]))
    )
