"""Checks that marks in replies, finish reasons and roles are only in their tables."""

import ast
import re
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from functools import cache
from itertools import chain
from pathlib import Path

import pytest

from proxy.conversation import endings, roles
from proxy.guardrails.rescue.formats import TABLE
from proxy.guardrails.rescue.marks import ANSWERS, REASONING, RESULTS
from proxy.profiles.files import load_profiles
from proxy.profiles.profile import Profile

PROXY = Path(__file__).parents[1] / "proxy"
TABLES = {"conversation/endings.py", "conversation/roles.py"}
# Marks of reasoning or results that also end turns or calls, and so occur in other parsers.
SHARED = {"<|eot_id|>", "<|eot|>", "<|end|>", "<|im_end|>", "<|end_message|>", "<|assistant|>"}
SHARED |= {"<end_of_turn>", "<turn|>", "<channel|>", "<|end_of_text|>", "[e~["}
MARKS = {mark for table in (REASONING, ANSWERS, RESULTS) for pair in table.items() for mark in pair}
ROWS = (*TABLE.formats, *TABLE.named)
MARKS_OF_CALLS = {
    mark.strip()
    for row in ROWS
    for mark in (*chain(*row.brackets), *row.closers, *chain(*row.parts.values()))
}
MARKS_OF_TURNS = TABLE.turn_ends | TABLE.turn_begins | TABLE.more_closers
MARKS_OF_TURNS |= {mark for pair in TABLE.messages.thoughts.items() for mark in pair}
MARKS_OF_TURNS |= {*TABLE.messages.texts, *TABLE.messages.header_starts, TABLE.messages.header_end}
# `<name>` is part of a pattern for a named group, and `<tool>` is a placeholder in a JSON example.
WORDS = {"<name>", "<tool>"}
SIGNS = re.compile(r"[<>\[\]|｜]")  # noqa: RUF001 - the bar of DeepSeek
# Words that are used only as finish reasons.
REASONS = {endings.FILTERED, "end_turn", "pause_turn", "model_context_window_exceeded", "abort"}
SETS_OF_ROLES = [{*roles.SYSTEM}, {*roles.RESULTS}, {*roles.FOREIGN}, {*roles.TURNS}]
WORDS_OF_CALLS = {"guardrails/rescue/syntaxes/envelope.py", "dialects/openai_chat/schema.py"}
REASON_WORDS = {ending.reason for ending in endings.ENDINGS}


@cache
def trees() -> tuple[tuple[str, ast.Module], ...]:
    """Parse every module except the tables."""
    files = {file.relative_to(PROXY).as_posix(): file for file in sorted(PROXY.rglob("*.py"))}
    return tuple(
        (name, ast.parse(file.read_text("utf-8")))
        for name, file in files.items()
        if name not in TABLES
    )


@cache
def literals() -> tuple[tuple[str, int, str], ...]:
    """Return the module, the line and the text of every string, except docstrings."""
    return tuple((name, line, text) for name, tree in trees() for line, text in strings(tree))


def literals_with(marks: AbstractSet[str]) -> list[tuple[str, int, str]]:
    """Return the strings that contain one of these marks."""
    pattern = re.compile("|".join(map(re.escape, marks)))
    return [literal for literal in literals() if pattern.search(literal[2])]


def strings(tree: ast.AST) -> Iterator[tuple[int, str]]:
    documentation = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and id(node) not in documentation:
            yield node.lineno, node.value if isinstance(node.value, str) else ""


def is_reason(node: ast.expr) -> bool:
    name = getattr(node, "attr", getattr(node, "id", ""))
    return name == "reason" or name.endswith("finish_reason")


@pytest.mark.deep
def test_marks_of_reasoning_and_results_are_only_in_their_table() -> None:
    assert literals_with(MARKS - SHARED) == []


@pytest.mark.deep
def test_marks_of_calls_and_turns_are_only_in_their_table() -> None:
    marks = (MARKS_OF_CALLS | MARKS_OF_TURNS) - WORDS
    # marks of one or two characters, such as `[` of JSON and Python, also have other uses
    assert literals_with({mark for mark in marks if len(mark) > 2 and SIGNS.search(mark)}) == []


@pytest.mark.deep
def test_finish_reasons_are_only_in_their_table() -> None:
    wrong = [literal for literal in literals() if literal[2] in REASONS]
    for name, tree in trees():
        for node in ast.walk(tree):
            if isinstance(node, ast.Compare) and is_reason(node.left):
                values = [value for part in node.comparators for _, value in strings(part)]
                wrong += [(name, node.lineno, value) for value in values if value in REASON_WORDS]
            if isinstance(node, ast.Call) and is_finish(node.func):
                values = [value for part in node.args for _, value in strings(part)]
                wrong += [(name, node.lineno, value) for value in values if value in REASON_WORDS]
    assert wrong == []


def is_finish(node: ast.expr) -> bool:
    return getattr(node, "attr", getattr(node, "id", "")) == "ReplyFinished"


@pytest.mark.deep
def test_sets_of_roles_are_only_in_their_table() -> None:
    wrong = [
        (name, node.lineno)
        for name, tree in trees()
        if name not in WORDS_OF_CALLS
        for node in ast.walk(tree)
        if isinstance(node, ast.Tuple | ast.List | ast.Set)
        and {getattr(item, "value", None) for item in node.elts} in SETS_OF_ROLES
    ]
    assert wrong == []


@pytest.mark.parametrize("profile", load_profiles(), ids=lambda profile: profile.name)
def test_every_mark_of_results_and_reasoning_in_a_profile_is_in_the_table(profile: Profile) -> None:
    tokens = profile.quirks.template.control_tokens
    words = (
        *("tool_response", "tool_result", "tool▁output", "TOOL_RESULT", "function_response"),
        *("thought_", "think:", "THINKING", "[THINK]"),
    )
    relevant = [token for token in tokens if any(word in token for word in words)]
    assert [token for token in relevant if token not in MARKS] == []
