"""Checks the whole repository: its layout, its sizes, and documents that describe the code."""

import ast
import functools
import re
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import translate
from pathlib import Path

import pytest

from proxy import errors
from proxy.errors import TemperError
from tests.faults.report import summary

REPOSITORY = Path(__file__).parents[1]
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
IGNORED = re.compile(
    "|".join(
        translate(line.rstrip("/"))
        for line in (REPOSITORY / ".gitignore").read_text(encoding="utf-8").split()
        if not line.startswith("#")
    )
)

PACKAGES = ("proxy", "temper", "temper_evals")
FOLDERS = {".ci", ".github", "benchmarks", "config", "deploy", "docs", "tests", *PACKAGES}
FILES = {
    ".dockerignore",
    ".gitignore",
    "CHANGELOG.md",
    "CITATION.cff",
    "CONTRIBUTING.md",
    "Dockerfile",
    "LICENSE",
    "README.md",
    "SECURITY.md",
    "docker-compose.yml",
    "hatch_build.py",
    "mkdocs.yml",
    "pyproject.toml",
}
LONGEST_FUNCTION = 45

# Libraries that are used without being imported, and their users.
USED_UNSEEN = {
    "backports.zstd": "imported as `backports`",
    "httptools": "uvicorn's parser",
    "nvidia-ml-py": "imported as pynvml",
    "uvloop": "uvicorn's event loop",
}


def is_ignored(path: Path) -> bool:
    return any(IGNORED.match(part) for part in path.parts)


def tracked_files(folder: str) -> Iterator[Path]:
    for path in sorted((REPOSITORY / folder).rglob("*")):
        relative = path.relative_to(REPOSITORY)
        if path.is_file() and not is_ignored(relative):
            yield relative


def read(path: Path | str) -> str:
    return (REPOSITORY / path).read_text(encoding="utf-8")


@dataclass(frozen=True)
class Function:
    """The sizes of a function that the house rules limit, without comments and docstring."""

    name: str
    lines: int


@dataclass(frozen=True)
class Source:
    """The sizes and names in a file, stored instead of a syntax tree of 100 times the size."""

    docstring: str | None
    functions: tuple[Function, ...]
    silent_classes: tuple[str, ...]
    imports: tuple[str, ...]


@functools.cache
def source_of(path: Path) -> Source:
    """Read and parse a file once for all tests."""
    text = read(path)
    tree, lines = ast.parse(text, str(path)), text.splitlines()
    nodes = [*ast.walk(tree)]
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return Source(
        ast.get_docstring(tree),
        tuple(function_in(node, lines) for node in nodes if isinstance(node, kinds)),
        tuple(
            node.name
            for node in tree.body
            if isinstance(node, ast.ClassDef)
            and not (node.name.startswith("_") or ast.get_docstring(node))
        ),
        tuple(name for node in nodes for name in imported_names(node)),
    )


def function_in(node: ast.FunctionDef | ast.AsyncFunctionDef, lines: Sequence[str]) -> Function:
    source = lines[node.lineno - 1 : node.end_lineno]
    docstring = (ast.get_docstring(node, clean=False) or "").splitlines()
    count = sum(not line.lstrip().startswith("#") for line in source)
    return Function(node.name, count - len(docstring))


def imported_names(node: ast.AST) -> list[str]:
    match node:
        case ast.Import(names=aliases):
            return [alias.name for alias in aliases]
        case ast.ImportFrom(module=str(module)):
            return [module]
        case _:
            return []


MODULES = [path for package in PACKAGES for path in tracked_files(package) if path.suffix == ".py"]
CODE = [path for folder in (*PACKAGES, "tests") for path in tracked_files(folder)]
CODE = [path for path in CODE if path.suffix == ".py"]
DECISIONS = [path for path in tracked_files("docs/decisions") if path.suffix == ".md"]


def names(paths: list[Path]) -> list[str]:
    return [path.as_posix() for path in paths]


def test_every_top_level_file_and_folder_is_listed_in_this_test() -> None:
    entries = {path.name: path for path in REPOSITORY.iterdir() if not is_ignored(Path(path.name))}
    entries.pop(".git", None)
    assert {name for name, path in entries.items() if path.is_dir()} <= FOLDERS
    assert {name for name, path in entries.items() if path.is_file()} == FILES


@pytest.mark.deep
def test_every_module_and_every_public_class_has_a_docstring() -> None:
    sources = {path: source_of(path) for path in MODULES}
    assert [path for path, source in sources.items() if not source.docstring] == []
    assert {path: source.silent_classes for path, source in sources.items()} == dict.fromkeys(
        sources, ()
    )


@pytest.mark.deep
def test_no_function_is_longer_than_the_limit() -> None:
    long = [
        (path, function.name)
        for path in CODE
        for function in source_of(path).functions
        if function.lines > LONGEST_FUNCTION
    ]
    assert long == []


