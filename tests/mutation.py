"""Checks that tests notice changed code: `python -m tests.mutation`.

Theory of operation
-------------------
A target is a function or a constant in `TARGETS`. A mutant is a target with a small change: a
condition forced, a comparison negated, an operand or a row of a table removed, two rows swapped, a
constant or a returned value replaced, a statement removed. pytest collects the tests once. A forked
process runs all of them, and records which lines of the targets each test executes. Each mutant
then gets a forked process, which has imported everything already. It replaces the code of the
function, or the value of the constant, and runs the tests that execute the changed lines, the
fastest first, until a test fails.

A mutant that fails no test is a survivor: a table of tests lacks a row, or the code is not needed.
Survivors make the exit status 1, except those in `equivalent_mutants.toml`, which no test can tell
from the original. Parameters that a test computes when it is collected come from the original.
"""

import argparse
import ast
import contextlib
import copy
import difflib
import functools
import gc
import io
import itertools
import os
import signal
import sys
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FunctionType
from typing import TypeAlias, TypeVar

import pytest
from coverage import Coverage

TESTS = (
    *("tests/unit/guardrails/test_review.py", "tests/unit/guardrails/rescue/test_provenance.py"),
    *("tests/unit/inference/test_turn.py", "tests/playbooks/test_fallback.py"),
)
# File -> its functions and constants that are mutated; () stands for all of them.
TARGETS: dict[Path, tuple[str, ...]] = {
    Path("proxy/guardrails/rescue/provenance.py"): (),
    Path("proxy/guardrails/review.py"): (
        *("_NO_FUNCTION", "_EMPHASIS", "_QUESTION_MARKS", "review", "_drop_repetition"),
        *("_is_repetition", "_drop_inventions", "_invented_values"),
        *("_object_to_repetition", "_object_to_inventions", "_text_next_to_calls", "_is_text"),
        *("_drop_denied", "_is_denied", "_declines", "_judge_all", "_is_complete"),
        *("_drop_cut_off", "_judge_call", "_object_to_repair"),
    ),
    Path("proxy/inference/turn.py"): ("_MOVES", "Turn._move"),
}
# Name of a mutant that no test can distinguish from the original -> the reason.
EQUIVALENT = {
    name: row["reason"]
    for row in tomllib.loads(
        Path(__file__).with_name("equivalent_mutants.toml").read_text("utf-8")
    )["equivalent"]
    for name in row["mutants"]
}
SECONDS = 20  # limit of CPU time for the tests of a mutant, because a mutant may never end
# A test that compares a table of the docs with the code does not test the code.
_OPTIONS = ("-sq", "-n0", "-p", "no:cacheprovider", "-m", "not hypothesis", "-k", "not guide_shows")

_NEGATED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    **{ast.Eq: ast.NotEq, ast.Is: ast.IsNot, ast.In: ast.NotIn, ast.Lt: ast.GtE, ast.Gt: ast.LtE},
    **{ast.NotEq: ast.Eq, ast.IsNot: ast.Is, ast.NotIn: ast.In, ast.GtE: ast.Lt, ast.LtE: ast.Gt},
}
# the values that replace a condition; `while True` would never end
_FORCED = {ast.While: (False,), ast.comprehension: (True,)}
_EMPTY = {"bool": "not ({})", "int": "0", "list": "[]", "str": "''", "tuple": "()"}
_SKIPPED = (ast.Assert, ast.JoinedStr, ast.Raise, ast.arguments)
_TYPES = ("annotation", "returns", "decorator_list")
_Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
_Node: TypeAlias = ast.expr | ast.stmt
_Row = TypeVar("_Row", bound=ast.AST)
_CACHE = type(functools.cache(len))
_Lines: TypeAlias = Mapping[tuple[Path, int], set[tuple[float, int]]]  # seconds, index of a test


@dataclass(frozen=True)
class Mutant:
    """A changed `tree` of a file; `scope` is the function or the constant with the change."""

    file: Path
    scope: str
    tree: ast.Module
    lines: range
    is_function: bool
    name: str


def mutants(file: Path, scopes: Sequence[str] = ()) -> Iterator[Mutant]:
    """Yield each mutant; its tree is valid until the next mutant is requested."""
    tree = ast.parse(file.read_bytes())
    for scope, statement in _scopes(tree):
        for parent, attribute, node in _sites(statement) if scope in scopes or not scopes else ():
            old = getattr(parent, attribute)
            lines = range(node.lineno, (node.end_lineno or node.lineno) + 1)
            for other in _replacements(node, parent, attribute, statement):
                name = f"{scope}{_diff(ast.unparse(node), ast.unparse(other))}"
                ast.fix_missing_locations(ast.copy_location(other, node))
                is_list = isinstance(old, list)
                new = [other if child is node else child for child in old] if is_list else other
                setattr(parent, attribute, new)
                yield Mutant(file, scope, tree, lines, isinstance(statement, _Function), name)
                setattr(parent, attribute, old)


def _diff(old: str, new: str) -> str:
    before, after = (text.replace("), ", "),\n").splitlines() for text in (old, new))
    diff = [*difflib.unified_diff(before, after, n=0, lineterm="")][2:]
    return "".join(f"\n{line}" for line in diff if not line.startswith("@"))


