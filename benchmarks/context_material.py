"""What the agent of `benchmarks.context_run` does: its tools, calls, results, and planted facts.

Everything follows from a seed. Results are what programs print: lines with ids, paths, times,
and now and then an error.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue

_LEAST, _MOST = 150, 900  # tokens of a result
_PLANTED_STEPS = 10  # the facts stand in the results of so many first steps
_REMARK_EVERY = 9  # steps, then the user says something
_FAILS_EVERY = 8
_MARK = "[[step {}]]"

_SYSTEM = """You are a coding agent in the repository of a shop. Work in small steps: look first, \
change one thing, run the tests, look again. Call one tool at a time and wait for its result. \
Never guess a path or an id: find it. Say what you found in one sentence when you are done."""
_TASK = "Orders are charged twice when the payment service is slow. Find out why, and mend it. "
_REMARKS = (
    "Please look at the retries as well.",
    "The failure was seen in the second region, too.",
    "Leave the public interface as it is.",
    "Is the lock held while the request waits?",
    "Good. Go on with the next file.",
)
_TOOLS = {
    "read_file": {"path": "The file, from the root of the repository.", "lines": "A range."},
    "search_code": {"pattern": "What to look for.", "path": "The folder to look in."},
    "run_tests": {"target": "A folder, a file or one test.", "options": "Further options."},
    "query_orders": {"where": "A condition.", "order": "How to sort."},
    "edit_file": {"path": "The file.", "old": "The text to replace.", "new": "Its replacement."},
}
_FOLDERS = ("parser", "options", "arguments", "values", "actions", "groups", "default")
_FILES = ("function", "source", "signature", "format", "module", "usage", "class")
_REASONS = ("connection reset by peer", "invalid choice", "expected one argument", "not callable")


@dataclass(frozen=True, slots=True)
class Planted:
    """Something that a later step may need: the kind, and the words that must be found again."""

    kind: str
    words: str


@dataclass(slots=True)
class AgentRun:
    """One run of so many `turns`; `results` and `remarks` are the client's part, by step.

    `spelled` results are for a model whose tokens are single characters: as many tokens, and so
    far less text.
    """

    turns: int
    seed: int = 1
    spelled: bool = False
    results: list[str] = field(default_factory=list)
    remarks: dict[int, str] = field(default_factory=dict)
    scripts: dict[str, str] = field(default_factory=dict)
    planted: list[Planted] = field(default_factory=list)

    def __post_init__(self) -> None:
        chance = random.Random(self.seed)  # noqa: S311 - material, not secrets
        lines = _Lines(chance)
        for step in range(self.turns):
            self.scripts[_MARK.format(step)] = _call(lines)
        self.scripts["default"] = "There is nothing left to do."
        for step in range(self.turns):
            self.results.append(self._result(lines, step, chance.randint(_LEAST, _MOST)))
            if step % _REMARK_EVERY == _REMARK_EVERY - 1:
                remark = _REMARKS[step // _REMARK_EVERY % len(_REMARKS)]
                self.remarks[step] = remark

    def first_messages(self) -> list[JsonValue]:
        """Make the beginning of the conversation."""
        task = _TASK + "Go on with " + _MARK.format(0)
        return [{"role": "system", "content": _SYSTEM}, {"role": "user", "content": task}]

    def _result(self, lines: "_Lines", step: int, tokens: int) -> str:
        """Write a result; two facts stand somewhere in it if it is an early one."""
        next_line, characters = lines.printer()
        length = tokens * (1 if self.spelled else characters)
        if step % _FAILS_EVERY == _FAILS_EVERY - 1:
            printed = [f"Error: {lines.reason()} in {lines.path()}"]
        else:
            printed = [f"{lines.path()}: {lines.number(2, 400)} lines"]
        while sum(map(len, printed)) + len(printed) < length:
            printed.append(next_line())
        if step < _PLANTED_STEPS:
            for number in (2 * step, 2 * step + 1):
                line, fact = lines.fact(number)
                printed.insert(lines.number(1, len(printed)), line)
                self.planted.append(fact)
        return "\n".join([*printed, f"go on with {_MARK.format(step + 1)}"])


def tools() -> list[JsonValue]:
    """Describe the tools of the agent."""
    return [_tool(name, options) for name, options in _TOOLS.items()]


def _tool(name: str, options: dict[str, str]) -> JsonValue:
    properties: JsonObject = {
        option: {"type": "string", "description": told} for option, told in options.items()
    }
    parameters: JsonObject = {
        "type": "object",
        "properties": properties,
        "required": [next(iter(options))],
        "additionalProperties": False,
    }
    about = f"{name.replace('_', ' ').capitalize()} and return what was found, line by line."
    described: JsonObject = {"name": name, "description": about, "parameters": parameters}
    return {"type": "function", "function": described}


def _call(lines: "_Lines") -> str:
    """Write a call as the template of the demonstration does."""
    name, arguments = lines.call()
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


class _Lines:
    """Makes up what programs print."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    def printer(self) -> tuple[Callable[[], str], float]:
        """Choose what a program prints all the time; also characters per token of that."""
        return self._chance.choice(
            (
                (self._log, 1.65),  # single digits are tokens
                (self._row, 1.65),
                (self._listing, 2.5),
                (self._code, 3.1),
                (self._words, 4.5),
            )
        )

    def number(self, least: int, most: int) -> int:
        """Make a number."""
        return self._chance.randint(least, most)

    def path(self) -> str:
        """Make a path of the repository."""
        folder, file = self._chance.choice(_FOLDERS), self._chance.choice(_FILES)
        return f"src/{folder}/{file}_{self.number(1, 99)}.py"

    def reason(self) -> str:
        """Make a reason for a failure."""
        return self._chance.choice(_REASONS)

    def call(self) -> tuple[str, str]:
        """Make the name and the arguments of a call."""
        name = self._chance.choice(list(_TOOLS))
        first = next(iter(_TOOLS[name]))
        value = f"{self.path()}#{self.number(100, 999)}"
        return name, json.dump_text({first: value})

    def fact(self, number: int) -> tuple[str, Planted]:
        """Make a line with a fact: ids, paths and codes in turn, every other one without a name."""
        kind = ("id", "path", "error code")[number % 3]
        is_named = number // 3 % 2 == 0
        match kind:
            case "id":
                words = f"{self._hexadecimal(4)}-{self._hexadecimal(6)}"
                line = f"order id: {words}" if is_named else f"charged {words} a second time"
            case "path":
                words = f"src/values/found_{self.number(1000, 9999)}.py"
                line = f"path: {words}" if is_named else f"    from {words} line 12"
            case _:
                words = f"PAY-{self.number(10_000, 99_999)}"
                line = f"error {words}: charged twice" if is_named else f"gave up with {words}"
        return line, Planted(kind if is_named else f"{kind}, unnamed", words)

    def _hexadecimal(self, length: int) -> str:
        return f"{self._chance.getrandbits(4 * length):0{length}x}"

    def _log(self) -> str:
        level = self._chance.choices(("INFO", "DEBUG", "ERROR"), (6, 4, 1))[0]
        moment = f"09:{self.number(10, 59)}:{self.number(10, 59)}.{self.number(100, 999)}"
        said = f"error: {self.reason()}" if level == "ERROR" else "parsed the arguments in one step"
        return f"{level} {moment} worker-{self.number(1, 8)} {said}"

    def _row(self) -> str:
        return f'{{"id": "{self._hexadecimal(8)}", "total": {self.number(100, 9999)}}}'

    def _listing(self) -> str:
        return f"{self.path()}:{self.number(1, 400)}: return self._get_values(action, arg_strings)"

    def _code(self) -> str:
        name = self._chance.choice(("action", "option", "value", "parameter"))
        return f"        if {name} is not None and not {name}.default:  # {self.number(1, 99)}"

    def _words(self) -> str:
        return "The value is returned as it was read, and the next argument follows."
