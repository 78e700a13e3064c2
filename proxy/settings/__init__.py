"""Loads the settings. Precedence: flags > environment (`TEMPER_*`) > file (TOML) > defaults.

Only `cli`, `api` and `serving` read settings; the layers below receive plain values. Secrets do not
occur in any message or `repr`.

This module defines `Settings`. Its sections are in `sections`, `models` and `tool_servers`, and
the types of settings in `values`. `sources` reads the file, the environment and flags, and records
the origin of each value.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from proxy import bounds
from proxy.conversation.workflows import Workflow, contradictions
from proxy.errors import InvalidConfiguration
from proxy.settings import models as served_models
from proxy.settings import sections, sources
from proxy.settings.models import Contradiction, ServedModel, Swapping
from proxy.settings.sources import Layer, Names, RawValue
from proxy.settings.tool_servers import (
    Tools,
    ToolServer,
    find_approval_conflicts,
    tool_server_contradictions,
)
from proxy.settings.values import RequiredName, setting
from proxy.settings.values import is_loopback as is_loopback

DEFAULT_FILE = Path("temper.toml")
TABLES = ("models", "mcp")  # [models.NAME] and [mcp.NAME]: the operator chooses NAME


class Settings(BaseSettings):
    """All settings, validated; `Settings()` contains the defaults."""

    model_config = SettingsConfigDict(
        frozen=True,
        extra="forbid",
        hide_input_in_errors=True,  # pydantic quotes the value, which may be a key (F40)
        env_prefix=sources.PREFIX,
        env_nested_delimiter="__",
        env_ignore_empty=True,
    )

    server: sections.Server = sections.Server()
    backend: sections.Backend = sections.Backend()
    ollama: sections.Ollama = sections.Ollama()
    model: sections.Model = sections.Model()
    swapping: Swapping = Swapping()
    prompt_cache: sections.PromptCache = sections.PromptCache()
    guardrails: sections.Guardrails = sections.Guardrails()
    responses: sections.Responses = sections.Responses()
    state: sections.State = sections.State()
    context: sections.Context = sections.Context()
    profile: sections.Profile = sections.Profile()
    logging: sections.Logging = sections.Logging()
    metrics: sections.Metrics = sections.Metrics()
    ui: sections.Ui = sections.Ui()
    tracing: sections.Tracing = sections.Tracing()
    recording: sections.Recording = sections.Recording()
    tools: Tools = Tools()
    mcp: dict[str, ToolServer] = setting({}, "MCP servers whose tools Temper runs, by name")
    models: dict[str, ServedModel] = setting({}, "several models, one section each, by name")
    aliases: dict[str, RequiredName] = setting(
        {}, "models by alias; an alias is a name or a pattern such as claude-*"
    )
    workflows: dict[str, Workflow] = setting({}, "rules for the order of tool calls, by model name")

    @classmethod
    def settings_customise_sources(  # noqa: PLR0917 - the signature is pydantic's
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Disable pydantic's own sources: `load_with_origins` reads them and records origins."""
        return (init_settings,)


_FIELDS = {
    f"{section}.{name}": field
    for section, values in Settings()
    if isinstance(values, BaseModel)
    for name, field in type(values).model_fields.items()
}
for _table, _section in (("models", ServedModel), ("mcp", ToolServer)):
    _FIELDS |= {f"{_table}.*.{name}": field for name, field in _section.model_fields.items()}
_CONFIDENTIAL = tuple(
    name for name, field in _FIELDS.items() if "SecretStr" in str(field.annotation)
)
_NAMES = Names(
    sections=tuple(Settings.model_fields),
    settings=tuple(_FIELDS),
    # the secrets that a `_file` setting can set; confidential tables (headers, env) have no
    # such setting
    secrets=tuple(name for name in _CONFIDENTIAL if name.endswith(("_key", ".secret"))),
    open=("workflows", "aliases"),
    tables=TABLES,
)


@dataclass(frozen=True, slots=True)
class LoadedSettings:
    """Settings, their file, and the origin of each setting that is not a default.

    The values of `hidden` settings must not be printed: they may contain secrets.
    """

    settings: Settings
    file: Path | None
    origins: Mapping[str, str]
    hidden: frozenset[str]


DEFAULT_SETTINGS = LoadedSettings(Settings(), None, {}, frozenset())


def settings_file(file: Path | None) -> Path | None:
    """Return the file to read: `file`, or `temper.toml` in the working directory if it exists."""
    return file or (DEFAULT_FILE if DEFAULT_FILE.is_file() else None)


def load_settings(
    file: Path | None = None,
    flags: Mapping[str, Mapping[str, object]] | None = None,
    origin: str = "command line",
) -> Settings:
    """Load and validate all settings; see `load_with_origins`."""
    return load_with_origins(file, flags, origin).settings


