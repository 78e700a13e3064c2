"""Tests that each format reads its example, and that a new format needs only a table row."""

import msgspec
import pytest

from proxy.conversation.tools import Tool
from proxy.guardrails.rescue.findings import FoundCalls
from proxy.guardrails.rescue.formats import TABLE, Format
from proxy.guardrails.rescue.registry import SHAPES, build_syntaxes, find_syntax
from proxy.guardrails.rescue.scanner import Scanner
from proxy.guardrails.rescue.syntax import Syntax
from tests.corpus.cases import PARIS, Case, ask, cut, outcome
from tests.fakes.arrivals import calls_found, joined

NO_CALLS = {"quoted", "result"}  # shapes that read no calls
ROWS = (*TABLE.formats, *TABLE.named)
TOOL = Tool(PARIS[0], {"properties": {"city": {}}, "required": ["city"]}, b"")


def findings_in(text: str, syntaxes: tuple[Syntax, ...], size: int) -> list[FoundCalls]:
    """Return the calls that `syntaxes` find in a text that arrives in pieces of `size`."""
    scanner = Scanner(syntaxes, [TOOL.name])
    findings = [finding for piece in cut(text, size) for finding in scanner.feed(piece)]
    return calls_found(joined(findings + scanner.finish()))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_the_example_of_each_format_is_read_complete_and_streamed(row: Format) -> None:
    expected = () if row.shape in NO_CALLS else (PARIS,)
    case = Case("an example", row.example, ask())
    for size in (*range(1, 9), len(row.example)):
        result = outcome(case, cut(row.example, size))
        assert (size, result.calls) == (size, expected)


@pytest.mark.parametrize("row", TABLE.formats, ids=lambda row: row.name)
def test_the_example_of_each_format_is_read_by_the_syntax_of_its_row(row: Format) -> None:
    expected = [] if row.shape in NO_CALLS else [(row.name, *PARIS)]
    for size in range(1, len(row.example) + 1):
        findings = findings_in(row.example, (find_syntax(row.name),), size)
        assert [(finding.syntax_name, *only_call(finding)) for finding in findings] == expected


def only_call(finding: FoundCalls) -> tuple[str, object]:
    (call,) = finding.calls
    return call.name.removeprefix("functions."), call.arguments


NEW_FORMATS = [
    (
        """
        shape = "json"
        marks = {"<acme>" = "</acme>"}
        """,
        '<acme>{"name": "get_weather", "arguments": {"city": "Paris"}}</acme>',
    ),
    (
        """
        shape = "named_json"
        marks = {"<|acme|>" = "<|/acme|>"}
        parts = {required = ["<|with|>"]}
        """,
        '<|acme|>get_weather<|with|>{"city": "Paris"}<|/acme|>',
    ),
    (
        """
        shape = "python"
        marks = {"<acme>" = "</acme>"}
        """,
        "<acme>get_weather(city='Paris')</acme>",
    ),
    (
        """
        shape = "tagged"
        elements = [{call = "<acme:", end = "</acme>", parameters = {"<with:" = "</with>"}}]
        """,
        "<acme:get_weather><with:city>Paris</with></acme>",
    ),
    (
        """
        shape = "pairs"
        marks = {"<acme>" = "</acme>"}
        [parts]
        call = ["<acme>"]
        key = ["<k>"]
        value = ["<v>"]
        type = ["<t>"]
        separator = ["<s>"]
        """,
        "<acme>get_weather<k>city</k><v>Paris</v></acme>",
    ),
    (
        """
        shape = "key_values"
        marks = {"<|acme|>" = "<|/acme|>"}
        parts = {key = ["<|key|>"], value = ["<|value|>"], end = ["<|next|>"]}
        """,
        "<|acme|>get_weather<|key|>city<|value|>Paris<|next|><|/acme|>",
    ),
]


@pytest.mark.parametrize(("fields", "example"), NEW_FORMATS)
def test_adding_a_table_row_is_enough_to_read_a_new_format_of_a_known_shape(
    fields: str, example: str
) -> None:
    row = msgspec.toml.decode(f'name = "acme"\n{fields}', type=Format)
    syntaxes = build_syntaxes((*TABLE.formats, row))
    for text in (example, f"Let me look.\n{example}"):
        for size in range(1, len(text) + 1):
            (finding,) = findings_in(text, syntaxes, size)
            assert (finding.syntax_name, *only_call(finding)) == ("acme", *PARIS)


def test_a_call_in_a_new_format_is_also_read_in_a_code_fence() -> None:
    row = msgspec.toml.decode(f'name = "acme"\n{NEW_FORMATS[0][0]}', type=Format)
    (finding,) = findings_in(
        f"```\n{NEW_FORMATS[0][1]}\n```", build_syntaxes((*TABLE.formats, row)), 3
    )
    assert only_call(finding) == PARIS


def test_every_shape_is_used_and_every_row_has_a_unique_name() -> None:
    assert SHAPES.keys() | {"fenced"} == {row.shape for row in TABLE.formats}
    assert len({row.name for row in ROWS}) == len(ROWS)
