"""Settings that a model earned by measurement: the lowest layer of settings for that model.

A file says what they depend on, and counts as long as all of that is the same.
"""

import logging
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cache
from pathlib import Path
from typing import TypeAlias

from proxy.profiles.known_model import KnownModel, Overrides
from proxy.profiles.tried_models import digest

logger = logging.getLogger(__name__)

# Values by section, [guardrails] or [profile], and by the names of settings.
Tuned: TypeAlias = Mapping[str, Mapping[str, object]]
_KEYS = "keys"


def keys_of(known: KnownModel) -> dict[str, str]:
    """Return what the settings of a model depend on."""
    template = digest(known.evidence.template)
    keys = {"model": known.identity, "template": template, "engine": known.build}
    return {**keys, "guardrails": guardrails_digest()}


def describe_tuned(tuned: Tuned) -> str:
    """Write settings in one line."""
    values = (
        (name, one.value if isinstance(one, Enum) else one)
        for section, settings in tuned.items()
        for name, one in settings.items()
        if section != _KEYS
    )
    return ", ".join(f"{name} = {one}" for name, one in values)


@cache
def guardrails_digest() -> str:
    """Return a digest of the code that judges replies and asks again."""
    package = Path(__file__).parent.parent
    found = (one for part in ("guardrails", "inference") for one in (package / part).rglob("*.*"))
    files = sorted(one for one in found if one.suffix in (".py", ".toml"))
    return digest("".join(file.read_text("utf-8") for file in files))


def read_tuned(folder: Path | None) -> Iterator[tuple[Path, Tuned]]:
    """Yield every file of settings in a folder with what it holds, but for broken ones."""
    for path in sorted(folder.glob("*.toml")) if folder is not None else ():
        with suppress(OSError, ValueError):
            found = tomllib.loads(path.read_text("utf-8"))
            yield path, {name: one for name, one in found.items() if isinstance(one, dict)}


def overrides_with(overrides: Overrides, tuned: Tuned) -> Overrides:
    """Return what was decided about a model, and of what was not what it has earned."""
    profile = tuned.get("profile", {})
    convention, effort = profile.get("tools_in_prompt"), profile.get("effort")
    if isinstance(convention, str) and overrides.convention is None:
        overrides = replace(overrides, convention=convention)
    if isinstance(effort, str) and not overrides.effort:
        overrides = replace(overrides, effort=effort)
    return overrides


@dataclass(frozen=True, slots=True)
class TunedSettings:
    """Finds what was earned for a model; `over` leaves what the operator has not decided."""

    folder: Path | None = None
    over: Callable[[Tuned], Tuned] = field(default=dict)  # raises ValueError

    def of(self, known: KnownModel) -> Tuned:
        """Return what changes for a model; says in the log what fits no more."""
        for path, found in read_tuned(self.folder):
            kept = found.get(_KEYS, {})
            if kept.get("model") != known.identity:
                continue
            changed = [name for name, one in keys_of(known).items() if kept.get(name) != one]
            with suppress(ValueError):
                if not changed:
                    return self.over(found)
            what = ", ".join(changed) or "settings that there are not"
            logger.warning("%s no longer counts, measure again: %s", path, what)
        return {}
