"""Whether replies are read the same in the pieces in which they were once streamed as whole.

Run as `python -m benchmarks.rescue_chunking CASES.jsonl`: one JSON object a line, of which `id`,
`tools`, `raw` and `streaming_chunks` are read. Prints what differs; exits with 1 if anything does,
or if there is nothing to compare.
"""

import argparse
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.replies import ReasoningDelta, TextDelta
from proxy.conversation.tools import Tool
from proxy.guardrails.offer import OfferedTools, TextPolicy
from proxy.guardrails.reading import ReadReply, ReplyReader
from proxy.guardrails.rescue.registry import order_syntaxes


@dataclass(frozen=True, slots=True)
class Streamed:
    """A reply, the pieces in which it arrived, and the names of the tools that were offered."""

    id: str
    tools: tuple[str, ...]
    raw: str
    pieces: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was read, and the text that was heard meanwhile, which can no longer be taken back."""

    reply: ReadReply
    heard: str


def streamed_in(lines: Iterable[str]) -> Iterator[Streamed]:
    """Yield the cases that say in which pieces their reply arrived."""
    for line in lines:
        case = json.parse(line)
        if not isinstance(case, dict):
            raise TypeError(f"a case is an object, not {line[:40]!r}")
        pieces = case.get("streaming_chunks")
        if isinstance(pieces, list) and pieces:
            tools = _names(case.get("tools"))
            yield Streamed(str(case["id"]), tools, str(case["raw"]), tuple(map(str, pieces)))


def _names(tools: JsonValue) -> tuple[str, ...]:
    if not isinstance(tools, list):
        return ()
    return tuple(_name(tool) for tool in tools if isinstance(tool, dict))


def _name(tool: JsonObject) -> str:
    function = tool.get("function")
    return str((function if isinstance(function, dict) else tool).get("name"))


def read(pieces: Iterable[str], tools: Sequence[str]) -> Outcome:
    """Read a reply that arrives in pieces."""
    offered = tuple(Tool(name, {}, b"") for name in tools)
    reader = ReplyReader(OfferedTools(offered, TextPolicy.ACCEPT, order_syntaxes(())))
    heard = [one for piece in pieces for one in reader.read(TextDelta(piece))]
    rest, reply = reader.finish("stop")
    spoken = (one.text for one in (*heard, *rest) if not isinstance(one, ReasoningDelta))
    return Outcome(reply, "".join(spoken))


def difference(case: Streamed) -> str:
    """Say how the streamed reading of a case differs from the whole one, "" if it does not."""
    whole = read([case.raw], case.tools)
    streamed = read(case.pieces, case.tools)
    if streamed == whole:
        return ""
    return f"{case.id}\n  whole:    {whole}\n  streamed: {streamed}\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the differences and the counts; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", type=Path, help="a file with one case a line")
    chosen: Path = parser.parse_args(arguments).cases
    with chosen.open(encoding="utf-8") as lines:
        cases = list(streamed_in(lines))
    differences = [found for case in cases if (found := difference(case))]
    pieces = sum(len(case.pieces) for case in cases)
    sys.stdout.writelines(differences)
    sys.stdout.write(
        f"{len(cases)} replies in {pieces} pieces, {len(differences)} read differently\n"
    )
    return 1 if differences or not cases else 0


if __name__ == "__main__":
    sys.exit(main())