def drawn_tree(drawing: str) -> list[tuple[int, str]]:
    """Return the depth and the name of each class in a drawing of a class tree."""
    lines = re.findall(
        r"^((?:│   |    )*(?:├── |└── )?)([A-Z]\w+)(?: {2,}.*)?$", drawing, re.MULTILINE
    )
    return [(len(indentation) // 4, name) for indentation, name in lines]


def real_tree(root: type[TemperError], depth: int = 0) -> Iterator[tuple[int, str]]:
    yield depth, root.__name__
    for kind in root.__subclasses__():
        yield from real_tree(kind, depth + 1)


def test_the_docstring_of_errors_draws_the_tree_of_its_classes() -> None:
    assert errors.__doc__
    assert drawn_tree(errors.__doc__) == list(real_tree(TemperError))


def test_every_error_is_defined_in_the_module_errors() -> None:
    for _, name in real_tree(TemperError):
        assert hasattr(errors, name)


def test_no_file_contains_a_path_of_a_development_machine() -> None:
    places = ["/" + "work/", "/" + "tmp/" + "lab"]
    texts = [path for folder in sorted(FOLDERS) for path in tracked_files(folder)]
    texts = [path for path in texts if path.suffix not in {".gguf", ".bin", ".png"}]
    matches = [
        (str(path), folder)
        for path in [*texts, *(Path(name) for name in sorted(FILES))]
        for folder in places
        if folder in read(path)
    ]
    assert matches == []


def test_every_dependency_has_a_documented_reason_and_is_used() -> None:
    reasons = read("docs/decisions/0007-libraries.md")
    imported = {
        re.sub("[^a-z0-9]", "-", name.partition(".")[0].lower())
        for path in MODULES
        for name in source_of(path).imports
    }
    libraries = [re.split(r"[<>=; ]", line)[0] for line in PROJECT["project"]["dependencies"]]
    assert [library for library in libraries if library not in reasons] == []
    assert [name for name in libraries if name not in imported and name not in USED_UNSEEN] == []


def test_decisions_are_numbered_without_a_gap() -> None:
    assert [path.name[:5] for path in DECISIONS] == [
        f"{number:04}-" for number in range(1, len(DECISIONS) + 1)
    ]


@pytest.mark.parametrize("path", DECISIONS, ids=names(DECISIONS))
def test_a_decision_is_one_page_with_every_part_and_tests_that_exist(path: Path) -> None:
    text = read(path)
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == [
        "Status",
        "Context",
        "Decision",
        "Consequences",
        "Alternatives",
        "Enforced by",
    ]
    assert len(text.splitlines()) <= 60
    enforced = re.findall(r"`(tests/[\w/]+\.py)`", text.partition("## Enforced by")[2])
    assert enforced
    assert [test for test in enforced if not (REPOSITORY / test).is_file()] == []


def test_the_ci_script_runs_the_commands_of_the_readme() -> None:
    command = "pip install -e '.[embedded,dev]' && pytest"
    script = read(".ci/run")
    pattern = re.search(r'grep -m 1 -E "(.+)" README\.md', script)
    assert pattern
    assert re.findall(pattern[1], read("README.md"), re.MULTILINE) == [command]
    first, *_ = re.findall(r"^```sh\n(.+)$", read("README.md"), re.MULTILINE)
    assert first == "pip install '.[embedded]' && temper demo"
    assert script.startswith("#!/usr/bin/env bash\n")
    assert "\nset -euo pipefail\n" in script
    assert (REPOSITORY / ".ci/run").stat().st_mode & 0o111
    for tool in ("ruff check .", "ruff format --check .", "mypy", "lint-imports"):
        assert re.search(rf"^ *{tool}$", script, re.MULTILINE)
    assert "--cov-fail-under=95" in script


def test_the_readme_has_at_most_150_lines() -> None:
    assert len(read("README.md").splitlines()) <= 150


def test_each_release_in_the_changelog_has_at_most_40_lines() -> None:
    _, *releases = re.split(r"^## ", read("CHANGELOG.md"), flags=re.MULTILINE)
    assert releases[0].startswith("[Unreleased]")
    assert re.match(rf"\[{re.escape(PROJECT['project']['version'])}\] - [\d-]{{10}}\n", releases[1])
    assert [text.splitlines()[0] for text in releases[1:] if len(text.splitlines()) > 40] == []


def test_every_decision_is_listed() -> None:
    pages = [path.name for path in tracked_files("docs/decisions")]
    assert re.findall(r"\]\(decisions/([\w.-]+)\)", read("docs/decisions.md")) == pages


def test_readme_summarizes_the_fault_table() -> None:
    assert summary(read("docs/faults.md")) in " ".join(read("README.md").split())


def test_links_between_documents_exist() -> None:
    guides = (path for path in tracked_files("docs") if path.suffix == ".md")
    pages = [Path("README.md"), Path("CHANGELOG.md"), *guides]
    dead = [
        (str(page), target)
        for page in pages
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", read(page))
        if not (REPOSITORY / page.parent / target).exists()
    ]
    assert dead == []
