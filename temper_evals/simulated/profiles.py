"""The error rates of simulated models, and their reactions to corrections, with sources."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable

from proxy.errors import InvalidConfiguration


class Flaw(Enum):
    """The ways in which a reply can be wrong."""

    PROSE_FIRST = "prose_first"
    PROSE_LATER = "prose_later"
    FOREIGN = "foreign"
    BROKEN_JSON = "broken_json"
    WRONG_NAME = "wrong_name"
    MISSING = "missing"
    WRONG_TYPE = "wrong_type"
    WRONG_VALUE = "wrong_value"
    NEEDLESS_CALL = "needless_call"
    REPEATED = "repeated"
    EARLY_STOP = "early_stop"
    WRONG_COUNT = "wrong_count"
    QUOTED = "quoted"
    REPEATED_TEXT = "repeated_text"
    ECHOED = "echoed"
    INVENTED_RESULT = "invented_result"
    RUNAWAY = "runaway"
    MIXED = "mixed"
    TAGGED = "tagged"
    RECITED = "recited"
    PLACEHOLDERS = "placeholders"


# A proxy cannot detect these flaws, because the call is valid.
UNSEEN = frozenset({Flaw.WRONG_VALUE})
# A grammar that applies from the start of a call prevents these flaws.
OF_FORM = frozenset({Flaw.BROKEN_JSON, Flaw.WRONG_NAME, Flaw.MISSING, Flaw.WRONG_TYPE})
OF_PROSE = frozenset({Flaw.PROSE_FIRST, Flaw.PROSE_LATER, Flaw.EARLY_STOP})
# Flaws of small models after the first result of a tool: in place of the next call (BEFORE_CALLS),
# and in place of the answer (BEFORE_ANSWERS).
REPEATING = (Flaw.REPEATED_TEXT, Flaw.INVENTED_RESULT, Flaw.RUNAWAY)
BEFORE_CALLS = (*REPEATING, Flaw.MIXED, Flaw.TAGGED)
BEFORE_ANSWERS = (*REPEATING, Flaw.ECHOED, Flaw.RECITED)
AFTER_RESULTS = frozenset({*BEFORE_CALLS, *BEFORE_ANSWERS})


class Reaction(Enum):
    """A named probability: of a correction after an event, or of a property of a reply."""

    UNCHANGED = "unchanged"
    GENERIC = "generic"
    SPECIFIC = "specific"
    GIVES_UP = "gives_up"
    FAILS_AGAIN = "fails_again"
    OVER_ACTING = "over_acting"
    CONSTRAINED_ERROR = "constrained_error"
    ANSWER_TOOL = "answer_tool"
    ANSWER_TOOL_RESTRAINT = "answer_tool_restraint"
    NEEDLESS_INVENTED = "needless_invented"
    NEEDLESS_ARGUMENTS = "needless_arguments"
    NEEDLESS_TEXT = "needless_text"


# The grid varies these reactions together, as its dimension `correction`.
CORRECTIONS = frozenset({Reaction.UNCHANGED, Reaction.GENERIC, Reaction.SPECIFIC})


class Level(Enum):
    """The low, middle or high end of the published values."""

    LOW = "low"
    MID = "mid"
    HIGH = "high"


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of the grid: a level for the rates, for corrections, and for constrained errors.

    A cell may instead set one reaction to a probability (`swept`), with all levels in the middle.
    """

    rates: Level = Level.MID
    correction: Level = Level.MID
    constraint: Level = Level.MID
    swept: tuple[Reaction, float] | None = None

    @property
    def name(self) -> str:
        """The three levels, such as `mid-low-high`, or the swept value, such as `gives_up=0.18`."""
        if self.swept is not None:
            return f"{self.swept[0].value}={self.swept[1]:g}"
        return f"{self.rates.value}-{self.correction.value}-{self.constraint.value}"


MID = Cell()


