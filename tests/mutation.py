"""Checks that tests notice changed code: `python -m tests.mutation`.

Theory of operation
-------------------
A mutant is a target with a small change: a condition forced, a comparison negated, an operand or
a row of a table removed, two rows swapped, a constant or a returned value replaced, a statement
removed. pytest collects the tests once. A forked process runs all of them and records which lines
of the targets each executes. Each mutant then runs in a forked process of its own, which has
everything imported: it replaces the code of the function, or the value of the constant, and runs
the tests that execute the changed lines, the fastest first, until a test fails.

A mutant that fails no test is a survivor: a table of tests lacks a row, or the code is not needed.
`EQUIVALENT` lists the mutants that no test can tell from the original; other survivors make the
exit status 1. Parameters that a test computes when it is collected come from the original.
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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FunctionType
from typing import NoReturn, TypeAlias, TypeVar

import pytest
from coverage import Coverage

TESTS = (
    *("tests/unit/guardrails/test_review.py", "tests/unit/guardrails/rescue", "tests/playbooks"),
    *("tests/unit/inference", "tests/corpus/test_field_failures.py"),
)
# Files, with the functions and constants that are changed, () for all of them.
TARGETS: dict[Path, tuple[str, ...]] = {
    Path("proxy/guardrails/rescue/provenance.py"): (),
    Path("proxy/guardrails/review.py"): (),
    Path("proxy/inference/turn.py"): ("_MOVES", "Turn._move"),
}
# The mutants that no test can tell from the original, by their `name`, with the reason.
EQUIVALENT: dict[str, str] = {}
SECONDS = 20  # for the tests of a mutant, which may never end

_NEGATED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    **{ast.Eq: ast.NotEq, ast.Is: ast.IsNot, ast.In: ast.NotIn, ast.Lt: ast.GtE, ast.Gt: ast.LtE},
    **{ast.NotEq: ast.Eq, ast.IsNot: ast.Is, ast.NotIn: ast.In, ast.GtE: ast.Lt, ast.LtE: ast.Gt},
}
_EMPTY = {"str": "''", "int": "0", "tuple": "()", "list": "[]"}
_SKIPPED = (ast.Assert, ast.JoinedStr, ast.Raise, ast.arguments)
_TYPES = ("annotation", "returns", "decorator_list")
_Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
_Row = TypeVar("_Row", bound=ast.AST)
Lines: TypeAlias = Mapping[tuple[Path, int], set[tuple[float, int]]]  # seconds, index of the test


@dataclass(frozen=True)
class Mutant:
    """A changed `tree` of a file; `scope` is the function or the constant with the change."""

    file: Path
    scope: str
    tree: ast.Module
    lines: range
    is_function: bool
    name: str

    @property
    def line(self) -> str:
        return f"{self.file.relative_to(Path.cwd())}:{self.lines.start}: {self.name}"


def mutants(file: Path, scopes: Sequence[str] = ()) -> Iterator[Mutant]:
    """Yield each mutant; its tree is valid until the next is requested."""
    tree = ast.parse(file.read_bytes())
    for scope, statement in _scopes(tree):
        for site in _sites(statement) if scope in scopes or not scopes else ():
            node, old = site.node, getattr(site.parent, site.place)
            lines = range(node.lineno, (node.end_lineno or node.lineno) + 1)
            for other in site.replacements(statement):
                name = f"{scope}{_diff(ast.unparse(node), ast.unparse(other))}"
                ast.fix_missing_locations(ast.copy_location(other, node))
                is_list = isinstance(old, list)
                new = [other if one is node else one for one in old] if is_list else other
                setattr(site.parent, site.place, new)
                yield Mutant(file, scope, tree, lines, isinstance(statement, _Function), name)
                setattr(site.parent, site.place, old)


def _diff(old: str, new: str) -> str:
    before, after = (text.replace("), ", "),\n").splitlines() for text in (old, new))
    diff = [*difflib.unified_diff(before, after, n=0, lineterm="")][2:]
    return "".join(f"\n{line}" for line in diff if not line.startswith("@"))


def _scopes(tree: ast.Module | ast.ClassDef, prefix: str = "") -> Iterator[tuple[str, ast.stmt]]:
    for statement in tree.body:
        match statement:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield prefix + name, statement
            case ast.ClassDef(name=name):
                yield from _scopes(statement, f"{prefix}{name}.")
            case ast.Assign(targets=[ast.Name(name)]) | ast.AnnAssign(target=ast.Name(name)):
                is_alias = ast.unparse(getattr(statement, "annotation", statement)) == "TypeAlias"
                if not (
                    prefix or is_alias
                ):  # the values of a class have been copied when it was made
                    yield name, statement


def _sites(parent: ast.AST) -> Iterator["Site"]:
    """Yield the expressions and statements below a node that may be replaced."""
    for place, value in ast.iter_fields(parent):
        for node in value if isinstance(value, list) else [value]:
            if not isinstance(node, ast.AST) or isinstance(node, _SKIPPED) or place in _TYPES:
                continue
            if isinstance(node, ast.expr | ast.stmt):
                yield Site(parent, place, node)
            yield from _sites(node)


@dataclass(frozen=True)
class Site:
    """A `node` with its parent, and the field of the parent that holds it."""

    parent: ast.AST
    place: str
    node: ast.expr | ast.stmt

    def replacements(self, scope: ast.stmt) -> Iterator[ast.expr | ast.stmt]:
        is_condition = self.place in {"test", "guard", "ifs"}
        if is_condition:
            yield from self._forced()
        if isinstance(self.node, ast.BoolOp):
            for rest in _without_each(self.node.values):
                yield rest[0] if len(rest) == 1 else ast.BoolOp(self.node.op, rest)
        elif not is_condition and not isinstance(self.parent, ast.BoolOp):  # both cover a negation
            yield from self._changed()
        if isinstance(scope, _Function) and isinstance(self.node, ast.Return):
            yield from _returned(self.node.value, scope.returns)
        if isinstance(self.parent, ast.Compare) or not isinstance(scope, _Function):
            yield from _rows_changed(self.node)

    def _forced(self) -> Iterator[ast.expr]:
        if not isinstance(self.parent, ast.While):  # or the mutant would loop for ever
            yield ast.Constant(value=True)
        if not isinstance(self.parent, ast.comprehension):
            yield ast.Constant(value=False)

    def _changed(self) -> Iterator[ast.expr | ast.stmt]:
        match self.node:
            case ast.Compare(ops=[operator]) as node:
                yield ast.Compare(node.left, [_NEGATED[type(operator)]()], node.comparators)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                yield operand
            case ast.Constant(value=bool(value)):
                yield ast.Constant(not value)
            case ast.Constant(value=int(value)):
                yield ast.Constant(value + 1)
            case ast.Constant(value=str(value)) if value and not isinstance(self.parent, ast.Expr):
                yield ast.Constant("mutant")
            case ast.AugAssign() | ast.Expr(value=ast.Call()):
                yield ast.Pass()
            case _:
                pass


def _returned(value: ast.expr | None, returns: ast.expr | None) -> Iterator[ast.stmt]:
    """Replace a returned value by an empty one of its type."""
    kind = "" if returns is None else ast.unparse(returns)
    empty = "None" if kind.endswith("None") else _EMPTY.get(kind.partition("[")[0])
    if value is not None and empty not in {None, ast.unparse(value)}:
        yield ast.Return(ast.parse(empty or "", mode="eval").body)
    elif isinstance(value, ast.Call | ast.Name) and kind == "bool":
        yield ast.Return(ast.UnaryOp(ast.Not(), value))


def _without_each(rows: Sequence[_Row]) -> Iterator[list[_Row]]:
    yield from ([*rows[:index], *rows[index + 1 :]] for index in range(len(rows)))


def _rows_changed(node: ast.expr | ast.stmt) -> Iterator[ast.expr]:
    """Remove each row of a table and each named value of a row; swap neighbors."""
    if isinstance(node, ast.Call):
        yield from (ast.Call(node.func, node.args, rest) for rest in _without_each(node.keywords))
    elif isinstance(node, ast.Tuple | ast.List | ast.Set):
        rows = node.elts
        tables = [*_without_each(rows)]
        if all(isinstance(row, ast.Call) for row in rows):
            for index in range(1, len(rows)):
                before, after = rows[: index - 1], rows[index + 1 :]
                tables.append([*before, rows[index], rows[index - 1], *after])
        for table in tables:
            changed = copy.copy(node)
            changed.elts = table
            yield changed


def apply(mutant: Mutant) -> None:
    """Change the imported modules: only for a process that ends with the tests of the mutant."""
    gc.unfreeze()  # tests/conftest.py hides the objects that are older than the first test
    compiled = _codes(compile(mutant.tree, mutant.file, "exec"))
    new = next((one for one in compiled if one.co_qualname == mutant.scope), None)
    for candidate in gc.get_objects():
        if isinstance(candidate, functools._lru_cache_wrapper):  # noqa: SLF001 - has no other name
            candidate.cache_clear()
        elif new is not None and isinstance(candidate, FunctionType):
            old = candidate.__code__
            if (old.co_filename, old.co_qualname) == (new.co_filename, new.co_qualname):
                candidate.__code__ = new
    if new is None:
        _rebind(mutant)


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _rebind(mutant: Mutant) -> None:
    """Evaluate a constant and the constants that are made of it, and replace imported names."""
    modules = [*sys.modules.values()]
    home = next(one for one in modules if getattr(one, "__file__", None) == str(mutant.file))
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
    survivors: list[Mutant] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.append(report.nodeid)

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        lines = self._trace(session.items)
        running: dict[int, Mutant] = {}
        every = (one for file, scopes in self.targets.items() for one in mutants(file, scopes))
        for mutant in itertools.islice(every, 0, None, self.every):
            self.count += 1
            keys = [(mutant.file, number) for number in mutant.lines]
            keys = keys if mutant.is_function else [*lines]
            chosen = sorted({one for key in keys for one in lines.get(key, ())})
            while len(running) >= (os.cpu_count() or 1):
                self._reap(running)
            process = os.fork()
            if not process:
                self._judge(mutant, [session.items[index] for _, index in chosen])
            running[process] = mutant
        while running:
            self._reap(running)
        return True

    def _reap(self, running: dict[int, Mutant]) -> None:
        process, status = os.wait()
        mutant = running.pop(process)
        if status == 0:
            self.survivors.append(mutant)

    def _judge(self, mutant: Mutant, items: Sequence[pytest.Item]) -> NoReturn:
        signal.alarm(SECONDS)  # ends the process
        try:
            apply(mutant)
            has_failed = any(self._fails(*pair) for pair in _pairs(items))
        except BaseException:  # noqa: BLE001 - e.g. a row that lacks a value
            has_failed = True
        os._exit(has_failed)

    def _fails(self, item: pytest.Item, following: pytest.Item | None) -> bool:
        item.ihook.pytest_runtest_protocol(item=item, nextitem=following)
        return bool(self.failed)

    def _trace(self, items: Sequence[pytest.Item]) -> Lines:
        """Run the tests; return those that execute each line of the targets."""
        tracer = Coverage(data_file=None, config_file=False, include=[*map(str, self.targets)])
        seconds = []
        with tracer.collect():
            for index, pair in enumerate(_pairs(items)):
                tracer.switch_context(str(index))
                start = time.perf_counter()
                self._fails(*pair)
                seconds.append(time.perf_counter() - start)
        if self.failed:
            raise pytest.UsageError(f"these tests fail without a mutant: {self.failed}")
        return {
            (file, line): {(seconds[int(index)], int(index)) for index in contexts if index}
            for file in self.targets
            for line, contexts in tracer.get_data().contexts_by_lineno(str(file)).items()
        }


def _pairs(items: Sequence[pytest.Item]) -> Iterator[tuple[pytest.Item, pytest.Item | None]]:
    return zip(items, [*items[1:], None], strict=bool(items))


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the survivors; returns the exit status."""
    parser = argparse.ArgumentParser("python -m tests.mutation", description=__doc__)
    parser.add_argument("--every", type=int, default=1, help="judge only every so many mutants")
    parser.add_argument("--target", type=Path, action="append", help="a file; may be repeated")
    parser.add_argument("tests", nargs="*", default=TESTS, help="files and folders of tests")
    options = parser.parse_args(arguments)
    targets = dict.fromkeys(options.target, ()) if options.target else TARGETS
    check = Check({file.resolve(): scopes for file, scopes in targets.items()}, options.every)
    own = ["-s", "-q", "-n0", "-p", "no:cacheprovider", "-m", "not hypothesis"]
    with contextlib.redirect_stdout(io.StringIO()) as output:
        status = pytest.main([*own, *map(str, options.tests)], plugins=[check])
    if status != pytest.ExitCode.OK or not check.count:
        sys.stdout.write(output.getvalue())
        return 2
    unexpected = [one for one in check.survivors if one.name not in EQUIVALENT]
    for mutant in unexpected:
        sys.stdout.write(f"{mutant.line}\n")
    known = len(check.survivors) - len(unexpected)
    sys.stdout.write(f"{check.count} mutants: {len(unexpected)} survivors, {known} equivalent\n")
    return 1 if unexpected else 0


if __name__ == "__main__":
    sys.exit(main())
