"""Judges transcripts: completed tasks, repeated effects, and markup that the user saw.

The judge compares the calls that succeeded with the calls that the task needs. A needed call
without a match is missing. A call with an effect that matches no open need is repeated if it
matched before, else needless. Refused calls and surplus reads do not count. Pure functions.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from json import JSONDecodeError, JSONDecoder

from benchmarks.real.bed import Need, Task, ToolSet
from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue

# the beginning of the proxy's apology after unusable attempts (`proxy.facts`)
APOLOGY = "The model gave no usable reply"
OUT_OF_TIME = "out of time"

_CALL_MARKUP = re.compile(
    r"</?tool_calls?>|</?function_calls?>|<function=|</function>|<invoke\b|\[TOOL_CALLS\]"
    r"|<\|(?:tool_call|im_start|im_end|python_tag)",
    re.IGNORECASE,
)
_RESULT_MARKUP = re.compile(
    r"</?tool_(?:response|result|output)s?>|</?function_results?>|\[TOOL_RESULTS\]"
    r"|<\|tool_(?:response|result)",
    re.IGNORECASE,
)
_FENCE = re.compile(r"\A\s*```\w*\s*\n(.*?)\n?\s*```\s*\Z", re.DOTALL)
_NAME_KEYS = ("name", "function", "tool")
_ARGUMENT_KEYS = ("arguments", "parameters", "args", "input")
_DECODER = JSONDecoder()


@dataclass(frozen=True, slots=True)
class MadeCall:
    """A call that the client ran; `arguments` is None where they were not a JSON object."""

    name: str
    arguments: JsonObject | None
    result: str
    succeeded: bool

    @property
    def key(self) -> str:
        return call_key(self.name, self.arguments)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict on a run.

    `missing` are the needed calls that never succeeded. `needless` and `repeated` are calls with an
    effect that no need explains, or whose need was met before. Any of them makes a run wrong.
    """

    missing: tuple[str, ...] = ()
    needless: tuple[str, ...] = ()
    repeated: tuple[str, ...] = ()

    @property
    def right(self) -> bool:
        return not (self.missing or self.needless or self.repeated)

    def __str__(self) -> str:
        parts = {"missing": self.missing, "needless": self.needless, "repeated": self.repeated}
        return "; ".join(f"{name} {', '.join(calls)}" for name, calls in parts.items() if calls)


def judge(task: Task, calls: Sequence[MadeCall], effects: Collection[str]) -> Verdict:
    """Judge the calls of a run; `effects` are the tools that change the world.

    Only calls that succeeded count: a refused call did nothing. Reading more than necessary is not
    wrong, except in a task that needs no tool at all.
    """
    open_needs, met = list(task.needs), list[Need]()
    seen = set[str]()
    needless, repeated = list[str](), list[str]()
    # in the order of the transcript: the first match fulfills a need, a later copy is a repetition
    for call in calls:
        if not task.needs:
            needless.append(call.key)
            continue
        if not call.succeeded or call.arguments is None:
            continue
        is_copy = call.key in seen
        seen.add(call.key)
        if need := _first_match(open_needs, call):
            open_needs.remove(need)
            met.append(need)
        elif call.name in effects:
            was_done = is_copy or _first_match(met, call) is not None
            (repeated if was_done else needless).append(call.key)
    missing = tuple(need.tool for need in open_needs)
    return Verdict(missing, tuple(needless), tuple(repeated))


def _first_match(needs: Sequence[Need], call: MadeCall) -> Need | None:
    arguments = call.arguments or {}
    return next((need for need in needs if need.matches(call.name, arguments)), None)


def call_key(name: str, arguments: JsonValue) -> str:
    """Return the same text for calls that differ in the case or the order of their arguments."""
    return f"{name} {json.dump_text(_normal(arguments))}"


def _normal(value: JsonValue) -> JsonValue:
    match value:
        case str():
            return value.strip().lower()
        case list():
            return [_normal(item) for item in value]
        case dict():
            return {name: _normal(value[name]) for name in sorted(value)}
        case _:
            return value


def exposed_markup(text: str, tools: Collection[str], results: Collection[str]) -> tuple[str, ...]:
    """Name the kinds of markup in a text that the user saw.

    `tools` are the tools of the request, `results` the results of the calls before it.
    """
    kinds = {
        "call markup": _CALL_MARKUP.search(text) is not None,
        "result markup": _RESULT_MARKUP.search(text) is not None,
        "JSON of a call": bool(calls_in(text, tools)) or _has_call_beginning(text, tools),
        "JSON as the answer": _is_json(text, results),
    }
    return tuple(kind for kind, is_there in kinds.items() if is_there)


