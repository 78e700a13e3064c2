"""`temper check` and `temper config`: missing files, effective settings and their sources."""

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import proxy
from proxy.api.keys import read_keys
from proxy.conversation import json
from proxy.conversation.json import JsonValue
from proxy.errors import InvalidConfiguration, TemperError
from proxy.mcp.hosting import specs_of
from proxy.processes.launch import find_program, model_file_problem
from proxy.profiles.files import load_profiles
from proxy.settings import DEFAULT_FILE, TABLES, LoadedSettings
from proxy.settings.sections import Model
from proxy.settings.tool_servers import ToolServer

HIDDEN = "********"
_DEFAULT = "default"


class EffectiveSetting(NamedTuple):
    """An effective setting: its value as in TOML, and its source."""

    name: str
    value: JsonValue
    origin: str


def problems_with_files(loaded: LoadedSettings) -> Iterator[InvalidConfiguration]:
    settings = loaded.settings
    owners = {"model": settings.model, **{f"models.{k}": v for k, v in settings.models.items()}}
    for section, model in owners.items():
        yield from _problems_of_model(section, model, loaded.origins)
    for name, server in settings.mcp.items():
        if server.command and not _can_run(server):
            problem = f"{server.command[0]} is not on the PATH; install it, or correct the path"
            yield InvalidConfiguration(f"mcp.{name}.command", problem)
    try:
        if settings.mcp:
            specs_of(settings)
        if settings.server.api_keys_file is not None:
            read_keys(settings.server.api_keys_file)
        load_profiles(settings.profile.folder)
    except InvalidConfiguration as problem:
        yield problem


def _can_run(server: ToolServer) -> bool:
    path = server.env.get("PATH")
    program = server.command[0]
    if "/" in program or "\\" in program:
        # the path is relative to the folder in which the program is started
        program = str(Path(server.cwd, program))
    search = None if path is None else path.get_secret_value()
    return shutil.which(program, path=search) is not None


def describe_sources(loaded: LoadedSettings) -> str:
    """Describe the sources of the settings, and the model files that were found."""
    settings = loaded.settings
    files = sum(model.path is not None for model in (settings.model, *settings.models.values()))
    models_found = f" Model files found: {files}." if files else ""
    environment_count = sum(origin != str(loaded.file) for origin in loaded.origins.values())
    from_environment = f", {environment_count} set by the environment" if environment_count else ""
    if loaded.file is None:
        return (
            f"No {DEFAULT_FILE} in this folder; using the defaults{from_environment}.{models_found}"
        )
    count = len(loaded.origins) - environment_count
    settings_count = f"{count} setting{'' if count == 1 else 's'}"
    return f"{loaded.file}: {settings_count}{from_environment}.{models_found}"


def effective(loaded: LoadedSettings) -> list[EffectiveSetting]:
    """List all effective settings; a value that is a secret, or may contain one, is hidden."""
    listed: list[EffectiveSetting] = []
    for section, values in loaded.settings.model_dump(mode="json").items():
        for name, value in values.items():
            is_section = section in TABLES and isinstance(value, dict)
            nested = (
                {f"{name}.{inner}": inner_value for inner, inner_value in value.items()}
                if is_section
                else None
            )
            for inner, inner_value in (nested or {name: value}).items():
                path = f"{section}.{inner}"
                # a setting without a value is an empty string in the file
                shown = (
                    HIDDEN if path in loaded.hidden else "" if inner_value is None else inner_value
                )
                listed.append(EffectiveSetting(path, shown, loaded.origins.get(path, _DEFAULT)))
    return listed


def as_toml(settings: list[EffectiveSetting]) -> str:
    """Write settings as TOML with their sources as comments; hidden values stay hidden."""
    lines: list[str] = []
    section = ""
    for entry in settings:
        section_name, _, name = entry.name.rpartition(".")
        if section_name != section:
            section = section_name
            # names chosen by the operator may contain dots
            first, dot, chosen = section_name.partition(".")
            lines += ["", f"[{first}{dot}{_quote(chosen) if chosen else ''}]"]
        lines.append(f"{_quote(name)} = {toml_value(entry.value)}  # {entry.origin}")
    return "\n".join(lines[1:])


def example_file() -> str:
    package = Path(proxy.__file__).parent
    installed = package / "temper.toml"
    source = installed if installed.is_file() else package.parent / "config" / "temper.toml"
    return source.read_text(encoding="utf-8")


def problems_document(error: TemperError) -> list[JsonValue]:
    if not isinstance(error, InvalidConfiguration):
        return [{"setting": None, "problem": str(error)}]
    return [{"setting": problem.setting, "problem": problem.problem} for problem in error.problems]


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
    """Write a value as TOML; None becomes an empty string."""
    match value:
        case None:
            return '""'
        case float() if value.is_integer():
            return str(int(value))  # 10, as an operator writes it, not 10.0
        case dict():
            known = ((name, item) for name, item in value.items() if item is not None)
            return (
                f"{{{', '.join(f'{_quote(name)} = {toml_value(item)}' for name, item in known)}}}"
            )
        case list():
            return f"[{', '.join(map(toml_value, value))}]"
        case _:
            return json.dump_text(value)


def _quote(name: str) -> str:
    is_bare = all(character.isalnum() or character in "_-" for character in name)
    return name if is_bare and name.isascii() and name else json.dump_text(name)
