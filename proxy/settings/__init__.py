"""What an operator may decide: flags > environment (`TEMPER_*`) > file (TOML) > defaults.

Only `cli`, `api` and `serving` read settings; everything below them receives values. Nothing here
knows what a setting is used for, and no message or representation ever shows a secret.

`Settings` stands here. Its parts are in `sections`, of several models in `models`, of tool servers
in `tool_servers`, of what replicas share in `shared_state`, made of kinds of `values`;
`sources` says where each value comes from.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, Field, ValidationError
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from proxy.conversation import workflows
from proxy.dialects.temper_options import WorkflowRules, workflow_of
from proxy.errors import InvalidConfiguration
from proxy.settings import models as served_models
from proxy.settings import sources
from proxy.settings.models import Contradiction, ServedModel, Swapping
from proxy.settings.sections import (
    Backend,
    Context,
    Guardrails,
    Logging,
    Metrics,
    Model,
    Ollama,
    Profile,
    Recording,
    Responses,
    Server,
    Tracing,
    Ui,
)
from proxy.settings.shared_state import State, state_contradictions
from proxy.settings.sources import Given, Layer, Names
from proxy.settings.tool_servers import (
    Tools,
    ToolServer,
    tool_server_contradictions,
    unanswerable_questions,
)
from proxy.settings.values import RequiredName
from proxy.settings.values import is_loopback as is_loopback

DEFAULT_FILE = Path("temper.toml")
TABLES = ("models", "mcp")  # sections of sections, whose names the operator chooses


class Settings(BaseSettings):
    """Every setting, checked; `Settings()` are the defaults."""

    model_config = SettingsConfigDict(
        frozen=True,
        extra="forbid",
        hide_input_in_errors=True,
        env_prefix=sources.PREFIX,
        env_nested_delimiter="__",
        env_ignore_empty=True,
    )

    server: Server = Server()
    backend: Backend = Backend()
    ollama: Ollama = Ollama()
    model: Model = Model()
    swapping: Swapping = Swapping()
    guardrails: Guardrails = Guardrails()
    responses: Responses = Responses()
    state: State = State()
    context: Context = Context()
    profile: Profile = Profile()
    logging: Logging = Logging()
    metrics: Metrics = Metrics()
    ui: Ui = Ui()
    tracing: Tracing = Tracing()
    recording: Recording = Recording()
    tools: Tools = Tools()
    mcp: dict[str, ToolServer] = Field(
        default={}, description="MCP servers whose tools Temper runs, by name"
    )
    models: dict[str, ServedModel] = Field(
        default={}, description="several models, each in a section of its own, by name"
    )
    aliases: dict[str, RequiredName] = Field(
        default={}, description="the model that is meant by a name or a pattern such as claude-*"
    )
    workflows: dict[str, WorkflowRules] = Field(
        default={}, description="rules of order for the tools of a model, by the model's name"
    )

    @classmethod
    def settings_customise_sources(  # noqa: PLR0917 - the signature is pydantic's
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Take only what is passed in: `load_settings` reads the rest and remembers its origin."""
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
    secrets=tuple(name for name in _CONFIDENTIAL if name.endswith(("_key", ".secret"))),
    open=("workflows", "aliases"),
    tables=TABLES,
)


@dataclass(frozen=True, slots=True)
class LoadedSettings:
    """Settings, the file that was read for them, and the origin of each that was given.

    Values that are `hidden` are no secrets by themselves, but may hold one.
    """

    settings: Settings
    file: Path | None
    origins: Mapping[str, str]
    hidden: frozenset[str]


DEFAULT_SETTINGS = LoadedSettings(Settings(), None, {}, frozenset())


def load_settings(
    file: Path | None = None, flags: Mapping[str, Mapping[str, object]] | None = None
) -> Settings:
    """Read and check every setting; see `load_with_origins`."""
    return load_with_origins(file, flags).settings


def load_with_origins(
    file: Path | None = None, flags: Mapping[str, Mapping[str, object]] | None = None
) -> LoadedSettings:
    """Read and check every setting.

    `file` defaults to `temper.toml` in the working directory, if there is one. `flags` holds
    sections of values; a flag that is None was not given. Raises one `InvalidConfiguration` that
    names everything that is wrong, with its origin.
    """
    problems: list[InvalidConfiguration] = []
    path = file or (DEFAULT_FILE if DEFAULT_FILE.is_file() else None)
    given: Layer = {}
    for layer in (
        sources.file_layer(path, _NAMES) if path else {},
        sources.environment_layer(Settings, _NAMES),
        sources.flag_layer(flags or {}, _NAMES),
    ):
        given |= sources.usable(layer, _NAMES, problems)
    settings = _check(given, problems)
    wrong = {problem.setting for problem in problems}
    problems += (
        InvalidConfiguration(names[0], problem)
        for names, problem in _contradictions(settings)
        if wrong.isdisjoint(names)
    )
    if problems:
        raise all_in_one(problems)
    origins = {name: one.origin for name, one in given.items()}
    hidden = frozenset(name for name, one in given.items() if _may_hold_secret(name, one))
    return LoadedSettings(settings, path, origins, hidden)


def _check(given: Layer, problems: list[InvalidConfiguration]) -> Settings:
    """Return what is sound of the settings; what is not becomes a problem."""
    try:
        return Settings.model_validate(sources.nest(given, _NAMES))
    except ValidationError as error:
        wrong = {
            ".".join(map(str, found["loc"][: _depth(found)])): _word(found)
            for found in error.errors(include_input=False, include_context=False)
        }
    for name, message in wrong.items():
        plain = message.removeprefix("Value error, ").replace("Input should", "should")
        problems.append(given[name].problem(name, plain + _quote(name, given[name])))
    return _check({name: given[name] for name in given if name not in wrong}, problems)


