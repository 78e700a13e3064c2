"""What `temper check` and `temper config` find out: missing files, and the origins of values."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import proxy
from proxy.api.keys import read_keys
from proxy.conversation import json
from proxy.conversation.json import JsonValue
from proxy.errors import InvalidConfiguration, TemperError
from proxy.processes.launch import find_program, model_file_problem
from proxy.profiles.files import load_profiles
from proxy.settings import DEFAULT_FILE, TABLES, LoadedSettings
from proxy.settings.sections import Model

HIDDEN = "********"
_DEFAULT = "default"


class EffectiveSetting(NamedTuple):
    """A setting as it counts: its value as TOML has it, and where that comes from."""

    name: str
    value: JsonValue
    origin: str


def problems_with_files(loaded: LoadedSettings) -> Iterator[InvalidConfiguration]:
    settings = loaded.settings
    owners = {"model": settings.model, **{f"models.{k}": v for k, v in settings.models.items()}}
    for section, model in owners.items():
        yield from _problems_of_model(section, model, loaded.origins)
    try:
        if settings.server.api_keys_file is not None:
            read_keys(settings.server.api_keys_file)
        load_profiles(settings.profile.folder)
    except InvalidConfiguration as problem:
        yield problem


def describe_sources(loaded: LoadedSettings) -> str:
    """Say which file the settings are from, what else counts, and which files were found."""
    settings = loaded.settings
    files = sum(one.path is not None for one in (settings.model, *settings.models.values()))
    found = f" {files} model files were found." if files else ""
    others = sum(origin != str(loaded.file) for origin in loaded.origins.values())
    besides = f", and {others} from the environment" if others else ""
    if loaded.file is None:
        return f"There is no {DEFAULT_FILE} in this folder: the defaults count{besides}.{found}"
    return f"{loaded.file} was read: {len(loaded.origins) - others} settings{besides}.{found}"


def effective(loaded: LoadedSettings) -> list[EffectiveSetting]:
    """List every setting as it counts; what is secret, or may hold a secret, is not shown."""
    listed: list[EffectiveSetting] = []
    for section, values in loaded.settings.model_dump(mode="json").items():
        for name, value in values.items():
            is_section = section in TABLES and isinstance(value, dict)
            own = {f"{name}.{inner}": one for inner, one in value.items()} if is_section else None
            for inner, one in (own or {name: value}).items():
                whole = f"{section}.{inner}"
                # none is the empty text, as in the file
                shown = HIDDEN if whole in loaded.hidden else "" if one is None else one
                listed.append(EffectiveSetting(whole, shown, loaded.origins.get(whole, _DEFAULT)))
    return listed


def as_toml(settings: list[EffectiveSetting]) -> str:
    """Write settings as a file that can be read again, but for what is hidden."""
    lines: list[str] = []
    section = ""
    for one in settings:
        own, _, name = one.name.rpartition(".")
        if own != section:
            section = own
            first, dot, chosen = own.partition(".")  # what the operator chose may have dots
            lines += ["", f"[{first}{dot}{_quote(chosen) if chosen else ''}]"]
        lines.append(f"{_quote(name)} = {toml_value(one.value)}  # {one.origin}")
    return "\n".join(lines[1:])


def example_file() -> str:
    package = Path(proxy.__file__).parent
    installed = package / "temper.toml"
    source = installed if installed.is_file() else package.parent / "config" / "temper.toml"
    return source.read_text(encoding="utf-8")


def problems_document(error: TemperError) -> list[JsonValue]:
    if not isinstance(error, InvalidConfiguration):
        return [{"setting": None, "problem": str(error)}]
    return [{"setting": one.setting, "problem": one.problem} for one in error.problems]


def _problems_of_model(
    section: str, model: Model, origins: Mapping[str, str]
) -> Iterator[InvalidConfiguration]:
    name = f"{section}.path"
    if model.path is not None and (problem := model_file_problem(model.path)):
        yield InvalidConfiguration(name, f"{model.path} {problem} ({origins.get(name, _DEFAULT)})")
    if model.server is not None:
        try:
            find_program(model.server)
        except TemperError as error:
            yield InvalidConfiguration(f"{section}.server", str(error))


def toml_value(value: JsonValue) -> str:
    """Write a value as it stands in a file; what is not set is an empty text."""
    match value:
        case None:
            return '""'
        case float() if value.is_integer():
            return str(int(value))
        case dict():
            known = ((name, one) for name, one in value.items() if one is not None)
            return f"{{{', '.join(f'{_quote(name)} = {toml_value(one)}' for name, one in known)}}}"
        case list():
            return f"[{', '.join(map(toml_value, value))}]"
        case _:
            return json.dump_text(value)


def _quote(name: str) -> str:
    is_bare = all(character.isalnum() or character in "_-" for character in name)
    return name if is_bare and name.isascii() and name else json.dump_text(name)
