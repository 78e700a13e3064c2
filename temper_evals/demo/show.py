"""What `temper demo` prints, for people and for programs; it is given what was seen."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.console import Group
from rich.table import Table
from rich.text import Text

from proxy.conversation import json
from proxy.conversation.json import JsonObject
from temper_evals.demo.answers import AnswerKind, ClientAnswer, Comparison

_WIDEST = 120
_COLUMNS = {"what the model writes": 20, "without Temper": 11, "with Temper": 25}  # and widths
_FIRST_COLUMN = 11

# only as much of a tool as a line for pasting needs
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


@dataclass(frozen=True, slots=True)
class Example:
    """A command to try: what it shows, and the command, which may be pasted into a shell."""

    title: str
    command: str


def table(comparisons: Sequence[Comparison], width: int, heading: str) -> Group:
    """Return everything that was seen, side by side, and what it amounts to."""
    rows = Table(show_lines=True, width=min(width, _WIDEST))
    for title, ratio in {heading: _FIRST_COLUMN, **_COLUMNS}.items():
        rows.add_column(title, ratio=ratio, overflow="fold")
    for comparison in comparisons:
        rows.add_row(
            Text(comparison.scenario.title, "bold"),
            Text(comparison.written, "dim"),
            _cell(comparison, comparison.without),
            _cell(comparison, comparison.through),
        )
    return Group(rows, Text(summary(comparisons), "bold"))


def summary(comparisons: Sequence[Comparison]) -> str:
    """Count the calls that a program could run as they are, and the right ones if it is known."""
    without, through = _usable(comparisons)
    every = len(comparisons)
    told = f"Usable calls: {without} of {every} without Temper, {through} of {every} with Temper."
    if not any(one.scenario.right for one in comparisons):
        return told
    right = sum(one.through.is_usable and not one.is_wrong(one.through) for one in comparisons)
    return f"{told} Right ones of these: {right}."


def document(comparisons: Sequence[Comparison], url: str, model: str) -> JsonObject:
    """Return everything that was seen, for programs."""
    without, through = _usable(comparisons)
    usable: JsonObject = {"without": without, "with": through, "of": len(comparisons)}
    return {
        "model": model,
        "url": url,
        "usable_calls": usable,
        "requests": [
            {
                "title": comparison.scenario.title,
                "prompt": comparison.scenario.prompt,
                "written": comparison.written,
                "without": _members(comparison.without),
                "with": _members(comparison.through),
            }
            for comparison in comparisons
        ],
    }


def examples(url: str) -> Iterator[Example]:
    """Yield commands that show a call, a stream, and a header that changes what text is worth."""
    policy = "-H 'x-temper-text-policy: accept' "
    yield Example("A call that the model wrote as text", _curl(url, "What is the weather in Lyon?"))
    yield Example(
        "A tool that does not exist, asked again and streamed",
        _curl(url, "Forecast for Oslo, please.", stream=True),
    )
    yield Example(
        "Text instead of a call, accepted as an answer",
        _curl(url, "Is it raining in Rome?", headers=policy),
    )


def tiny_examples(url: str) -> Iterator[Example]:
    """Yield commands that ask the tiny model; it knows the tool."""
    yield Example("A call that llama-server cannot read", _curl(url, "Weather in Kyoto, please."))
    yield Example("The same, streamed", _curl(url, "Will it rain in Quito?", stream=True))


def _curl(url: str, prompt: str, *, stream: bool = False, headers: str = "") -> str:
    """Write two lines that a shell takes as one; prompts and tool have no apostrophe."""
    body: JsonObject = {"messages": [{"role": "user", "content": prompt}], "tools": [_TOOL]}
    body |= {"stream": True} if stream else {}
    return (
        f"curl -sNw '\\n' {url}/v1/chat/completions {headers}\\\n"
        f" -H 'content-type: application/json' -d '{json.dump_text(body)}'"
    )


def _cell(comparison: Comparison, answer: ClientAnswer) -> Text:
    is_wrong = answer.is_usable and comparison.is_wrong(answer)
    style = "yellow" if is_wrong else "green" if answer.is_usable else "red"
    cell = Text(_in_words(answer, comparison.written), style)
    cell.append(" - a wrong one" if is_wrong else "")
    return cell.append(f"\n({answer.effort})", "dim") if answer.effort else cell


def _in_words(answer: ClientAnswer, written: str) -> str:
    match answer.kind:
        case AnswerKind.CALL:
            return answer.words
        case AnswerKind.UNUSABLE_CALL:
            return f"a call that cannot be run: {answer.words}"
        case AnswerKind.TEXT if answer.words == written:
            return "no call, only this text"
        case AnswerKind.TEXT:
            return f"no call, only text: {answer.words}"
        case AnswerKind.ERROR:
            return f"no call, but an error: {answer.words}"


def _usable(comparisons: Sequence[Comparison]) -> tuple[int, int]:
    without = sum(comparison.without.is_usable for comparison in comparisons)
    through = sum(comparison.through.is_usable for comparison in comparisons)
    return without, through


def _members(answer: ClientAnswer) -> JsonObject:
    return {
        "kind": answer.kind.value,
        "usable": answer.is_usable,
        "answer": answer.words,
        "effort": answer.effort,
    }
