"""The output of `temper demo`, for people and for programs."""

import shlex
from collections.abc import Iterator, Sequence

from rich.console import Group
from rich.table import Table
from rich.text import Text

from proxy.conversation import json
from proxy.conversation.json import JsonObject
from temper_evals.demo.answers import AnswerKind, ClientAnswer, Comparison
from temper_evals.demo.scenarios import Demonstration, Example

_WIDEST = 120
_COLUMNS = {"what the model writes": 20, "without Temper": 11, "with Temper": 25}  # relative widths
_FIRST_COLUMN = 11

# a short tool, so that the command fits on a line
_TOOL: JsonObject = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    },
}


def table(comparisons: Sequence[Comparison], width: int, heading: str) -> Group:
    """Return the table of all responses side by side, with the summary."""
    rows = Table(show_lines=True, width=min(width, _WIDEST))
    for title, ratio in {heading: _FIRST_COLUMN, **_COLUMNS}.items():
        rows.add_column(title, ratio=ratio, overflow="fold")
    for comparison in comparisons:
        rows.add_row(
            Text(comparison.scenario.title, "bold"),
            Text(comparison.model_text, "dim"),
            _cell(comparison, comparison.without),
            _cell(comparison, comparison.through),
        )
    return Group(rows, Text(summary(comparisons), "bold"))


def summary(comparisons: Sequence[Comparison]) -> str:
    """Return sentences with the number of usable calls and, if known, of right calls."""
    counts = {"Usable": _usable(comparisons)}
    if any(comparison.scenario.right for comparison in comparisons):
        counts["Right"] = _right(comparisons)
    total = len(comparisons)
    return "\n".join(
        f"{kind} calls: {without} of {total} without Temper, {through} of {total} with Temper."
        for kind, (without, through) in counts.items()
    )


def document(comparisons: Sequence[Comparison], url: str, model: str) -> JsonObject:
    """Return the comparisons and the counts as JSON."""
    counts = {"usable_calls": _usable(comparisons)}
    if any(comparison.scenario.right for comparison in comparisons):
        counts["right_calls"] = _right(comparisons)
    return {
        "model": model,
        "url": url,
        **{
            kind: {"without": without, "with": through, "of": len(comparisons)}
            for kind, (without, through) in counts.items()
        },
        "requests": [
            {
                "title": comparison.scenario.title,
                "prompt": comparison.scenario.prompt,
                "written": comparison.model_text,
                "without": _members(comparison.without),
                "with": _members(comparison.through),
            }
            for comparison in comparisons
        ],
    }


def commands(shown: Demonstration, url: str) -> Iterator[tuple[str, str]]:
    """Yield the title and the shell command of each example."""
    for example in shown.examples:
        yield example.title, _curl(url, shown.name, example)


def _curl(url: str, model: str, example: Example) -> str:
    """Return a curl command in two lines, joined by a backslash."""
    body: JsonObject = {
        "model": model,
        "messages": [{"role": "user", "content": example.prompt}],
        "tools": [_TOOL],
        **({"stream": True} if example.streams else {}),
    }
    return (
        f"curl -sNw '\\n' {url}/v1/chat/completions {example.options}\\\n"
        f" -H 'content-type: application/json' -d {shlex.quote(json.dump_text(body))}"
    )


def _cell(comparison: Comparison, answer: ClientAnswer) -> Text:
    is_wrong = answer.is_usable and comparison.is_wrong(answer)
    style = "yellow" if is_wrong else "green" if answer.is_usable else "red"
    cell = Text(_describe(answer, comparison.model_text), style)
    cell.append(" (wrong)" if is_wrong else "")
    return cell.append(f"\n({answer.effort})", "dim") if answer.effort else cell


def _describe(answer: ClientAnswer, model_text: str) -> str:
    match answer.kind:
        case AnswerKind.CALL:
            return answer.words
        case AnswerKind.UNUSABLE_CALL:
            return f"unusable call: {answer.words}"
        case AnswerKind.TEXT if answer.words == model_text:
            return "no call, only the text"
        case AnswerKind.TEXT:
            return f"no call, only text: {answer.words}"
        case AnswerKind.ERROR:
            return f"an error: {answer.words}"


def _usable(comparisons: Sequence[Comparison]) -> tuple[int, int]:
    without = sum(comparison.without.is_usable for comparison in comparisons)
    through = sum(comparison.through.is_usable for comparison in comparisons)
    return without, through


def _right(comparisons: Sequence[Comparison]) -> tuple[int, int]:
    without = sum(not comparison.is_wrong(comparison.without) for comparison in comparisons)
    through = sum(not comparison.is_wrong(comparison.through) for comparison in comparisons)
    return without, through


def _members(answer: ClientAnswer) -> JsonObject:
    return {
        "kind": answer.kind.value,
        "usable": answer.is_usable,
        "answer": answer.words,
        "effort": answer.effort,
    }
