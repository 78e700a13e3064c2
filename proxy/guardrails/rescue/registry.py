"""Builds all syntaxes from the rows of `formats`, in their default order.

The order matters if formats share an opening. `<tool_call>` begins JSON (Hermes), tags
(Qwen3-Coder) and pairs (GLM), and the first syntax that reads a call is used. Three syntaxes read
no calls: they prevent the scanner from finding a call in a message to the user or in a repeated
result.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from types import MappingProxyType

from proxy.guardrails.rescue.formats import TABLE, Format
from proxy.guardrails.rescue.marks import RESULTS, result_end
from proxy.guardrails.rescue.syntax import NoCall, Reading, Reason, Syntax
from proxy.guardrails.rescue.syntaxes import (
    argument_pairs,
    marked_json,
    named_json,
    plain_json,
    pythonic,
    tagged,
)
from proxy.guardrails.rescue.syntaxes.gemma import bare_gemma, gemma
from proxy.guardrails.rescue.syntaxes.mistral import mistral
from proxy.guardrails.rescue.values.cursor import Cursor, literals_of
from proxy.guardrails.tool_prompts.react import react


def _quoted(row: Format) -> Syntax:
    """Return the syntax of a message to the user, whose text contains no calls."""

    def read(cursor: Cursor, opening: str) -> Reading:
        yield from cursor.take_until(literals_of(*row.closers))
        raise NoCall(Reason.QUOTED)

    return Syntax.of(row, read)


def _result(row: Format) -> Syntax:
    """Return the syntax of a repeated tool result, which is no call and is dropped after a call."""
    return Syntax(row.name, tuple(RESULTS), _read_result, row.anchor, row.is_marked)


def _read_result(cursor: Cursor, opening: str) -> Reading:
    if (end := result_end(opening)) is not None:
        yield from cursor.take_until(end)
        yield from cursor.one_of(end)
    raise NoCall(Reason.QUOTED)


SHAPES: Mapping[str, Callable[[Format], Syntax]] = MappingProxyType(
    {
        "bare_gemma": bare_gemma,
        "bare_json": plain_json.bare_json,
        "definitions": marked_json.definitions,
        "gemma": gemma,
        "json": marked_json.marked_json,
        "key_value_words": argument_pairs.key_value_words,
        "key_values": argument_pairs.key_values,
        "line_blocks": pythonic.line_blocks,
        "mistral": mistral,
        "named_json": named_json.named_json,
        "named_line": named_json.named_line,
        "named_tags": named_json.named_tags,
        "pairs": argument_pairs.pairs,
        "python": pythonic.marked_python,
        "python_list": pythonic.python_list,
        "quoted": _quoted,
        "react": react,
        "result": _result,
        "suffixed_pairs": argument_pairs.suffixed_pairs,
        "tagged": tagged.tagged,
        "unopened_json": plain_json.unopened_json,
    }
)
_FENCED = "fenced"  # built last, because a code fence may contain calls in other syntaxes


def build_syntaxes(rows: Iterable[Format]) -> tuple[Syntax, ...]:
    """Return the syntaxes of rows; code fences may contain calls in the marked syntaxes."""
    rows = tuple(rows)
    known = {row.name: SHAPES[row.shape](row) for row in rows if row.shape != _FENCED}
    marked = [known[row.name] for row in rows if row.is_marked and row.shape != "quoted"]
    return tuple(known.get(row.name) or plain_json.fenced_json(row, marked) for row in rows)


SYNTAXES = build_syntaxes(TABLE.formats)
_KNOWN = {syntax.name: syntax for syntax in SYNTAXES}


def find_syntax(name: str) -> Syntax:
    """Return a syntax of the table; an unknown name raises KeyError."""
    return _KNOWN[name]


@cache  # every request needs an order, and few different orders occur
def order_syntaxes(names: tuple[str, ...]) -> tuple[Syntax, ...]:
    """Return all syntaxes, first the `names` of a profile; unknown names raise KeyError."""
    first = {name: _KNOWN[name] for name in names}
    return tuple((first | _KNOWN).values())