def load_with_origins(
    file: Path | None = None,
    flags: Mapping[str, Mapping[str, object]] | None = None,
    origin: str = "command line",
) -> LoadedSettings:
    """Load and validate all settings.

    `file` defaults to `temper.toml` in the working directory, if it exists. `flags` contains values
    by section and name, e.g. {"server": {"port": 80}}; None values are ignored. If a flag selects a
    server or model, settings of the file and the environment that select another server or model
    are ignored. Raises a single `InvalidConfiguration` that lists all errors with their origins.
    """
    problems: list[InvalidConfiguration] = []
    path = settings_file(file)
    merged: Layer = {}
    flag_values = sources.flag_layer(flags or {}, _NAMES, origin)
    for layer in (
        sources.file_layer(path, _NAMES) if path else {},
        sources.environment_layer(Settings, _NAMES),
    ):
        merged |= sources.usable(_without_conflicts(layer, flag_values), _NAMES, problems)
    merged |= sources.usable(flag_values, _NAMES, problems)
    settings = _check(merged, problems)
    # an invalid value is reported once, and not again as a contradiction
    invalid = {problem.setting for problem in problems}
    problems += (
        InvalidConfiguration(names[0], problem)
        for names, problem in _contradictions(settings)
        if invalid.isdisjoint(names)
    )
    if problems:
        raise all_in_one(problems)
    origins = {name: value.origin for name, value in merged.items()}
    hidden = frozenset(name for name, value in merged.items() if _may_hold_secret(name, value))
    return LoadedSettings(settings, path, origins, hidden)


# Settings that select a server or model, and the settings that may be combined with each.
_COMPATIBLE = {
    "backend.url": ("backend.kind", "ollama.model"),
    "backend.urls": ("backend.kind",),
    "model.path": (),
    "model.hf_repo": (),
    "ollama.model": ("backend.kind", "backend.url"),
}
# a flag that selects one model drops [models.NAME] and the sections that refer to these models
_SECTIONS_OF_MODELS = ("models", "aliases", "workflows")


def _without_conflicts(layer: Layer, flag_values: Layer) -> Layer:
    """Drop settings that select a different server or model than the flags."""
    selected = [name for name in _COMPATIBLE if name in flag_values]
    if not selected:
        return layer
    compatible = {*selected, *(other for name in selected for other in _COMPATIBLE[name])}
    conflicting = {"backend.kind", *_COMPATIBLE} - compatible
    has_several = any(sources.parts(name)[0] == "models" for name in layer)
    dropped_sections = _SECTIONS_OF_MODELS if has_several else ()
    return {
        name: value
        for name, value in layer.items()
        if name not in conflicting and sources.parts(name)[0] not in dropped_sections
    }


def _check(merged: Layer, problems: list[InvalidConfiguration]) -> Settings:
    """Return the valid settings, and append an error to `problems` for each invalid setting.

    If there are invalid settings, the other settings are validated again without them. The caller
    then searches the returned `Settings` for contradictions, so that one run reports all errors.
    """
    try:
        return Settings.model_validate(sources.nest(merged, _NAMES))
    except ValidationError as error:
        invalid = {
            ".".join(map(str, details["loc"][: _depth(details)])): _error_text(details)
            for details in error.errors(include_input=False, include_context=False)
        }
    for name, message in invalid.items():
        plain = message.removeprefix("Value error, ").replace("Input should", "should")
        is_shown = not _may_hold_secret(name, merged[name])
        quote = f", not {merged[name].value!r}" if is_shown else ""
        problems.append(merged[name].problem(name, plain + quote))
    return _check({name: merged[name] for name in merged if name not in invalid}, problems)


_NO_OPTION = "unknown option"
# the type of an error of pydantic -> a text without terms of Python
_ERROR_TEXTS = {
    "extra_forbidden": _NO_OPTION,
    "unexpected_keyword_argument": _NO_OPTION,
    "dataclass_type": "Input should be a valid dictionary",
}


def _error_text(details: ErrorDetails) -> str:
    message = _ERROR_TEXTS.get(details["type"], details["msg"])
    within = ".".join(map(str, details["loc"][_depth(details) :]))
    return f"{within}: {message}" if within else message


def _depth(details: ErrorDetails) -> int:
    """Return the length of the setting's name at the start of an error's location."""
    return 3 if details["loc"][0] in _NAMES.tables else 2


def _may_hold_secret(name: str, raw: RawValue) -> bool:
    # extra_arguments may contain --api-key, and a value with "@" may be a URL with a password
    is_secret = _NAMES.generic(name) in _CONFIDENTIAL or name.endswith("extra_arguments")
    return is_secret or raw.is_confidential or "@" in str(raw.value)


