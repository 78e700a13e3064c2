"""A plain agent loop over HTTP, the same for every arm.

The model gets an error result for a failed tool and for an invalid call, in every arm.
"""

import hashlib
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

import httpx

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from temper_evals.replies import ReadMessage, ReplyFailed, events_in, has_content, problem_of
from temper_evals.scenarios.scenario import RunEnded, Scenario, World
from temper_evals.scenarios.task import calls_of, read_call, try_call
from temper_evals.scenarios.worlds import error_text

CHAT = "/v1/chat/completions"
_URGING = "Continue, or say that you are done."
# Temper reports attempts and outcome in headers, and at the end of a stream in a comment such as
# `: x-temper attempts=2; outcome=retried`.
_REPORT = re.compile(r"(attempts|outcome)=(\w+)")
_REPORTED = ("attempts", "outcome")
# "function_call" is the reason of the legacy functions API
_GOOD_ENDS = ("stop", "tool_calls", "function_call", "")


class Ending(Enum):
    """How a run ended; the call that ends a run, if there is one, counts as an answer."""

    ANSWERED = "answered"
    LIMIT = "limit"
    CUT_OFF = "cut_off"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Habits:
    """The habits of a client.

    A client that `urges` sends "Continue, or say that you are done." after the first reply without
    a call. A client that `requires` sets `tool_choice: required` in its first request.
    """

    urges: bool = False
    requires: bool = False
    streams: bool = True


@dataclass(frozen=True, slots=True)
class ModelTarget:
    """The URL, model and headers of chat requests."""

    url: str
    model: str = "simulated"
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class ScenarioRun:
    """The transcript of a run, its ending, and its cost as the client measures it."""

    transcript: list[JsonObject] = field(default_factory=list)
    ending: Ending = Ending.LIMIT
    problem: str = ""
    requests: int = 0
    seconds: float = 0.0
    text_seconds: list[float] = field(default_factory=list)
    call_seconds: list[float] = field(default_factory=list)
    outcomes: list[str] = field(default_factory=list)
    attempts: int = 0
    usages: list[JsonObject] = field(default_factory=list)
    chunks: int = 0  # in the current reply so far

    @property
    def tokens(self) -> int:
        """The generated tokens; in the current reply, each chunk counts as one token."""
        counts = [usage.get("completion_tokens") for usage in self.usages]
        return self.chunks + sum(count for count in counts if isinstance(count, int))

    @property
    def digest(self) -> str:
        """A hash of all assistant messages, including calls and their ids."""
        replies: list[JsonValue] = [
            message for message in self.transcript if message.get("role") == "assistant"
        ]
        return hashlib.blake2b(json.dump(replies), digest_size=8).hexdigest()


@dataclass(slots=True)
class AgentLoop:
    """Runs scenarios on one target."""

    client: httpx.AsyncClient
    target: ModelTarget
    habits: Habits = Habits()

    async def run(
        self, scenario: Scenario, seed: int, world: World, run: ScenarioRun | None = None
    ) -> ScenarioRun:
        """Run a scenario until an answer, its limit or a failure.

        `run` is updated during the run, so that a caller can watch it.
        """
        run, begun = run or ScenarioRun(), time.monotonic()
        body = scenario.request(seed)
        first = body["messages"]
        history: list[JsonValue] = [*first] if isinstance(first, list) else []
        has_urged = False
        while run.requests < scenario.limit and run.ending is Ending.LIMIT:
            extra = self._first(scenario, body) if run.requests == 0 else {}
            messages = [*history, *run.transcript]
            message = await self._request_reply({**body, **extra, "messages": messages}, run)
            if message is None:
                break
            run.transcript.append(message)
            if calls := calls_of(message):
                _run_calls(calls, world, run)
            elif self.habits.urges and not has_urged:
                has_urged = True
                run.transcript.append({"role": "user", "content": _URGING})
            else:
                run.ending = Ending.ANSWERED
        run.seconds = time.monotonic() - begun
        return run

    def _first(self, scenario: Scenario, body: JsonObject) -> JsonObject:
        wanted: JsonObject = {"tool_choice": "required"} if self.habits.requires else {}
        return {**(wanted if body.get("tools") else {}), **scenario.first_fields()}

    async def _request_reply(self, body: JsonObject, run: ScenarioRun) -> JsonObject | None:
        """Request one reply; returns None if the request failed, which ends the run."""
        run.requests += 1
        run.chunks = 0
        sent = {**body, "model": self.target.model, "stream": self.habits.streams}
        reply = ReadMessage()
        try:
            await self._read(sent, reply, run)
        except (ReplyFailed, httpx.HTTPError) as failure:
            run.ending = Ending.FAILED
            run.problem = str(failure) or type(failure).__name__
            return None
        if reply.usage:
            run.usages.append(reply.usage)
            run.chunks = 0
        if reply.reason not in _GOOD_ENDS:
            run.ending, run.problem = Ending.CUT_OFF, reply.reason
        return reply.message()

    async def _read(self, body: JsonObject, reply: ReadMessage, run: ScenarioRun) -> None:
        begun = time.monotonic()
        url = f"{self.target.url}{CHAT}"
        headers = {"content-type": "application/json", **self.target.headers}
        sent = json.dump(body)
        async with self.client.stream("POST", url, content=sent, headers=headers) as answer:
            _record_report(
                {name: answer.headers.get(f"x-temper-{name}", "") for name in _REPORTED}, run
            )
            if answer.status_code != httpx.codes.OK or not self.habits.streams:
                self._read_whole(await answer.aread(), answer.status_code, reply)
                return
            async for line in answer.aiter_lines():
                if line.startswith(": x-temper "):
                    _record_report(dict(_REPORT.findall(line)), run)
                for event in events_in((line,)):
                    run.chunks += has_content(event)
                    had = reply.has_text, bool(reply.calls)
                    reply.take(event)
                    _record_times(reply, had, time.monotonic() - begun, run)
        # a dropped connection also ends the stream, and a partial call must not be run
        if not reply.reason:
            raise ReplyFailed("the stream ended without a finish reason")

    @staticmethod
    def _read_whole(document: bytes, status: int, reply: ReadMessage) -> None:
        try:
            body = json.parse(document)
        except ValueError:
            body = None
        if not isinstance(body, dict):
            raise ReplyFailed(f"status {status} without JSON")
        if status != httpx.codes.OK:
            raise ReplyFailed(f"{status} {problem_of(body)}")
        reply.take(body)


def _record_report(report: Mapping[str, str], run: ScenarioRun) -> None:
    """Record the outcome and the attempts that Temper reports; other servers report neither."""
    if outcome := report.get("outcome"):
        run.outcomes.append(outcome)
        run.attempts += int(report.get("attempts") or 1)


def _record_times(
    reply: ReadMessage, had: tuple[bool, bool], seconds: float, run: ScenarioRun
) -> None:
    """Record when the first text and the first call of a reply arrived."""
    had_text, had_calls = had
    if reply.has_text and not had_text:
        run.text_seconds.append(seconds)
    if reply.calls and not had_calls:
        run.call_seconds.append(seconds)


def _run_calls(calls: Sequence[JsonObject], world: World, run: ScenarioRun) -> None:
    try:
        for call in calls:
            run.transcript.append(_run_call(call, world))
    except RunEnded:
        run.ending = Ending.ANSWERED


def _run_call(call: JsonObject, world: World) -> JsonObject:
    planned = read_call(call)
    if planned is None:
        text = error_text("the arguments are not a JSON object")
    else:
        text = try_call(world, planned)
    return {"role": "tool", "tool_call_id": call.get("id"), "content": text}
