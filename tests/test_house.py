"""Checks the map of the code, the glossary, the walks for newcomers, and package docstrings."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from tests.test_repository import MODULES, REPOSITORY, names, read

ROOMS = [path for path in MODULES if path.name == "__init__.py"]
GLOSSARY = re.findall(
    r"^\| (`?)([^|`]+)`? \| ([^|]+) \| `([^`]+)` \|$", read("docs/glossary.md"), re.MULTILINE
)


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(read(path), str(path))


@pytest.mark.parametrize("room", ROOMS, ids=names(ROOMS))
def test_every_package_docstring_lists_its_modules(room: Path) -> None:
    doc = ast.get_docstring(parsed(room)) or ""
    files = [path for path in MODULES if path.parent == room.parent and path != room]
    missing = [path.stem for path in files if not re.search(rf"`(\w+/)?{path.stem}`", doc)]
    assert missing == []


def test_every_file_named_in_architecture_md_exists() -> None:
    named = re.findall(
        r"`((?:proxy|temper_\w+|docs|config)/[\w./]+)`", read("docs/architecture.md")
    )
    assert len(named) > 20
    assert [path for path in named if not (REPOSITORY / path).exists()] == []


INVENTED = {"config/models/acme.toml"}  # the model family of the first walk
# file -> lines that the walks for newcomers quote from it
WALKED = {
    "proxy/backends/engines.py": ("ENGINES = (",),
    "proxy/cli/serve.py": ("    if settings.ui.enabled:",),
    "proxy/guardrails/rescue/registry.py": ("SHAPES: ",),
    "proxy/settings/sections.py": ("class Ui(",),
    "tests/unit/backends/test_engines.py": (
        "def test_an_engine_is_identified_by_owned_by_in_its_model_list(",
    ),
    "tests/unit/profiles/test_recognition.py": ("\nNAMES",),
}


def test_every_file_named_in_contributing_md_exists() -> None:
    text = read("docs/contributing.md")
    folders = "benchmarks|config|deploy|docs|proxy|temper|temper_evals|tests"
    named = set(re.findall(rf"(?<![\w/.-])(?:{folders})/[\w/.-]*\w", text)) - INVENTED
    assert named > WALKED.keys()
    assert [path for path in sorted(named) if not (REPOSITORY / path).exists()] == []


@pytest.mark.parametrize("file", WALKED)
def test_every_code_line_quoted_in_contributing_md_exists(file: str) -> None:
    assert [line for line in WALKED[file] if line not in read(file)] == []


def test_glossary_is_sorted_and_its_links_exist() -> None:
    assert [where for _, _, _, where in GLOSSARY if not (REPOSITORY / where).is_file()] == []
    gone = [
        term
        for mark, term, _, where in GLOSSARY
        if mark and not re.search(rf"^(class {term}\b|{term}: TypeAlias = )", read(where), re.M)
    ]
    assert gone == []
    terms = [term.lower() for _, term, _, _ in GLOSSARY]
    assert terms == sorted(terms)


def module_name(path: Path) -> str:
    parts = path.resolve().relative_to(REPOSITORY.resolve()).with_suffix("").parts
    return ".".join(parts).removesuffix(".__init__")


PROXY = {name: path for path in MODULES if (name := module_name(path)).startswith("proxy.")}


def imported_by(node: ast.AST) -> Iterator[str]:
    """Yield the names that a module imports at its top level, but not those within functions."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ImportFrom) and child.module:
            for alias in child.names:
                full = f"{child.module}.{alias.name}"
                yield full if full in PROXY else child.module
        elif isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names)
        elif not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from imported_by(child)


@pytest.mark.deep
def test_imports_have_no_cycles() -> None:
    graph = {name: {*imported_by(parsed(path))} & PROXY.keys() for name, path in PROXY.items()}
    assert len(graph) > 100
    TopologicalSorter(graph).prepare()  # raises `CycleError`, which names the cycle