def _scopes(tree: ast.Module | ast.ClassDef, prefix: str = "") -> Iterator[tuple[str, ast.stmt]]:
    """Yield all functions, and the constants at the top level of the module."""
    for statement in tree.body:
        if isinstance(statement, _Function):
            yield prefix + statement.name, statement
        elif isinstance(statement, ast.ClassDef):
            yield from _scopes(statement, f"{prefix}{statement.name}.")
        elif isinstance(statement, ast.Assign | ast.AnnAssign) and not prefix:
            target = (
                statement.target if isinstance(statement, ast.AnnAssign) else statement.targets[0]
            )
            if isinstance(target, ast.Name) and "TypeAlias" not in ast.dump(statement):
                yield target.id, statement


def _sites(parent: ast.AST) -> Iterator[tuple[ast.AST, str, _Node]]:
    """Yield the expressions and statements below a node, each with its parent and its field."""
    for attribute, value in ast.iter_fields(parent):
        for node in value if isinstance(value, list) else [value]:
            is_documentation = isinstance(parent, ast.Expr) and isinstance(node, ast.Constant)
            if not isinstance(node, ast.AST) or isinstance(node, _SKIPPED) or attribute in _TYPES:
                continue
            if isinstance(node, _Node) and not is_documentation:
                yield parent, attribute, node
            yield from _sites(node)


def _replacements(node: _Node, parent: ast.AST, attribute: str, scope: ast.stmt) -> Iterator[_Node]:
    is_condition = attribute in {"test", "guard", "ifs"}
    if is_condition:
        yield from map(ast.Constant, _FORCED.get(type(parent), (True, False)))
    if isinstance(node, ast.BoolOp):
        for operands in _without_each(node.values):
            yield operands[0] if len(operands) == 1 else ast.BoolOp(node.op, operands)
    elif not is_condition and not isinstance(parent, ast.BoolOp):
        # not for conditions and operands, where a negation would equal one of the mutants above
        yield from _changed(node, scope)
    if isinstance(parent, ast.Compare) or not isinstance(scope, _Function):
        yield from _with_changed_rows(node)


def _changed(node: _Node, scope: ast.stmt) -> Iterator[_Node]:
    match node:
        case ast.Compare(ops=[operator]):
            yield ast.Compare(node.left, [_NEGATED[type(operator)]()], node.comparators)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield operand
        case ast.Constant(value=int(value)):
            yield ast.Constant(not value if isinstance(value, bool) else value + 1)
        case ast.Constant(value=str(value)) if value:
            yield ast.Constant("mutant")
        case ast.AugAssign() | ast.Expr(value=ast.Call()):
            yield ast.Pass()
        case ast.Return(value=ast.Attribute() | ast.Call() | ast.Name() as value):
            yield from _emptied(value, scope)
        case _:
            pass


def _emptied(value: ast.expr, scope: ast.stmt) -> Iterator[ast.stmt]:
    """Return the empty value of the annotated type, or the opposite truth value."""
    returns = scope.returns if isinstance(scope, _Function) else None
    kind = "" if returns is None else ast.unparse(returns)
    empty = "None" if kind.endswith("None") else _EMPTY.get(kind.partition("[")[0])
    if empty is not None:
        yield ast.Return(ast.parse(empty.format(ast.unparse(value)), mode="eval").body)


def _without_each(rows: Sequence[_Row]) -> Iterator[list[_Row]]:
    yield from ([*rows[:index], *rows[index + 1 :]] for index in range(len(rows)))


def _with_changed_rows(node: _Node) -> Iterator[ast.expr]:
    """Remove each row of a table and each named value of a row; swap neighbors."""
    if isinstance(node, ast.Call):
        for keywords in _without_each(node.keywords):
            yield ast.Call(node.func, node.args, keywords)
    elif isinstance(node, ast.Tuple | ast.List | ast.Set):
        tables = [*_without_each(node.elts)]
        for index, (row, after) in enumerate(itertools.pairwise(node.elts)):
            verdicts = [
                ast.dump(call.args[0]) for call in (row, after) if isinstance(call, ast.Call)
            ]
            if len({*verdicts}) == 2:  # the order of equal verdicts means nothing
                tables.append([*node.elts[:index], after, row, *node.elts[index + 2 :]])
        for table in tables:
            changed = copy.copy(node)
            changed.elts = table
            yield changed


