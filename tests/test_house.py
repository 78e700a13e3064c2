"""The house: its map, its glossary, and rooms that say what is in them."""

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
def test_every_room_says_what_is_in_which_file(room: Path) -> None:
    said = ast.get_docstring(parsed(room)) or ""
    files = [path for path in MODULES if path.parent == room.parent and path != room]
    missing = [path.stem for path in files if not re.search(rf"`(\w+/)?{path.stem}`", said)]
    assert missing == []


def test_the_map_names_files_that_exist() -> None:
    named = re.findall(
        r"`((?:proxy|temper_\w+|docs|config)/[\w./]+)`", read("docs/architecture.md")
    )
    assert len(named) > 20
    assert [path for path in named if not (REPOSITORY / path).exists()] == []


INVENTED = {"config/models/acme.toml"}  # the model family of the first walk
# what the walks for newcomers say stands in a file
WALKED = {
    "proxy/backends/engines.py": ("ENGINES = (",),
    "proxy/cli/commands.py": ("            if settings.ui.enabled:",),
    "proxy/guardrails/rescue/registry.py": ("SHAPES: ",),
    "proxy/settings/sections.py": ("class Ui(",),
    "tests/unit/backends/test_engines.py": ("def test_an_engine_is_identified_by_its_model_list(",),
    "tests/unit/profiles/test_recognition.py": ("\nNAMES",),
}


def test_the_walks_for_newcomers_name_what_exists() -> None:
    text = read("docs/contributing.md")
    folders = "benchmarks|config|deploy|docs|proxy|temper|temper_evals|tests"
    named = set(re.findall(rf"(?<![\w/.-])(?:{folders})/[\w/.-]*\w", text)) - INVENTED
    assert named > WALKED.keys()
    assert [path for path in sorted(named) if not (REPOSITORY / path).exists()] == []


@pytest.mark.parametrize("file", WALKED)
def test_the_walks_for_newcomers_describe_files_as_they_are(file: str) -> None:
    assert [said for said in WALKED[file] if said not in read(file)] == []


def test_the_glossary_leads_to_where_a_word_lives_and_is_in_order() -> None:
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
    """Name what a module imports for itself or for its types, and not what a function imports."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ImportFrom) and child.module:
            for one in child.names:
                full = f"{child.module}.{one.name}"
                yield full if full in PROXY else child.module
        elif isinstance(child, ast.Import):
            yield from (one.name for one in child.names)
        elif not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from imported_by(child)


def test_no_imports_go_in_a_circle_those_for_types_included() -> None:
    graph = {name: {*imported_by(parsed(path))} & PROXY.keys() for name, path in PROXY.items()}
    assert len(graph) > 100
    TopologicalSorter(graph).prepare()  # raises `CycleError`, which names the circle
