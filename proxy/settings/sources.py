"""Sources of settings: a TOML file, the environment and flags; each value has an origin.

This module checks names, replaces `${VAR}` and reads secret files. `Settings` validates values.
"""

import difflib
import logging
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from pydantic_settings import BaseSettings, EnvSettingsSource, SettingsError

from proxy import bounds
from proxy.errors import InvalidConfiguration
from proxy.files import read_text, read_toml

logger = logging.getLogger(__name__)

PREFIX = "TEMPER_"

# For a service called `temper`, Kubernetes sets variables that are no settings of Temper:
# TEMPER_SERVICE_HOST, TEMPER_PORT=tcp://10.0.0.1:80, TEMPER_PORT_80_TCP_ADDR.
_SERVICE_ADDRESS = re.compile(r"TEMPER_([A-Z0-9]+_)*(SERVICE_(HOST|PORT)|PORT_[0-9]+_)")
_NEAR = 0.75  # minimum similarity to a setting; other variables may belong to another program
# the closing brace is optional, so that "${VAR" is an error and not a literal value
_REFERENCE = re.compile(r"\$\{([^}]*)\}?")


@dataclass(frozen=True, slots=True)
class Names:
    """All valid names.

    `settings` have the form `section.name`, and `secrets` are the settings that contain a secret.
    In `open` sections, such as aliases, any name is valid. In `tables`, such as [models.NAME], the
    operator chooses NAME; `settings` then contains `models.*.path`.
    """

    sections: tuple[str, ...]
    settings: tuple[str, ...]
    secrets: tuple[str, ...]
    open: tuple[str, ...] = ()
    tables: tuple[str, ...] = ()

    def has(self, name: str) -> bool:
        section, _, setting_name = name.partition(".")
        return self.generic(name) in self.settings or (section in self.open and setting_name != "")

    def generic(self, name: str) -> str:
        """Replace the name that the operator chose: `models.qwen.path` -> `models.*.path`."""
        section, owner, setting_name = parts(name)
        return f"{section}.*.{setting_name}" if section in self.tables and owner else name

    def secret_of(self, name: str) -> str | None:
        """Return the secret that a `_file` setting sets (`x_file` -> `x`); None for other names."""
        secret = name.removesuffix("_file")
        return secret if secret != name and self.generic(secret) in self.secrets else None

    @property
    def all(self) -> tuple[str, ...]:
        """All valid names: settings, `_file` settings of secrets, and sections."""
        return (*self.settings, *(f"{name}_file" for name in self.secrets), *self.sections)


@dataclass(frozen=True, slots=True)
class RawValue:
    """A value before validation, and its origin; if `is_template`, it may contain `${VAR}`."""

    value: object = field(repr=False)
    origin: str
    is_template: bool = False
    is_confidential: bool = False
    is_variable: bool = False

    def problem(self, name: str, problem: str) -> InvalidConfiguration:
        return InvalidConfiguration(name, f"{problem} ({self.origin})")


Layer: TypeAlias = dict[str, RawValue]


def file_layer(path: Path, names: Names) -> Layer:
    return {
        name: RawValue(value, str(path), is_template=True)
        for name, value in _flatten(read_toml(path), names)
    }


def environment_layer(model: type[BaseSettings], names: Names) -> Layer:
    """Read all variables with the prefix, including misspelled names."""
    try:
        # pydantic decodes JSON for lists and tables
        values = dict(_flatten(EnvSettingsSource(model)(), names))
    except (SettingsError, RecursionError):  # invalid or deeply nested JSON in any variable
        values = {}  # all variables are read as text below; validation finds the invalid variable
    for name_of_variable, text in os.environ.items():
        if text and name_of_variable.startswith(PREFIX):
            name = name_of_variable.removeprefix(PREFIX).lower().replace("__", ".")
            # TEMPER_BACKEND={"url": ...} has already become backend.url
            is_decoded = any(known.startswith(f"{name}.") for known in values)
            is_address = text.startswith(("tcp://", "udp://", "sctp://"))
            if not (is_decoded or is_address or _SERVICE_ADDRESS.match(name_of_variable)):
                values.setdefault(name, text)
    return {
        name: RawValue(value, f"environment variable {variable(name)}", is_variable=True)
        for name, value in values.items()
    }


def flag_layer(
    flags: Mapping[str, Mapping[str, object]], names: Names, origin: str = "command line"
) -> Layer:
    return {
        name: RawValue(value, origin) for name, value in _flatten(flags, names) if value is not None
    }


