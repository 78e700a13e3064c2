r"""Tables of texts and of the calls that a syntax reads in them, at every chunking.

A table is a text file in `tables/`. `## name` is the syntax of the rows below it, `# ...` is the
behavior that these rows test. A row is a text, ` => ` and the result. If the text contains calls,
the result is `name {arguments}` for each call, with the flags of `Calls` in parentheses and the
unread text after ` | `. Otherwise it is `!` and the reason why the text is not a call:

    ## hermes
    # the closing tag may be missing
    <tool_call>\n{"name": "now"} => now {} (open)

`\n` and `\\` are escapes as in JSON, `\s` is a space at either end of a text. The unread text after
a refusal is compared only if the row contains it. After an intended change,
`python -m tests.unit.guardrails.rescue.syntaxes.test_tables` rewrites all results; check the diff.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from proxy.conversation import json
from proxy.conversation.json import JsonObject
from proxy.guardrails.rescue.formats import Element, Format
from proxy.guardrails.rescue.registry import SYNTAXES
from proxy.guardrails.rescue.syntax import Calls, NoCall
from proxy.guardrails.rescue.syntaxes.marked_json import marked_json
from proxy.guardrails.rescue.syntaxes.tagged import tagged
from proxy.guardrails.rescue.syntaxes.tool_names import (
    inline_calls,
    syntaxes_for,
    tool_arguments,
    tool_pairs,
    tool_recipients,
)
from proxy.guardrails.tool_prompts.json_contract import json_contract
from proxy.guardrails.tool_prompts.react import REACT_CONTRACT
from tests.fakes.arrivals import read_syntax
from tests.fakes.playbook import make_tool

DIRECTORY = Path(__file__).parent / "tables"
ARROW, REFUSED, REST = "=> ", "! ", " | "
LONGEST = 140  # a longer row has its result on a separate line

LOOK: JsonObject = {"type": "object", "properties": {"at": {}, "text": {}}}
OF_TOOLS = (
    *tool_arguments(("look", "time")),
    *tool_recipients(("look", "time")),
    tool_pairs({"look": frozenset(("at", "n")), "time": frozenset()}),
    inline_calls(["look"]),
    *syntaxes_for((make_tool("look", LOOK), make_tool("now", {}))),
    *syntaxes_for((make_tool("f", {"required": ["a"]}),))[-2:],
)
INVENTED_FORMATS = (
    marked_json(Format(name="two", shape="json", marks={"<a>": "</a>", "<b>": "</b>"})),
    tagged(
        Format(
            name="tags",
            shape="tagged",
            marks={"<w>": "</w>"},
            elements=(Element("<c ", "</c>", {"<p ": "</p>"}),),
        )
    ),
)
ALL = (*INVENTED_FORMATS, json_contract("respond"), REACT_CONTRACT, *OF_TOOLS, *SYNTAXES)
FLAGS = ("is_doubtful", "is_bare", "is_cut")


class Row(NamedTuple):
    """A row of a table, with the syntax and the behavior that the lines above the row name."""

    syntax: str
    behavior: str
    text: str
    result: str


def read_table(path: Path) -> Iterator[Row]:
    syntax, behavior, before = "", "", ""
    for line in path.read_text(encoding="utf-8").splitlines():
        text, arrow, result = line.rpartition(f" {ARROW}")
        if line.startswith("## "):
            syntax = line.removeprefix("## ")
        elif line.startswith("# "):
            behavior = line.removeprefix("# ")
        elif line.startswith(ARROW):
            yield Row(syntax, behavior, before, line.removeprefix(ARROW))
        elif arrow:
            yield Row(syntax, behavior, text, result)
        else:
            before = line


def write_table(path: Path, rows: list[Row]) -> None:
    lines: list[str] = []
    syntax, behavior = "", ""
    for row in rows:
        if row.syntax != syntax:
            lines.append(f"## {row.syntax}")
        if (row.syntax, row.behavior) != (syntax, behavior):
            lines.append(f"# {row.behavior}")
        syntax, behavior = row.syntax, row.behavior
        line = f"{row.text} {ARROW}{row.result}"
        lines += [line] if len(line) <= LONGEST else [row.text, ARROW + row.result]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def escape(text: str) -> str:
    escaped = json.dump_text(text)[1:-1].replace(r"\"", '"')
    return re.sub("^ | $", r"\\s", escaped)


def unescape(text: str) -> str:
    def character(match: re.Match[str]) -> str:
        return " " if match[0] == r"\s" else str(json.parse(b'"%b"' % match[0].encode()))

    return re.sub(r"\\(u[0-9a-f]{4}|.)", character, text)


def result_of(syntax: str, text: str) -> str:
    named = (known for known in ALL if known.name == syntax)
    match, rest = read_syntax(
        next(known for known in named if text.startswith(known.openings)), text
    )
    return show(match) + (f"{REST}{escape(rest)}" if rest else "")


def show(match: Calls | NoCall) -> str:
    if isinstance(match, NoCall):
        return f"{REFUSED}{match.reason}"
    calls = [f"{call.name} {json.dump_text(call.arguments)}" for call in match.calls]
    flags = ["open"] * (not match.closed)
    flags += [name.removeprefix("is_") for name in FLAGS if getattr(match, name)]
    return "; ".join(calls) + "".join(f" ({flag})" for flag in flags)


ROWS = {path.stem: [*read_table(path)] for path in sorted(DIRECTORY.glob("*.txt"))}


def actual_result(row: Row) -> str:
    """Return the actual result of a row; omit unread text if the expected refusal has none."""
    result = result_of(row.syntax, unescape(row.text))
    is_partial = result.startswith(REFUSED) and REST not in row.result
    return result.partition(REST)[0] if is_partial else result


@pytest.mark.parametrize("table", ROWS)
def test_reading_the_text_of_a_table_row_gives_the_result_of_the_row(table: str) -> None:
    rows = ROWS[table]
    assert rows
    assert [row._replace(result=actual_result(row)) for row in rows] == rows


if __name__ == "__main__":
    for table, rows in ROWS.items():
        results = [row._replace(result=actual_result(row)) for row in rows]
        write_table(DIRECTORY / f"{table}.txt", results)
