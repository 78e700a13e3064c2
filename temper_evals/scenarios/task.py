"""A scenario as a plan: steps that need values from the prompt, and the required end.

`PlannedTask.position` is the oracle: it gives the right next step for the messages of a request. If
the step needs a text that is not in the messages anymore, no step is right, whether the client or a
proxy removed the text.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from temper_evals.scenarios.raw_answers import objection_to_raw
from temper_evals.scenarios.scenario import (
    Action,
    CallTools,
    GiveAnswer,
    Judgment,
    NotKnown,
    PlannedCall,
    Position,
    ToolFailed,
    Transcript,
    World,
)
from temper_evals.scenarios.worlds import (
    CannedWorld,
    Setting,
    error_text,
    key_of,
    objection,
    objects_in,
    possible_results,
)

_EXTRA_REPLIES = 5


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """Calls of one reply, and the texts that the prompt must contain to make them."""

    calls: tuple[PlannedCall, ...]
    needs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ExpectedEnd:
    """The required end of a run.

    The answer must contain all `facts`. With `no_calls`, any call is wrong. A `quoted` call occurs
    in a text that the model reads, and must not be made. If `single`, a reply may have only one
    call, because the request forbids parallel calls. With `form`, the answer must be JSON with
    these members.
    """

    facts: tuple[str, ...] = ()
    no_calls: bool = False
    quoted: PlannedCall | None = None
    single: bool = False
    form: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PlannedTask:
    """A scenario of one of the families."""

    family: str
    index: int
    user: str
    setting: Setting
    steps: tuple[PlannedStep, ...]
    answer: str
    expected: ExpectedEnd
    fields: JsonObject = field(default_factory=dict)
    first: JsonObject = field(default_factory=dict)
    system: str = ""

    @property
    def name(self) -> str:
        return f"{self.family}-{self.index}"

    @property
    def limit(self) -> int:
        """The limit of replies: three times the necessary number, and five more."""
        return 3 * (len(self.steps) + 1) + _EXTRA_REPLIES

    @property
    def calls(self) -> tuple[PlannedCall, ...]:
        """The right calls, in order."""
        return tuple(call for step in self.steps for call in step.calls)

    def request(self, seed: int) -> JsonObject:
        """Return the members of every request; `[case chain-3/0]` names the task and the seed."""
        text = f"[case {self.name}/{seed}] {self.user}"
        system: list[JsonValue] = [{"role": "system", "content": self.system}]
        user: JsonValue = {"role": "user", "content": text}
        messages = [*(system if self.system else []), user]
        return {"messages": messages, "tools": [*self.setting.tools], **self.fields}

    def first_fields(self) -> JsonObject:
        return self.first

    def world(self) -> CannedWorld:
        return CannedWorld(self.setting)

    def position(self, seen: Transcript) -> Position:
        """Return the position in a conversation, derived from its messages alone."""
        results = _without_repetitions(_results(self.setting, seen))
        last = max((result.index for result in results), default=-1)
        tries = sum(1 for message in seen[last + 1 :] if message.get("role") == "assistant")
        made = Counter(result.key for result in results)
        progress = max(len(results), self._furthest(made))
        action = self._next_action(seen, progress, made)
        fails = bool(results) and results[-1].fails
        return Position(progress, tries, action, after_failure=fails)

    def _next_action(self, seen: Transcript, progress: int, made: Counter[str]) -> Action:
        """Return the right next step after `progress` calls; `made` counts the executed calls."""
        planned = 0
        for step in self.steps:
            planned += len(step.calls)
            if progress < planned:
                missing = _missing(step.needs, seen)
                next_calls = tuple(call for call in step.calls if not made[_key(call)])
                # a call with a wrong value counts as progress, so fewer calls may remain
                next_calls = next_calls[: planned - progress] or step.calls[progress - planned :]
                return NotKnown(missing) if missing else CallTools(next_calls)
        missing = _missing(self.expected.facts, seen) if self.steps else ""
        return NotKnown(missing) if missing else GiveAnswer(self.answer)

    def _furthest(self, made: Counter[str]) -> int:
        """Return the number of planned calls up to the last step whose calls were all made."""
        furthest, planned, expected = 0, 0, Counter[str]()
        for step in self.steps:
            planned += len(step.calls)
            expected.update(map(_key, step.calls))
            if all(made[_key(call)] >= expected[_key(call)] for call in step.calls):
                furthest = planned
        return furthest

    def judge(self, end: World, transcript: Transcript) -> Judgment:
        """Judge a run by its changes and by its answer."""
        if not isinstance(end, CannedWorld):
            return Judgment(right=False, why="it ran in another world")
        changes = Counter(map(_key, end.changes))
        expected = Counter(map(_key, self._changes()))
        quoted = self.expected.quoted
        promoted = sum(1 for call in end.calls if call == quoted)
        why = self._objection(end, changes, expected) or self._objection_to_words(transcript)
        damage = sum((changes - expected).values())
        return Judgment(right=not why, why=why, damage=damage, promoted=promoted)

    def _changes(self) -> tuple[PlannedCall, ...]:
        """Return the planned calls that change the world."""
        world = self.world()
        for call in self.calls:
            try_call(world, call)
        return tuple(world.changes)

    def _objection(self, end: CannedWorld, changes: Counter[str], expected: Counter[str]) -> str:
        if self.expected.no_calls and end.calls:
            return f"needless call: {end.calls[0].name}"
        if extra := changes - expected:
            return f"unrequested change: {next(iter(extra))}"
        if lacking := expected - changes:
            return f"missing call: {next(iter(lacking))}"
        return ""

    def _objection_to_words(self, transcript: Transcript) -> str:
        answer = last_words(transcript)
        if answer is None:
            return "no answer"
        if lacking := [fact for fact in self.expected.facts if fact not in answer]:
            return f"the answer lacks {lacking[0]!r}"
        if self.expected.single and any(len(calls_of(message)) > 1 for message in transcript):
            return "several calls at once"
        quotes = self.expected.quoted is not None
        raw = objection_to_raw(answer, transcript, self.setting.tools, may_quote=quotes)
        return raw or _objection_to_form(answer, self.expected.form)


@dataclass(frozen=True, slots=True)
class _StepResult:
    """The result of an executed call, with the `index` of its message in the transcript.

    `key` is the `key_of` the call. `fails` is true if the scenario plans this failure.
    """

    key: str
    text: str
    index: int
    fails: bool


def _results(setting: Setting, seen: Transcript) -> list[_StepResult]:
    """Return the results of executed calls.

    A tool message whose text cannot be a result is skipped, because it reports that a call was not
    executed.
    """
    calls = {str(call.get("id")): call for message in seen for call in calls_of(message)}
    latest = max((index for index, message in enumerate(seen) if calls_of(message)), default=0)
    results: list[_StepResult] = []
    for index, message in enumerate(seen):
        call = read_call(calls.get(str(message.get("tool_call_id")), {}))
        if message.get("role") != "tool" or call is None:
            continue
        if objection(setting.tools, call.name, call.arguments) is not None:
            continue
        text, possible = str(message.get("content")), possible_results(setting, call)
        # a proxy may have shortened a result, except the results of the latest calls
        if text in possible or (possible and index < latest and not text.startswith(_ERROR)):
            fails = possible.get(text, False)
            results.append(_StepResult(key_of(call.name, call.arguments), text, index, fails))
    return results


def _key(call: PlannedCall) -> str:
    return key_of(call.name, call.arguments)


def _without_repetitions(results: Sequence[_StepResult]) -> list[_StepResult]:
    """Drop results that repeat an earlier result of the same call, because they are no progress."""
    first: dict[tuple[str, str], _StepResult] = {}
    for result in results:
        first.setdefault((result.key, result.text), result)
    return [*first.values()]


_ERROR = '{"error":'


def read_call(call: JsonObject) -> PlannedCall | None:
    """Read a tool call of a message; None if its arguments are not an object."""
    function = call.get("function")
    if not isinstance(function, dict):
        return None
    text = function.get("arguments")
    try:
        arguments = json.parse(text) if isinstance(text, str) else text
    except ValueError:
        return None
    return (
        PlannedCall(str(function.get("name")), arguments) if isinstance(arguments, dict) else None
    )


def calls_of(message: JsonObject) -> list[JsonObject]:
    return objects_in(message.get("tool_calls"))


def last_words(transcript: Transcript) -> str | None:
    """Return the model's texts after its last call; None if the run ended with a call."""
    if not transcript or transcript[-1].get("role") != "assistant" or calls_of(transcript[-1]):
        return None
    texts: list[str] = []
    for message in reversed(transcript):
        if message.get("role") == "tool" or calls_of(message):
            break
        if message.get("role") == "assistant":
            texts.append(str(message.get("content") or ""))
    return "\n".join(reversed(texts))


def try_call(world: World, call: PlannedCall) -> str:
    """Run a call; returns its result or its error as the text for the model."""
    try:
        return world.call(call.name, call.arguments)
    except ToolFailed as failure:
        return error_text(str(failure))


def _missing(needs: Sequence[str], seen: Transcript) -> str:
    """Return the first needed text that is in no message; "" if there is none."""
    conversation = "\n".join(_visible(message) for message in seen)
    return next((need for need in needs if need not in conversation), "")


def _visible(message: JsonObject) -> str:
    content = message.get("content")
    text = content if isinstance(content, str) else json.dump_text(content)
    calls = message.get("tool_calls")
    return f"{text}\n{json.dump_text(calls)}" if calls else text


def _objection_to_form(answer: str, form: tuple[str, ...]) -> str:
    if not form:
        return ""
    try:
        value = json.parse(answer)
    except ValueError:
        return "the answer is not JSON"
    lacks = not isinstance(value, dict) or {*value} != {*form}
    return "the answer has the wrong members" if lacks else ""