def usable(layer: Layer, names: Names, problems: list[InvalidConfiguration]) -> Layer:
    """Return the settings with valid names; `${VAR}` is replaced, and secret files are read.

    A variable with the prefix that probably belongs to another program is skipped with a warning.
    """
    usable_values: Layer = {}
    for name, raw in layer.items():
        if len(problems) == bounds.PROBLEMS:  # the search for suggestions is slow
            break
        try:
            secret = names.secret_of(name)
            if secret is None and not names.has(name):
                if raw.is_variable and _is_foreign(name, names):
                    logger.warning("%s", _unknown(name, raw, names))
                    continue
                raise _unknown(name, raw, names)
            plain = _expand(name, raw)
            if secret is None:
                # `setdefault`: a secret from a `_file` setting of this layer takes precedence
                usable_values.setdefault(name, plain)
            elif plain.value != "":
                usable_values[secret] = _secret_from_file(name, plain)
        except InvalidConfiguration as problem:
            problems.append(problem)
    return usable_values


def nest(layer: Layer, names: Names) -> dict[str, dict[str, object]]:
    """Return nested tables: {"models.a.path": x} becomes {"models": {"a": {"path": x}}}."""
    values: dict[str, dict[str, object]] = {}
    tables: dict[str, dict[str, object]] = {}
    for name, raw in layer.items():
        section, owner, setting_name = parts(name)
        if section in names.tables:
            table = tables.setdefault(f"{section}.{owner}", {})
            table[setting_name] = raw.value
            values.setdefault(section, {})[owner] = table
        else:
            values.setdefault(section, {})[name.removeprefix(f"{section}.")] = raw.value
    return values


def parts(name: str) -> tuple[str, str, str]:
    """Split a name: `models.qwen3.5.path` -> `models`, `qwen3.5`, `path`."""
    section, _, remainder = name.partition(".")
    owner, _, setting_name = remainder.rpartition(".")
    return section, owner, setting_name


def variable(name: str) -> str:
    return PREFIX + name.replace(".", "__").upper()


def _flatten(sections: Mapping[str, object], names: Names) -> Iterator[tuple[str, object]]:
    """Yield (`section.setting`, value) for each setting; yield an unknown section as one value."""
    for section, values in sections.items():
        if section in names.sections and isinstance(values, Mapping):
            for name, value in values.items():
                if section in names.tables and isinstance(value, Mapping) and value:
                    yield from (
                        (f"{section}.{name}.{setting_name}", item)
                        for setting_name, item in value.items()
                    )
                else:
                    yield f"{section}.{name}", value
        else:
            yield section, values


def _unknown(name: str, raw: RawValue, names: Names) -> InvalidConfiguration:
    if name in names.sections:
        return raw.problem(name, "is a section, not a setting")
    section, owner, last = parts(name)
    if section in names.tables and not owner:
        return raw.problem(name, "should be a section")
    generic = names.generic(name)
    in_other_sections = [known for known in names.settings if known.endswith(f".{last or name}")]
    similar = difflib.get_close_matches(generic, names.all, 1, _NEAR) or in_other_sections
    similar = similar or difflib.get_close_matches(name, names.all, 1)
    if not similar:
        return raw.problem(name, "is not a setting")
    suggestion = similar[0].replace("*", owner or "NAME")
    suggestion = variable(suggestion) if raw.is_variable else suggestion
    return raw.problem(name, f"is not a setting; did you mean {suggestion}?")


def _is_foreign(name: str, names: Names) -> bool:
    """Return whether a variable probably belongs to another program.

    Docker's links, for example, set TEMPER_NAME and TEMPER_ENV_X. A misspelled secret is always an
    error: if it were skipped, the server would accept requests without a key.
    """
    is_in_section = parts(name)[0] in names.sections
    secret = name.removesuffix("_file")
    is_secret = any(known.endswith(f".{secret}") for known in names.secrets)
    is_similar = bool(difflib.get_close_matches(names.generic(name), names.all, 1, _NEAR))
    return not (is_in_section or is_secret or is_similar)


def _expand(name: str, raw: RawValue) -> RawValue:
    """Replace `${VAR}` in a string, and in all strings of a list or table."""
    if not raw.is_template:
        return raw
    is_confidential = False

    def value_of(match: re.Match[str]) -> str:
        nonlocal is_confidential
        value = os.environ.get(match[1], "") if match[0].endswith("}") else ""
        if not value:
            raise raw.problem(name, f"the environment variable in {match[0]} is not set")
        is_confidential = True
        return value

    def fill(value: object) -> object:
        match value:
            case str():
                return _REFERENCE.sub(value_of, value)
            case list():
                return [fill(item) for item in value]
            case dict():
                return {key: fill(item) for key, item in value.items()}
            case _:
                return value

    return RawValue(fill(raw.value), raw.origin, is_confidential=is_confidential)


def _secret_from_file(name: str, raw: RawValue) -> RawValue:
    path = Path(str(raw.value))
    try:
        secret = read_text(path).strip()
    except InvalidConfiguration as error:
        raise raw.problem(name, f"{path} {error.problem}") from error
    if not secret:
        raise raw.problem(name, f"{path} is empty")
    return RawValue(secret, raw.origin)
