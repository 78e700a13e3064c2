"""Settings that `temper tune` found for a model; a setting from any other source overrides them.

A file also contains keys: the model, template, engine and guardrails that were measured. Its
settings apply only while all keys are equal to the current values.
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

# values by section, [guardrails] or [profile], and by setting
Tuned: TypeAlias = Mapping[str, Mapping[str, object]]
_KEYS = "keys"


def keys_of(known: KnownModel) -> dict[str, str]:
    """Return the keys of the settings: the model, template, engine and guardrails."""
    template = digest(known.evidence.template)
    keys = {"model": known.identity, "template": template, "engine": known.build}
    return {**keys, "guardrails": guardrails_digest()}


def describe_tuned(tuned: Tuned) -> str:
    """Return settings as one line, e.g. `close_out = always, effort = low`."""
    values = (
        (name, value.value if isinstance(value, Enum) else value)
        for section, settings in tuned.items()
        for name, value in settings.items()
        if section != _KEYS
    )
    return ", ".join(f"{name} = {value}" for name, value in values)


@cache
def guardrails_digest() -> str:
    """Return a digest of the packages guardrails and inference, which judge and retry replies."""
    package = Path(__file__).parent.parent
    paths = (path for part in ("guardrails", "inference") for path in (package / part).rglob("*.*"))
    files = sorted(path for path in paths if path.suffix in (".py", ".toml"))
    return digest("".join(file.read_text("utf-8") for file in files))


def read_tuned(folder: Path | None) -> Iterator[tuple[Path, Tuned]]:
    """Yield the path and the content of each readable file in a folder."""
    for path in sorted(folder.glob("*.toml")) if folder is not None else ():
        with suppress(OSError, ValueError):
            content = tomllib.loads(path.read_text("utf-8"))
            yield path, {name: value for name, value in content.items() if isinstance(value, dict)}


def apply_tuned(overrides: Overrides, tuned: Tuned) -> Overrides:
    """Add tuned values to the overrides, except where the operator has set a value."""
    profile = tuned.get("profile", {})
    convention, effort = profile.get("tools_in_prompt"), profile.get("effort")
    if isinstance(convention, str) and overrides.convention is None:
        overrides = replace(overrides, convention=convention)
    if isinstance(effort, str) and not overrides.effort:
        overrides = replace(overrides, effort=effort)
    return overrides


@dataclass(frozen=True, slots=True)
class TunedSettings:
    """Finds the tuned settings of a model.

    `drop_explicit` removes the settings that the operator has set explicitly.
    """

    folder: Path | None = None
    drop_explicit: Callable[[Tuned], Tuned] = field(default=dict)  # raises ValueError

    def of(self, known: KnownModel) -> Tuned:
        """Return the tuned settings of a model; logs files that no longer apply."""
        for path, settings in read_tuned(self.folder):
            keys = settings.get(_KEYS, {})
            if keys.get("model") != known.identity:
                continue
            changed = [name for name, key in keys_of(known).items() if keys.get(name) != key]
            with suppress(ValueError):
                if not changed:
                    return self.drop_explicit(settings)
            cause = ", ".join(changed) or "unknown settings"
            logger.warning("%s no longer applies (changed: %s); run temper tune again", path, cause)
        return {}
