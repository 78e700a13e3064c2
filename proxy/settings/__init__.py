"""Settings. Precedence: flags > environment (`TEMPER_*`) > file (TOML) > defaults.

Only `cli`, `api` and `serving` read settings; the layers below receive plain values. No message or
representation contains a secret.

`Settings` is defined here. Its sections are in `sections`, `models` and `tool_servers`; their types
are in `values`. `sources` reads the file, the environment and flags, and records the origin of
each value.
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
from proxy.settings.sources import GivenValue, Layer, Names
from proxy.settings.tool_servers import (
    Tools,
    ToolServer,
    find_approval_conflicts,
    tool_server_contradictions,
)
from proxy.settings.values import RequiredName, setting
from proxy.settings.values import is_loopback as is_loopback

DEFAULT_FILE = Path("temper.toml")
TABLES = ("models", "mcp")  # tables of sections whose names the operator chooses


class Settings(BaseSettings):
    """All validated settings; `Settings()` has the defaults."""

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
        """Use only the arguments: `load_settings` reads all sources and records origins."""
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
    # those that may be read from a file; headers and environments are tables
    secrets=tuple(name for name in _CONFIDENTIAL if name.endswith(("_key", ".secret"))),
    open=("workflows", "aliases"),
    tables=TABLES,
)


@dataclass(frozen=True, slots=True)
class LoadedSettings:
    """Settings, their file, and the origin of each setting that is not a default.

    The values of `hidden` settings are not shown: they are or may contain secrets.
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

    `file` defaults to `temper.toml` in the working directory, if it exists. `flags` holds sections
    of values from `origin`; None means not given. Flags that select a server, a file or an Ollama
    model replace all such selections of the file and the environment. Raises a single
    `InvalidConfiguration` that lists all errors with their origins.
    """
    problems: list[InvalidConfiguration] = []
    path = settings_file(file)
    given: Layer = {}
    chosen = sources.flag_layer(flags or {}, _NAMES, origin)
    for layer in (
        sources.file_layer(path, _NAMES) if path else {},
        sources.environment_layer(Settings, _NAMES),
    ):
        given |= sources.usable(_without_rivals(layer, chosen), _NAMES, problems)
    given |= sources.usable(chosen, _NAMES, problems)
    settings = _check(given, problems)
    # no contradictions of values that are invalid themselves: one mistake would be two errors
    wrong = {problem.setting for problem in problems}
    problems += (
        InvalidConfiguration(names[0], problem)
        for names, problem in _contradictions(settings)
        if wrong.isdisjoint(names)
    )
    if problems:
        raise all_in_one(problems)
    origins = {name: value.origin for name, value in given.items()}
    hidden = frozenset(name for name, value in given.items() if _may_hold_secret(name, value))
    return LoadedSettings(settings, path, origins, hidden)


# Settings that select a server or model, and the settings that may be combined with each.
_SERVED = {
    "backend.url": ("backend.kind", "ollama.model"),
    "backend.urls": ("backend.kind",),
    "model.path": (),
    "model.hf_repo": (),
    "ollama.model": ("backend.kind", "backend.url"),
}
_OF_SEVERAL = ("models", "aliases", "workflows")  # the last two refer to models of the first


def _without_rivals(layer: Layer, chosen: Layer) -> Layer:
    """Drop settings that select a different server or model than the flags."""
    named = [name for name in _SERVED if name in chosen]
    if not named:
        return layer
    kept = {*named, *(allowed for name in named for allowed in _SERVED[name])}
    rivals = {"backend.kind", *_SERVED} - kept
    has_several = any(sources.parts(name)[0] == "models" for name in layer)
    dropped_sections = _OF_SEVERAL if has_several else ()
    return {
        name: value
        for name, value in layer.items()
        if name not in rivals and sources.parts(name)[0] not in dropped_sections
    }


def _check(given: Layer, problems: list[InvalidConfiguration]) -> Settings:
    """Return the valid settings, and append an error for each invalid one.

    Valid settings are checked again without the invalid ones, so that one run reports all errors,
    also the contradictions between the others.
    """
    try:
        return Settings.model_validate(sources.nest(given, _NAMES))
    except ValidationError as error:
        wrong = {
            ".".join(map(str, details["loc"][: _depth(details)])): _word(details)
            for details in error.errors(include_input=False, include_context=False)
        }
    for name, message in wrong.items():
        plain = message.removeprefix("Value error, ").replace("Input should", "should")
        is_shown = not _may_hold_secret(name, given[name])
        quote = f", not {given[name].value!r}" if is_shown else ""
        problems.append(given[name].problem(name, plain + quote))
    return _check({name: given[name] for name in given if name not in wrong}, problems)


_NO_OPTION = "unknown option"
_WORDS = {
    "extra_forbidden": _NO_OPTION,
    "unexpected_keyword_argument": _NO_OPTION,
    "dataclass_type": "Input should be a valid dictionary",
}


def _word(details: ErrorDetails) -> str:
    message = _WORDS.get(details["type"], details["msg"])
    within = ".".join(map(str, details["loc"][_depth(details) :]))
    return f"{within}: {message}" if within else message


def _depth(details: ErrorDetails) -> int:
    """Return the number of parts of an error location that form the setting's name."""
    return 3 if details["loc"][0] in _NAMES.tables else 2


def _may_hold_secret(name: str, given: GivenValue) -> bool:
    # llama-server's arguments may contain --api-key, and a value with "@" may be a URL's password
    is_secret = _NAMES.generic(name) in _CONFIDENTIAL or name.endswith("extra_arguments")
    return is_secret or given.is_confidential or "@" in str(given.value)


def _contradictions(settings: Settings) -> Iterator[Contradiction]:
    """Find settings that are valid alone, but not together; errors name the first one."""
    yield from _rival_servers(settings)
    yield from served_models.contradictions(settings.models, settings.swapping)
    if settings.models:
        yield from _rivals_of_models(settings)
        rules, aliases = settings.workflows, settings.aliases
        yield from served_models.find_misnamed(settings.models, rules, aliases)
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


def _rival_servers(settings: Settings) -> Iterator[Contradiction]:
    yield from served_models.find_rivals(settings.backend, settings.model, "backend", "model")
    if settings.model.source is not None and settings.ollama.model is not None:
        named = "model.path" if settings.model.path is not None else "model.hf_repo"
        problem = (
            f"cannot be combined with {named}: Temper either uses Ollama or starts llama-server; "
            "remove one of the two"
        )
        yield ("ollama.model", named), problem


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
    starts = [settings.model, *settings.models.values()]
    if settings.backend.replicas > 1 and any(model.source is not None for model in starts):
        problem = "must be 1 if Temper starts the model server, because replicas do not share it"
        yield ("backend.replicas", "model"), problem


def _rivals_of_models(settings: Settings) -> Iterator[Contradiction]:
    for rival, is_given, how in (
        ("backend.url", bool(settings.backend.addresses), ""),
        ("model.path", settings.model.source is not None, ""),
        ("ollama.model", settings.ollama.model is not None, ", with kind = 'ollama' and its url"),
    ):
        if is_given:
            remedy = f"add a section [models.NAME] for it{how}"
            yield (rival, "models"), f"cannot be combined with [models.NAME]: {remedy}"
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