@dataclass(frozen=True, slots=True)
class ModelProfile:
    """A simulated model: its rates and reactions in one cell of the grid.

    If it `holds_form`, the engine's grammar applies from the start of a call. A model with
    `call_forms` writes every call as text in one of these forms, unless the request forces a call;
    the engine does not parse this text. `result_forms` are the forms in which the model echoes
    the result of a tool.
    """

    name: str
    about: str
    rates: Mapping[Flaw, float]
    reactions: Mapping[Reaction, float]
    holds_form: bool = False
    call_forms: tuple[str, ...] = ()
    result_forms: tuple[str, ...] = ("{result}",)

    def without(self, flaws: frozenset[Flaw]) -> "ModelProfile":
        """Return the same model, free of these flaws."""
        rates = {flaw: p for flaw, p in self.rates.items() if flaw not in flaws}
        forms = () if Flaw.FOREIGN in flaws else self.call_forms
        return replace(self, rates=rates, call_forms=forms)


def folder() -> Traversable:
    """Return the folder of the profiles and renderings."""
    package = resources.files("temper_evals")
    # a wheel has the data inside the package, a checkout has it in the folder next to the package
    installed = package / "config"
    return installed if installed.is_dir() else package / ".." / "config" / "evals"


def profile_names() -> tuple[str, ...]:
    names = (path.name for path in (folder() / "profiles").iterdir())
    return tuple(sorted(name.removesuffix(".toml") for name in names if name.endswith(".toml")))


def load_profile(name: str, cell: Cell = MID) -> ModelProfile:
    """Load a profile in one cell of the grid; raises InvalidConfiguration."""
    if name not in profile_names():
        known = ", ".join(profile_names())
        raise InvalidConfiguration("--profile", f"unknown profile {name!r}; known: {known}")
    document = _document(f"profiles/{name}.toml")
    level = "value" if cell.rates is Level.MID else cell.rates.value
    rates = {Flaw(key): _share(rate, level) for key, rate in _tables(document.get("rates"))}
    return ModelProfile(
        name,
        str(document.get("about", "")),
        rates,
        _reactions(cell),
        holds_form=document.get("engine") == "lazy",
        call_forms=_texts(document.get("calls", [])),
        result_forms=_texts(document.get("results", ["{result}"])),
    )


def grid() -> tuple[Cell, ...]:
    """Return every cell: 27 combinations of levels, and a cell for each swept probability."""
    swept = [
        Cell(swept=(Reaction(key), float(chance)))
        for key, table in _tables(_document("reactions.toml"))
        for chance in _numbers(table.get("swept"))
    ]
    return (*(Cell(a, b, c) for a in Level for b in Level for c in Level), *swept)


def sources_of(name: str) -> dict[str, str]:
    """Return the sources of a profile's rates, by the name of the rate."""
    sources = _document(f"profiles/{name}.toml").get("sources", {})
    return {key: str(value) for key, value in sources.items()} if isinstance(sources, dict) else {}


def _reactions(cell: Cell) -> dict[Reaction, float]:
    levels = dict.fromkeys(Reaction, Level.MID) | dict.fromkeys(CORRECTIONS, cell.correction)
    levels[Reaction.CONSTRAINED_ERROR] = cell.constraint
    document = _document("reactions.toml")
    tables = {Reaction(key): table for key, table in _tables(document)}
    chances = {
        reaction: _share(tables[reaction], level.value) for reaction, level in levels.items()
    }
    return chances if cell.swept is None else chances | dict([cell.swept])


@cache
def _document(name: str) -> dict[str, object]:
    return tomllib.loads((folder() / name).read_text(encoding="utf-8"))


def _tables(value: object) -> list[tuple[str, dict[str, object]]]:
    tables = value if isinstance(value, dict) else {}
    return [(key, value) for key, value in tables.items() if isinstance(value, dict)]


def _numbers(value: object) -> list[int | float]:
    listed = value if isinstance(value, list) else []
    return [number for number in listed if isinstance(number, int | float)]


def _texts(value: object) -> tuple[str, ...]:
    return tuple(map(str, value)) if isinstance(value, list) else ()


def _share(table: dict[str, object], level: str) -> float:
    value = table.get(level)
    if not isinstance(value, int | float) or not 0 <= value <= 1:
        raise InvalidConfiguration("--profile", f"{level} must be between 0 and 1 (got {value})")
    return float(value)
