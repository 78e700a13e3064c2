"""Switches for the heuristics that read calls in text; each replaces its heuristic by a constant.

A heuristic is a predicate (a function or property that returns a bool), an alternative of a regular
expression, a set of words, a list of `words.toml`, a field of the announcements' languages, or a
row of the provenance table. The switches are collected from the modules by inspection, so a new
heuristic has a switch automatically.
"""

import importlib
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import pairwise
from types import FunctionType, ModuleType

from msgspec.structs import force_setattr

from proxy.guardrails.announcements import recognition
from proxy.guardrails.announcements.cues import Cues, load_languages
from proxy.guardrails.rescue import copies, examples, provenance

PACKAGE = "proxy.guardrails"
MODULES = (
    *(f"rescue.{name}" for name in ("scanner", "position", "surroundings", "siblings", "copies")),
    *(f"rescue.{name}" for name in ("examples", "markup", "record", "findings", "unnamed")),
    *("rescue.stray", "rescue.swallowed", "rescue.marks"),
    *("announcements.recognition", "announcements.matching"),
    *("unparsed_calls.recognition", "unparsed_calls.reading", "unparsed_calls.words"),
    *("labels", "call_facts", "reading", "reply_scanner"),
    *("executed_calls", "grounding", "repetition"),
)
_PLAIN = str.maketrans({"|": "/", "`": "'"})  # for a table in Markdown
_PIECE = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|.", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Switch:
    """A heuristic; `turn_off` changes this process irreversibly, so call it in a fork."""

    name: str
    turn_off: Callable[[], None]


def list_switches() -> Iterator[Switch]:
    for number in range(len(provenance.TABLE) - 1):
        yield Switch(f"provenance row {number + 1}", partial(_drop_row, number))
    for name in MODULES:
        yield from _in_module(name, importlib.import_module(f"{PACKAGE}.{name}"))
    for field in examples.WordLists.__struct_fields__:
        yield Switch(f"words.toml {field}", partial(_empty_words, field))
    for field in Cues.__dataclass_fields__:
        if field not in ("language", "script", "gap", "is_spaced"):
            yield Switch(f"languages {field}", partial(_empty_cue, field))


def _in_module(name: str, module: ModuleType) -> Iterator[Switch]:
    for key, value in vars(module).items():
        if isinstance(value, re.Pattern):
            yield from _of_pattern(f"{name} {key}", value)
        elif isinstance(value, frozenset) and all(isinstance(item, str) for item in value):
            yield Switch(f"{name} {key}", partial(_replace, value, frozenset[str]()))
        elif getattr(value, "__module__", "") != module.__name__:
            continue
        elif inspect.isfunction(value) and _returns_bool(value):
            for answer in (False, True):
                known = partial(_replace, value, always(answer))
                yield Switch(f"{name} {key}() is {answer}", known)
        elif inspect.isclass(value):
            yield from _in_class(f"{name} {key}", value)


def _in_class(name: str, of: type) -> Iterator[Switch]:
    for key, value in vars(of).items():
        is_property = isinstance(value, property | cached_property)
        function = value.fget if isinstance(value, property) else getattr(value, "func", value)
        if key.startswith("__") or not inspect.isfunction(function) or not _returns_bool(function):
            continue
        for answer in (False, True):
            new = always(answer, is_property=is_property)
            mark = "" if is_property else "()"
            yield Switch(f"{name}.{key}{mark} is {answer}", partial(setattr, of, key, new))


def always(answer: bool, *, is_property: bool = False) -> object:  # noqa: FBT001 - it is the value
    def constant(*_: object, **__: object) -> bool:
        return answer

    return property(constant) if is_property else constant


def _returns_bool(function: FunctionType) -> bool:
    return inspect.signature(function).return_annotation is bool


def _of_pattern(name: str, pattern: re.Pattern[str]) -> Iterator[Switch]:
    """Yield one switch for each alternative at the top level of a pattern."""
    parts = split_alternatives(pattern.pattern)
    for number, part in enumerate(parts):
        # `(?!)` never matches
        without_part = "|".join((*parts[:number], f"(?!){part}", *parts[number + 1 :]))
        text = " ".join(part.split())[:30].translate(_PLAIN)
        label = f" no. {number + 1} {text}" if len(parts) > 1 else ""
        changed = re.compile(without_part, pattern.flags)
        yield Switch(f"{name}{label}", partial(_replace, pattern, changed))


def split_alternatives(pattern: str) -> list[str]:
    depth = 0
    cuts = [-1]
    for match in _PIECE.finditer(pattern):
        depth += (match[0] == "(") - (match[0] == ")")
        if match[0] == "|" and depth == 0:
            cuts.append(match.start())
    return [pattern[a + 1 : b] for a, b in pairwise([*cuts, len(pattern)])]


def _replace(old: object, new: object) -> None:
    """Replace an object in all modules that have imported it."""
    for name, module in [*sys.modules.items()]:
        if name.startswith(PACKAGE):
            for key, value in [*vars(module).items()]:
                if value is old:
                    setattr(module, key, new)


def _drop_row(number: int) -> None:
    _replace(provenance.TABLE, provenance.TABLE[:number] + provenance.TABLE[number + 1 :])


def _empty_words(field: str) -> None:
    words = examples.words_around_calls()
    force_setattr(words, field, "(?!)" if field == "forbids" else type(getattr(words, field))())
    copies._forbids.cache_clear()  # noqa: SLF001 - computed from the words


def _empty_cue(field: str) -> None:
    recognition._matchers.cache_clear()  # noqa: SLF001 - computed from the languages
    languages = load_languages()
    for language in languages:
        object.__setattr__(language, field, "")
    vars(recognition)["load_languages"] = lambda: languages