def apply(mutant: Mutant, functions: Sequence[object]) -> None:
    """Change the imported modules, in a process that runs only the tests of the mutant."""
    codes = {code.co_qualname: code for code in _codes(compile(mutant.tree, mutant.file, "exec"))}
    for function in functions:
        if isinstance(function, _CACHE):
            function.cache_clear()
        elif isinstance(function, FunctionType):
            code = function.__code__
            if (code.co_filename, code.co_qualname) == (str(mutant.file), mutant.scope):
                function.__code__ = codes[mutant.scope]
    if not mutant.is_function:
        _rebind(mutant)


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _rebind(mutant: Mutant) -> None:
    """Evaluate a constant and the constants that depend on it, and replace their imported names."""
    modules = [*sys.modules.values()]
    home = next(
        module for module in modules if getattr(module, "__file__", None) == str(mutant.file)
    )
    changed: set[str] = set()
    for name, statement in _scopes(mutant.tree):
        read = {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}
        if isinstance(statement, _Function) or not (name == mutant.scope or read & changed):
            continue
        changed.add(name)
        old = getattr(home, name)
        exec(compile(ast.Module([statement], []), mutant.file, "exec"), vars(home))  # noqa: S102
        for module in modules:
            if vars(module).get(name) is old:
                setattr(module, name, getattr(home, name))


@dataclass
class Check:
    """A plugin of pytest that runs the collected tests for each mutant instead of once."""

    targets: Mapping[Path, Sequence[str]]
    every: int
    count: int = 0
    survivors: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.append(report.nodeid)

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        lines = self._trace(session.items)
        gc.unfreeze()  # tests/conftest.py hides the objects that exist before the first test
        functions = [item for item in gc.get_objects() if isinstance(item, FunctionType | _CACHE)]
        gc.freeze()  # otherwise a collection would make each forked process copy its memory
        running: dict[int, Mutant] = {}
        every = (
            mutant for file, scopes in self.targets.items() for mutant in mutants(file, scopes)
        )
        for mutant in itertools.islice(every, 0, None, self.every):
            self.count += 1
            numbers = mutant.lines if mutant.is_function else [line for _, line in lines]
            chosen = {test for line in numbers for test in lines.get((mutant.file, line), ())}
            while len(running) >= (os.cpu_count() or 1):
                self._reap(running)
            process = os.fork()
            if not process:
                items = [session.items[index] for _, index in sorted(chosen)]
                os._exit(self._is_killed(mutant, functions, items))
            running[process] = mutant
        while running:
            self._reap(running)
        return True

    def _reap(self, running: dict[int, Mutant]) -> None:
        process, status = os.wait()
        mutant = running.pop(process)
        if status == 0:
            self.survivors.append(mutant.name)
            if mutant.name not in EQUIVALENT:
                _say(f"{mutant.file.relative_to(Path.cwd())}:{mutant.lines.start}: {mutant.name}")

    def _is_killed(
        self,
        mutant: Mutant,
        functions: Sequence[object],
        items: Sequence[pytest.Item],
    ) -> bool:
        signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)  # ends the process
        try:
            apply(mutant, functions)
            return any(self._fails(*pair) for pair in _pairs(items))
        except BaseException:  # noqa: BLE001 - e.g. a row that lacks a value
            return True

    def _fails(self, item: pytest.Item, following: pytest.Item | None) -> bool:
        item.ihook.pytest_runtest_protocol(item=item, nextitem=following)
        return bool(self.failed)

    def _trace(self, items: Sequence[pytest.Item]) -> _Lines:
        """Run the tests; return, for each line of the targets, the tests that execute it."""
        tracer = Coverage(data_file=None, config_file=False, include=[*map(str, self.targets)])
        seconds = []
        with tracer.collect():
            for index, pair in enumerate(_pairs(items)):
                tracer.switch_context(str(index))
                start = time.process_time()
                self._fails(*pair)
                seconds.append(time.process_time() - start)
        if self.failed:
            raise pytest.UsageError(f"these tests fail without a mutant: {self.failed}")
        return {
            (file, line): {(seconds[int(index)], int(index)) for index in contexts if index}
            for file in self.targets
            for line, contexts in tracer.get_data().contexts_by_lineno(str(file)).items()
        }


def _pairs(items: Sequence[pytest.Item]) -> Iterator[tuple[pytest.Item, pytest.Item | None]]:
    return zip(items, [*items[1:], None], strict=bool(items))


def _say(text: str) -> None:
    assert sys.__stdout__ is not None
    sys.__stdout__.write(f"{text}\n")
    sys.__stdout__.flush()


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the survivors; returns the exit status."""
    parser = argparse.ArgumentParser("python -m tests.mutation", description=__doc__)
    parser.add_argument("--every", type=int, default=1, help="judge only every n-th mutant")
    parser.add_argument("--target", type=Path, action="append", help="a file; may be repeated")
    parser.add_argument("tests", nargs="*", default=TESTS, help="files and folders of tests")
    options = parser.parse_args(arguments)
    targets = dict.fromkeys(options.target, ()) if options.target else TARGETS
    check = Check({file.resolve(): scopes for file, scopes in targets.items()}, options.every)
    with contextlib.redirect_stdout(io.StringIO()) as output:
        status = pytest.main([*_OPTIONS, *map(str, options.tests)], plugins=[check])
    if status != pytest.ExitCode.OK or not check.count:
        _say(output.getvalue())
        return 2
    known = sum(name in EQUIVALENT for name in check.survivors)
    unknown = len(check.survivors) - known
    _say(f"{check.count} mutants: {unknown} survivors, {known} equivalent")
    return 1 if unknown else 0


if __name__ == "__main__":
    sys.exit(main())
