"""Tuned settings: measured for one model, and the lowest layer of its settings.

A file holds settings together with the keys that they depend on. It applies while all keys match.
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
from proxy.state.tried_models import digest

logger = logging.getLogger(__name__)

# values by section, [guardrails] or [profile], and by setting
Tuned: TypeAlias = Mapping[str, Mapping[str, object]]
_KEYS = "keys"


def keys_of(known: KnownModel) -> dict[str, str]:
    """Return the keys that the tuned settings of a model depend on."""
    template = digest(known.evidence.template)
    keys = {"model": known.identity, "template": template, "engine": known.build}
    return {**keys, "guardrails": guardrails_digest()}


def describe_tuned(tuned: Tuned) -> str:
    """Write settings in one line."""
    values = (
        (name, value.value if isinstance(value, Enum) else value)
        for section, settings in tuned.items()
        for name, value in settings.items()
        if section != _KEYS
    )
    return ", ".join(f"{name} = {value}" for name, value in values)


@cache
def guardrails_digest() -> str:
    """Return a digest of the code that reviews replies and retries."""
    package = Path(__file__).parent.parent
    sources = (
        file for part in ("guardrails", "inference") for file in (package / part).rglob("*.*")
    )
    files = sorted(file for file in sources if file.suffix in (".py", ".toml"))
    return digest("".join(file.read_text("utf-8") for file in files))


def read_tuned(folder: Path | None) -> Iterator[tuple[Path, Tuned]]:
    """Yield every readable file of tuned settings in a folder with its content."""
    for path in sorted(folder.glob("*.toml")) if folder is not None else ():
        with suppress(OSError, ValueError):
            content = tomllib.loads(path.read_text("utf-8"))
            sections = {name: part for name, part in content.items() if isinstance(part, dict)}
            yield path, sections


def overrides_with(overrides: Overrides, tuned: Tuned) -> Overrides:
    """Return the overrides, with tuned values where the operator has decided nothing."""
    profile = tuned.get("profile", {})
    convention, effort = profile.get("tools_in_prompt"), profile.get("effort")
    if isinstance(convention, str) and overrides.convention is None:
        overrides = replace(overrides, convention=convention)
    if isinstance(effort, str) and not overrides.effort:
        overrides = replace(overrides, effort=effort)
    return overrides


@dataclass(frozen=True, slots=True)
class TunedSettings:
    """Finds the tuned settings of a model; `over` removes those that the operator has set."""

    folder: Path | None = None
    over: Callable[[Tuned], Tuned] = field(default=dict)  # raises ValueError

    def of(self, known: KnownModel) -> Tuned:
        """Return the tuned settings of a model; logs files that no longer apply."""
        for path, content in read_tuned(self.folder):
            keys = content.get(_KEYS, {})
            if keys.get("model") != known.identity:
                continue
            changed = [name for name, key in keys_of(known).items() if keys.get(name) != key]
            with suppress(ValueError):
                if not changed:
                    return self.over(content)
            reason = ", ".join(changed) or "unknown settings"
            logger.warning("%s no longer applies (%s); run temper tune again", path, reason)
        return {}