def _has_call_beginning(text: str, tools: Collection[str]) -> bool:
    """Return whether the text has a call that is cut off, or whose JSON is broken."""
    names = "|".join(re.escape(name) for name in sorted(tools))
    keys = "|".join(_NAME_KEYS)
    return bool(names) and re.search(rf'\{{\s*"(?:{keys})"\s*:\s*"(?:{names})"', text) is not None


def _is_json(text: str, results: Collection[str]) -> bool:
    """Return whether the whole text is a result, or another JSON object or array."""
    if (fenced := _FENCE.match(text)) is not None:
        text = fenced[1]
    text = text.strip()
    if text and text in {result.strip() for result in results if result.startswith(("{", "["))}:
        return True
    try:
        return isinstance(json.parse(text), dict | list)
    except ValueError:
        return False


def calls_in(text: str, tools: Collection[str]) -> list[str]:
    """Return the keys of the complete calls that a text contains as JSON, in their order."""
    return [key for value in _objects_in(text) if (key := _key_of(value, tools))]


def _objects_in(text: str) -> Iterator[JsonObject]:
    """Yield the outermost JSON objects in a text, and those in lists."""
    start = text.find("{")
    while start >= 0:
        try:
            # raw_decode finds the end of the object, which json.loads does not report
            value, end = _DECODER.raw_decode(text, start)
        except (JSONDecodeError, RecursionError):
            end = start + 1
        else:
            if isinstance(value, dict):
                yield value
        start = text.find("{", end)


def _key_of(value: JsonObject, tools: Collection[str]) -> str:
    inner = value.get("function")
    if isinstance(inner, dict):  # {"type": "function", "function": {"name": ..., ...}}
        return _key_of(inner, tools)
    name = next((value[key] for key in _NAME_KEYS if key in value), None)
    if not isinstance(name, str) or name not in tools:
        return ""
    arguments = next((value[key] for key in _ARGUMENT_KEYS if key in value), None)
    return call_key(name, arguments) if isinstance(arguments, dict) else ""


def most_identical(keys: Sequence[str]) -> int:
    """Return how often the most frequent call occurs; 0 without calls."""
    return max(Counter(keys).values(), default=0)


def identical_calls(pieces: Sequence[Sequence[JsonValue]], tools: Collection[str]) -> int:
    """Count the copies of the most frequent complete call in one recorded generation.

    `pieces` are those of a recording: `["text", "..."]`, `["call", index, id, name]` and
    `["arguments", index, "..."]`.
    """
    text = "".join(str(piece[1]) for piece in pieces if piece[0] == "text")
    names = {piece[1]: str(piece[3]) for piece in pieces if piece[0] == "call"}
    arguments: dict[JsonValue, str] = dict.fromkeys(names, "")
    for piece in pieces:
        if piece[0] == "arguments" and piece[1] in names:
            arguments[piece[1]] += str(piece[2])
    native = [
        call_key(names[index], read)
        for index, text in arguments.items()
        if (read := read_arguments(text)) is not None
    ]
    return most_identical([*calls_in(text, tools), *native])


def read_arguments(text: str) -> JsonObject | None:
    """Return the arguments of a call, None where they are not a JSON object."""
    try:
        value = json.parse(text or "{}")
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


@dataclass(frozen=True, slots=True)
class Reply:
    """A reply to one request; `attempts` is None without the header of Temper."""

    text: str
    calls: int
    attempts: int | None = None


@dataclass(frozen=True, slots=True)
class TaskRun:
    """The transcript of one task: its replies, the calls that were run, and the failure, if any."""

    number: int
    seed: int
    replies: tuple[Reply, ...]
    calls: tuple[MadeCall, ...]
    seconds: float
    problem: str = ""


@dataclass(frozen=True, slots=True)
class JudgedRun:
    """A run with its verdict and the properties that the table counts."""

    run: TaskRun
    verdict: Verdict
    exposed: tuple[tuple[str, ...], ...]  # of each reply that shows markup
    has_apology: bool
    has_answer: bool

    @property
    def right(self) -> bool:
        return self.verdict.right and not self.run.problem


def judge_run(run: TaskRun, task: Task, tools: ToolSet) -> JudgedRun:
    """Judge a run by its transcript.

    `has_answer`: the run ended with words for the user, without a call, markup or apology of the
    proxy. `has_apology` counts only after successful calls, of which the user then learns nothing.
    """
    results = [call.result for call in run.calls]
    exposed = [exposed_markup(reply.text, tools.names, results) for reply in run.replies]
    last = run.replies[-1] if run.replies else Reply("", 0)
    apologizes = APOLOGY in last.text
    has_words = bool(last.text.strip()) and not last.calls and not run.problem
    return JudgedRun(
        run,
        judge(task, run.calls, tools.effects),
        tuple(kinds for kinds in exposed if kinds),
        has_apology=apologizes and any(call.succeeded for call in run.calls),
        has_answer=has_words and not apologizes and not (exposed and exposed[-1]),
    )