def _contradictions(settings: Settings) -> Iterator[Contradiction]:
    """Yield the names of settings that are valid separately but not together, and an error.

    The error is reported for the first of the settings.
    """
    yield from _server_conflicts(settings)
    yield from served_models.contradictions(settings.models, settings.swapping)
    if settings.models:
        yield from _conflicts_with_models(settings)
        rules, aliases = settings.workflows, settings.aliases
        yield from served_models.find_unknown_names(settings.models, rules, aliases)
    yield from _unsatisfiable_rules(settings)
    yield from tool_server_contradictions(settings.tools, settings.mcp, settings.server)
    yield from find_approval_conflicts(settings.mcp, settings.server, settings.ui)
    yield from _unusable_sizes(settings)
    yield from _state_contradictions(settings.state)
    server = settings.server
    if server.api_key is None and server.api_keys_file is None and not is_loopback(server.host):
        problem = (
            f"{server.host} is reachable from other machines, which requires an API key; "
            f"set server.api_key ({sources.variable('server.api_key')}) or listen on 127.0.0.1"
        )
        yield ("server.host", "server.api_key"), problem


def _state_contradictions(state: sections.State) -> Iterator[Contradiction]:
    if state.url is None or state.secret is not None:
        return
    parts = urlsplit(state.url.get_secret_value())
    if parts.scheme != "unix" and not is_loopback(parts.hostname or ""):
        problem = (
            "is on another machine, which requires a secret for encryption; "
            "set state.secret (TEMPER_STATE__SECRET)"
        )
        yield ("state.url", "state.secret"), problem


def _server_conflicts(settings: Settings) -> Iterator[Contradiction]:
    yield from served_models.find_server_conflicts(
        settings.backend, settings.model, "backend", "model"
    )
    if settings.model.source is not None and settings.ollama.model is not None:
        source = "model.path" if settings.model.path is not None else "model.hf_repo"
        problem = (
            f"cannot be combined with {source}: Temper either uses Ollama or starts llama-server; "
            "remove one of the two"
        )
        yield ("ollama.model", source), problem


def _unusable_sizes(settings: Settings) -> Iterator[Contradiction]:
    context = settings.context
    if context.low >= context.high:
        problem = f"must be below context.high, which is {context.high:g}"
        yield ("context.low", "context.high"), problem
    if context.budget == "manual" and not context.window_tokens:
        problem = "'manual' needs a number of tokens: set context.window_tokens"
        yield ("context.budget", "context.window_tokens"), problem
    if settings.responses.path is not None and settings.responses.store == "off":
        problem = "cannot be combined with responses.store = 'off': remove one of the two"
        yield ("responses.path", "responses.store"), problem
    models = [settings.model, *settings.models.values()]
    if settings.backend.replicas > 1 and any(model.source is not None for model in models):
        problem = "must be 1 if Temper starts the model server, because replicas do not share it"
        yield ("backend.replicas", "model"), problem


def _conflicts_with_models(settings: Settings) -> Iterator[Contradiction]:
    for name, is_set, details in (
        ("backend.url", bool(settings.backend.addresses), ""),
        ("model.path", settings.model.source is not None, ""),
        ("ollama.model", settings.ollama.model is not None, ", with kind = 'ollama' and its url"),
    ):
        if is_set:
            remedy = f"add a section [models.NAME] for it{details}"
            yield (name, "models"), f"cannot be combined with [models.NAME]: {remedy}"
    if settings.server.workers > 1:
        problem = "must be 1 with [models.NAME]: workers do not coordinate the loading of models"
        yield ("server.workers", "models"), problem


def _unsatisfiable_rules(settings: Settings) -> Iterator[Contradiction]:
    for name, rules in settings.workflows.items():
        for field, problem in contradictions(rules):
            yield (f"workflows.{name}",), f"{field}: {problem}"
    is_one_model = settings.model.source is not None or settings.ollama.model is not None
    if is_one_model and not settings.models:
        first, *others = settings.workflows or ("",)
        for name in others:
            problem = (
                f"workflows.{first} already has rules for the only model; merge the two sections"
            )
            yield (f"workflows.{name}", f"workflows.{first}"), problem


def all_in_one(problems: list[InvalidConfiguration]) -> InvalidConfiguration:
    if len(problems) == 1:
        return problems[0]
    lines = "".join(f"\n  {problem}" for problem in problems[: bounds.PROBLEMS])
    summary = f"{len(problems)} problems{lines}"
    return InvalidConfiguration("configuration", summary, tuple(problems))
