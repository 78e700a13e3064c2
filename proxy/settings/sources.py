"""Sources of settings: a TOML file, the environment and flags; each value has an origin.

This module resolves names, `${VAR}` and secret files. It receives the names of all settings, and
does not validate values.
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

# For a service called `temper`, Kubernetes sets variables with our prefix: TEMPER_SERVICE_HOST,
# TEMPER_PORT=tcp://10.0.0.1:80, TEMPER_PORT_80_TCP_ADDR.
_SERVICE_ADDRESS = re.compile(r"TEMPER_([A-Z0-9]+_)*(SERVICE_(HOST|PORT)|PORT_[0-9]+_)")
_NEAR = 0.75  # similarity for suggestions; below it a variable may belong to another program
# the brace is optional, so that a missing one is an error and not part of the value
_REFERENCE = re.compile(r"\$\{([^}]*)\}?")


@dataclass(frozen=True, slots=True)
class Names:
    """All names: `sections`, `settings` as `section.name`, and the `secrets` among them.

    In `open` sections the operator chooses the names of settings. `tables` contain sections with
    names chosen by the operator; their settings are called `section.*.name` here.
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
        """Return the name of a setting with `*` for the name chosen by the operator."""
        section, owner, setting_name = parts(name)
        return f"{section}.*.{setting_name}" if section in self.tables and owner else name

    def secret_of(self, name: str) -> str | None:
        """Return the secret for a `_file` setting, None for other settings."""
        secret = name.removesuffix("_file")
        return secret if secret != name and self.generic(secret) in self.secrets else None

    @property
    def all(self) -> tuple[str, ...]:
        """All valid names: settings, `_file` settings of secrets, and sections."""
        return (*self.settings, *(f"{name}_file" for name in self.secrets), *self.sections)


@dataclass(frozen=True, slots=True)
class GivenValue:
    """A raw value and its origin; a template may contain `${VAR}`."""

    value: object = field(repr=False)
    origin: str
    is_template: bool = False
    is_confidential: bool = False
    is_variable: bool = False

    def problem(self, name: str, problem: str) -> InvalidConfiguration:
        return InvalidConfiguration(name, f"{problem} ({self.origin})")


Layer: TypeAlias = dict[str, GivenValue]


def file_layer(path: Path, names: Names) -> Layer:
    return {
        name: GivenValue(value, str(path), is_template=True)
        for name, value in _flatten(read_toml(path), names)
    }


def environment_layer(model: type[BaseSettings], names: Names) -> Layer:
    """Read all variables with the prefix, including misspelled ones."""
    try:
        # decodes JSON for lists and tables
        values = dict(_flatten(EnvSettingsSource(model)(), names))
    except (SettingsError, RecursionError):  # invalid or deeply nested JSON in any variable
        values = {}  # the variables are read as text below, and validation names the wrong one
    for name_of_variable, text in os.environ.items():
        if text and name_of_variable.startswith(PREFIX):
            name = name_of_variable.removeprefix(PREFIX).lower().replace("__", ".")
            # TEMPER_BACKEND={"url": ...} has already become backend.url
            is_decoded = any(known.startswith(f"{name}.") for known in values)
            is_address = text.startswith(("tcp://", "udp://", "sctp://"))
            if not (is_decoded or is_address or _SERVICE_ADDRESS.match(name_of_variable)):
                values.setdefault(name, text)
    return {
        name: GivenValue(value, f"environment variable {variable(name)}", is_variable=True)
        for name, value in values.items()
    }


def flag_layer(
    flags: Mapping[str, Mapping[str, object]], names: Names, origin: str = "command line"
) -> Layer:
    return {
        name: GivenValue(value, origin)
        for name, value in _flatten(flags, names)
        if value is not None
    }