def _word(found: ErrorDetails) -> str:
    """Say what is wrong with a value, and where within it."""
    message = found["msg"].replace("Extra inputs are not permitted", "there is no such option")
    within = ".".join(map(str, found["loc"][_depth(found) :]))
    return f"{within}: {message}" if within else message


def _depth(found: ErrorDetails) -> int:
    """Tell how many parts of an error's place are the name of a setting."""
    return 3 if found["loc"][0] in _NAMES.tables else 2


def _quote(name: str, given: Given) -> str:
    return "" if _may_hold_secret(name, given) else f", not {given.value!r}"


def _may_hold_secret(name: str, given: Given) -> bool:
    is_secret = _NAMES.generic(name) in _CONFIDENTIAL or name.endswith("extra_arguments")
    return is_secret or given.is_confidential or "@" in str(given.value)


def _contradictions(settings: Settings) -> Iterator[Contradiction]:
    """Find settings that are fine alone and wrong together; the first name gets the blame."""
    if settings.backend.url is not None and settings.backend.urls:
        yield (
            ("backend.urls", "backend.url"),
            "cannot be combined with backend.url: name all servers here, or only one there",
        )
    if settings.model.source is not None:
        yield from _two_servers(settings)
    if settings.model.path is not None and settings.model.hf_repo is not None:
        yield (
            ("model.hf_repo", "model.path"),
            "cannot be combined with model.path: name a file or a repository to download",
        )
    yield from served_models.contradictions(settings.models, settings.swapping)
    yield from _rivals_of_models(settings)
    yield from served_models.find_misnamed_aliases(settings.models, settings.aliases)
    yield from _rules_nobody_can_keep(settings)
    yield from tool_server_contradictions(
        settings.tools,
        settings.mcp,
        settings.server.workers,
        has_key_file=settings.server.api_keys_file is not None,
    )
    yield from unanswerable_questions(settings.mcp, settings.server, settings.ui)
    yield from _windows_that_cannot_be(settings)
    if settings.responses.path is not None and settings.responses.store == "off":
        yield (
            ("responses.path", "responses.store"),
            "cannot be combined with responses.store = 'off': remove one of the two",
        )
    yield from state_contradictions(settings.state)
    yield from _check_replicas(settings)
    has_key = settings.server.api_key is not None or settings.server.api_keys_file is not None
    if not has_key and not is_loopback(settings.server.host):
        yield (
            ("server.host", "server.api_key"),
            f"{settings.server.host} can be reached from other machines, so a key is required: "
            f"set server.api_key ({sources.variable('server.api_key')}) or listen on 127.0.0.1",
        )


def _check_replicas(settings: Settings) -> Iterator[Contradiction]:
    starts = [settings.model, *settings.models.values()]
    if settings.backend.replicas > 1 and any(model.source is not None for model in starts):
        problem = "must be 1 where Temper starts the server itself: nobody shares that one"
        yield ("backend.replicas", "model"), problem


def _windows_that_cannot_be(settings: Settings) -> Iterator[Contradiction]:
    if settings.context.low >= settings.context.high:
        yield (
            ("context.low", "context.high"),
            f"must be below context.high, which is {settings.context.high:g}",
        )
    if settings.context.budget == "manual" and not settings.context.window_tokens:
        yield (
            ("context.budget", "context.window_tokens"),
            "'manual' needs a number of tokens: set context.window_tokens",
        )


def _two_servers(settings: Settings) -> Iterator[tuple[tuple[str, ...], str]]:
    """Find what names another server beside the one that is started for a model."""
    named = "model.path" if settings.model.path is not None else "model.hf_repo"
    rule = f"cannot be combined with {named}: Temper either uses"
    if settings.backend.addresses:
        problem = f"{rule} a running server or starts one for a model; remove one of the two"
        yield ("backend.url", named), problem
    if settings.ollama.model is not None:
        problem = f"{rule} an Ollama or starts a server for a model; remove one of the two"
        yield ("ollama.model", named), problem


def _rivals_of_models(settings: Settings) -> Iterator[Contradiction]:
    if not settings.models:
        return
    for rival, is_given, how in (
        ("backend.url", bool(settings.backend.addresses), ""),
        ("model.path", settings.model.source is not None, ""),
        ("ollama.model", settings.ollama.model is not None, ", with kind = 'ollama' and its url"),
    ):
        if is_given:
            remedy = f"give it a section of its own there{how}"
            yield (rival, "models"), f"cannot be combined with [models.NAME]: {remedy}"
    if settings.server.workers > 1:
        problem = "must be 1 with [models.NAME]: workers cannot agree on what to load"
        yield ("server.workers", "models"), problem


def _rules_nobody_can_keep(settings: Settings) -> Iterator[Contradiction]:
    for name, rules in settings.workflows.items():
        for place, problem in workflows.contradictions(workflow_of(rules)):
            yield (f"workflows.{name}",), f"{place}: {problem}"
    if settings.models:
        yield from served_models.find_misnamed_rules(settings.models, settings.workflows)
    elif settings.model.source is not None or settings.ollama.model is not None:
        first, *others = settings.workflows or ("",)
        for name in others:
            problem = f"all names lead to the same model, and workflows.{first} has its rules"
            yield (f"workflows.{name}", f"workflows.{first}"), problem


def all_in_one(problems: list[InvalidConfiguration]) -> InvalidConfiguration:
    if len(problems) == 1:
        return problems[0]
    lines = "".join(f"\n  {problem}" for problem in problems)
    told = f"{len(problems)} problems{lines}"
    return InvalidConfiguration("configuration", told, tuple(problems))