def usable(layer: Layer, names: Names, problems: list[InvalidConfiguration]) -> Layer:
    """Return the settings with valid names, `${VAR}` replaced and secret files read.

    A variable with our prefix that is probably not ours is skipped, with a warning.
    """
    usable_values: Layer = {}
    for name, given in layer.items():
        if len(problems) == bounds.PROBLEMS:  # the search for suggestions is slow
            break
        try:
            secret = names.secret_of(name)
            if secret is None and not names.has(name):
                if given.is_variable and _is_foreign(name, names):
                    logger.warning("%s", _unknown(name, given, names))
                    continue
                raise _unknown(name, given, names)
            plain = _expand(name, given)
            if secret is None:
                # `setdefault`: a key from a file of the same layer takes precedence
                usable_values.setdefault(name, plain)
            elif plain.value != "":
                usable_values[secret] = _secret_from_file(name, plain)
        except InvalidConfiguration as problem:
            problems.append(problem)
    return usable_values


def nest(layer: Layer, names: Names) -> dict[str, dict[str, object]]:
    """Return the values by section, and within a table by the operator's name."""
    values: dict[str, dict[str, object]] = {}
    tables: dict[str, dict[str, object]] = {}
    for name, given in layer.items():
        section, owner, setting_name = parts(name)
        if section in names.tables:
            table = tables.setdefault(f"{section}.{owner}", {})
            table[setting_name] = given.value
            values.setdefault(section, {})[owner] = table
        else:
            values.setdefault(section, {})[name.removeprefix(f"{section}.")] = given.value
    return values


def parts(name: str) -> tuple[str, str, str]:
    """Split a name into section, operator's name (may contain dots) and setting."""
    section, _, rest = name.partition(".")
    owner, _, setting_name = rest.rpartition(".")
    return section, owner, setting_name


def variable(name: str) -> str:
    return PREFIX + name.replace(".", "__").upper()


def _flatten(sections: Mapping[str, object], names: Names) -> Iterator[tuple[str, object]]:
    """Yield each value as `section.setting`; unknown sections are yielded whole."""
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


def _unknown(name: str, given: GivenValue, names: Names) -> InvalidConfiguration:
    if name in names.sections:
        return given.problem(name, "is a section, not a setting")
    section, owner, last = parts(name)
    if section in names.tables and not owner:
        return given.problem(name, "should be a section")
    generic = names.generic(name)
    namesakes = [known for known in names.settings if known.endswith(f".{last or name}")]
    near = difflib.get_close_matches(generic, names.all, 1, _NEAR) or namesakes
    near = near or difflib.get_close_matches(name, names.all, 1)
    if not near:
        return given.problem(name, "is not a setting")
    nearest = near[0].replace("*", owner or "NAME")
    meant = variable(nearest) if given.is_variable else nearest
    return given.problem(name, f"is not a setting; did you mean {meant}?")


def _is_foreign(name: str, names: Names) -> bool:
    """Return whether a variable is probably foreign (Docker's links: TEMPER_NAME, TEMPER_ENV_X).

    A misspelled secret is never treated as foreign, as the server would then be open.
    """
    is_in_section = parts(name)[0] in names.sections
    secret = name.removesuffix("_file")
    is_secret = any(known.endswith(f".{secret}") for known in names.secrets)
    is_near = bool(difflib.get_close_matches(names.generic(name), names.all, 1, _NEAR))
    return not (is_in_section or is_secret or is_near)


def _expand(name: str, given: GivenValue) -> GivenValue:
    """Replace `${VAR}` in a string, and in all strings of a list or table."""
    if not given.is_template:
        return given
    is_confidential = False

    def content(match: re.Match[str]) -> str:
        nonlocal is_confidential
        value = os.environ.get(match[1], "") if match[0].endswith("}") else ""
        if not value:
            raise given.problem(name, f"the environment variable in {match[0]} is not set")
        is_confidential = True
        return value

    def fill(value: object) -> object:
        match value:
            case str():
                return _REFERENCE.sub(content, value)
            case list():
                return [fill(item) for item in value]
            case dict():
                return {key: fill(item) for key, item in value.items()}
            case _:
                return value

    return GivenValue(fill(given.value), given.origin, is_confidential=is_confidential)


def _secret_from_file(name: str, given: GivenValue) -> GivenValue:
    path = Path(str(given.value))
    try:
        secret = read_text(path).strip()
    except InvalidConfiguration as error:
        raise given.problem(name, f"{path} {error.problem}") from error
    if not secret:
        raise given.problem(name, f"{path} is empty")
    return GivenValue(secret, given.origin)
