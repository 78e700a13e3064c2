"""What an operator may decide: flags > environment (`TEMPER_*`) > file (TOML) > defaults.

Only `cli` and `api.app` read settings; everything below them receives values. Nothing here knows
what a setting is used for, and no message or representation ever shows a secret.
"""

import ipaddress
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    StringConstraints,
    ValidationError,
)
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from proxy import sources
from proxy.dialects.openai_chat.schema import WorkflowRules
from proxy.errors import InvalidConfiguration
from proxy.sources import Given, Layer, Names

DEFAULT_FILE = Path("temper.toml")


def _not_a_truth_value(value: object) -> object:
    """Refuse true and false where a number is due; pydantic would read them as 1 and 0."""
    if isinstance(value, bool):
        raise ValueError("should be a number")
    return value


def _none_if_empty(value: object) -> object:
    return None if value == "" else value


def _usable_url(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValueError("should be an address like http://127.0.0.1:8080")
    if parts.username is not None or parts.password is not None:
        raise ValueError("must not contain credentials: use backend.api_key")
    if parts.query or parts.fragment:
        raise ValueError("must not have a query or a fragment")
    _ = parts.port  # raises ValueError when it is out of range
    return url.rstrip("/")


def _usable_key(key: SecretStr) -> SecretStr:
    if not re.fullmatch(r"[!-~]+", key.get_secret_value()):
        raise ValueError("may contain only visible ASCII characters, as it travels in a header")
    return key


Count = Annotated[int, BeforeValidator(_not_a_truth_value)]
Seconds = Annotated[float, BeforeValidator(_not_a_truth_value), Field(gt=0, allow_inf_nan=False)]
Key = Annotated[
    Annotated[SecretStr, AfterValidator(_usable_key)] | None, BeforeValidator(_none_if_empty)
]
Url = Annotated[Annotated[str, AfterValidator(_usable_url)] | None, BeforeValidator(_none_if_empty)]
File = Annotated[
    Annotated[Path, AfterValidator(Path.expanduser)] | None, BeforeValidator(_none_if_empty)
]
Name = Annotated[
    Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/-]*$", max_length=128)]
    | None,
    BeforeValidator(_none_if_empty),
]


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class Server(_Section):
    """Where Temper listens and how it treats its clients."""

    host: str = Field(
        default="127.0.0.1",
        min_length=1,
        description="address to listen on; beyond loopback an api_key is required",
    )
    port: Count = Field(
        default=8367, ge=0, le=65535, description="TCP port to listen on; 0 takes a free one"
    )
    api_key: Key = Field(default=None, description="key that clients must send as a bearer token")
    max_body_bytes: Count = Field(
        default=33_554_432, ge=1024, description="largest accepted request body, in bytes"
    )
    workers: Count = Field(
        default=1, ge=1, le=64, description="processes that serve; one is enough for most machines"
    )
    max_waiting: Count = Field(
        default=256, ge=1, description="requests that may wait for a slot; more get a 429"
    )
    grace_seconds: Annotated[float, BeforeValidator(_not_a_truth_value)] = Field(
        default=10,
        ge=0,
        allow_inf_nan=False,
        description="how long running requests may take to finish at shutdown, in seconds",
    )
    keep_alive_seconds: Seconds = Field(
        default=10,
        description="silence before a streaming client gets a keep-alive chunk, in seconds",
    )


class Backend(_Section):
    """The running server that Temper talks to, and how long it waits for it."""

    url: Url = Field(
        default=None,
        description="address of an OpenAI-compatible server, e.g. http://127.0.0.1:8080",
    )
    kind: Literal["llama-server", "openai"] = Field(
        default="llama-server",
        description="what it is: llama-server, or openai for any other compatible server",
    )
    api_key: Key = Field(default=None, description="key that Temper sends to the backend")
    parallel_requests: Count = Field(
        default=0, ge=0, description="requests put to it at once; 0 means one for each of its slots"
    )
    connect_seconds: Seconds = Field(
        default=5, description="limit for opening a connection, in seconds"
    )
    first_byte_seconds: Seconds = Field(
        default=600, description="limit for the first sign of a reply, in seconds"
    )
    idle_seconds: Seconds = Field(
        default=120, description="longest silence inside a reply, in seconds"
    )
    load_wait_seconds: Annotated[float, BeforeValidator(_not_a_truth_value)] = Field(
        default=60,
        ge=0,
        allow_inf_nan=False,
        description="how long requests wait for a model that is being loaded, in seconds",
    )
    deadline_seconds: Seconds = Field(
        default=1800, description="limit for all attempts of one request together, in seconds"
    )


class Model(_Section):
    """The model that Temper starts a server for."""

    path: File = Field(default=None, description="GGUF file to start a llama-server with")
    context_tokens: Count = Field(
        default=8192, ge=256, description="context window of one slot, in tokens"
    )
    slots: Count = Field(
        default=2, ge=1, le=256, description="requests that the model works on at once"
    )
    load_seconds: Seconds = Field(
        default=600, description="limit for loading the model, in seconds"
    )
    alias: Name = Field(default=None, description="name under which clients see the model")


class Guardrails(_Section):
    """How replies are judged, and what happens to those that fail."""

    mode: Literal["on", "observe", "off"] = Field(
        default="on",
        description="on, off, or observe: change nothing and report what would have been done",
    )
    text_policy: Literal["auto", "respond", "accept", "require"] = Field(
        default="auto",
        description="what prose is worth while tools are offered: respond, accept, require, auto",
    )
    strict: bool = Field(
        default=False,
        description="answer 502 instead of the most faithful reply when no attempt was good",
    )
    max_attempts: Count = Field(
        default=3, ge=1, le=3, description="generations that one request may cost, 1 to 3"
    )
    max_repeats: Count = Field(
        default=3,
        ge=2,
        le=100,
        description="times a call may be repeated with the same result before it is withheld",
    )
    max_tool_rounds: Count = Field(
        default=50,
        ge=1,
        description="rounds of tool calls after which the model is asked for an answer",
    )


class Profile(_Section):
    """What is known about the model; `temper models` shows what was recognised, and why."""

    name: Name = Field(
        default=None, description="profile to use instead of the one that is recognised"
    )
    folder: File = Field(
        default=None, description="folder with profiles of your own (*.toml), used before ours"
    )
    tools_in_prompt: Literal["auto", "never", "hermes", "mistral", "gemma", "llama3", "json"] = (
        Field(
            default="auto",
            description="how tools are described where the chat template cannot: hermes, mistral, "
            "gemma, llama3 or json; or never, or auto",
        )
    )
    replay: Literal["auto", "none", "last", "full"] = Field(
        default="auto",
        description="which earlier thoughts the model sees again: none, last (since the user "
        "spoke), full, or auto",
    )


class Logging(_Section):
    """What is written to standard error, one line per request."""

    format: Literal["text", "json"] = Field(
        default="text", description="form of a log line: text or json"
    )
    level: Literal["debug", "info", "warning", "error"] = Field(
        default="info",
        description="least severe line that is written: debug, info, warning or error",
    )


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
    model: Model = Model()
    guardrails: Guardrails = Guardrails()
    profile: Profile = Profile()
    logging: Logging = Logging()
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
_NAMES = Names(
    sections=tuple(Settings.model_fields),
    settings=tuple(_FIELDS),
    secrets=tuple(name for name, field in _FIELDS.items() if "SecretStr" in str(field.annotation)),
    open=("workflows",),
)


def load_settings(
    file: Path | None = None, flags: Mapping[str, Mapping[str, object]] | None = None
) -> Settings:
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
    settings = _checked(given, problems)
    wrong = {problem.setting for problem in problems}
    problems += (
        InvalidConfiguration(names[0], problem)
        for names, problem in _contradictions(settings)
        if wrong.isdisjoint(names)
    )
    if problems:
        raise _all_in_one(problems)
    return settings


def _checked(given: Layer, problems: list[InvalidConfiguration]) -> Settings:
    """Return what is sound of the settings; what is not becomes a problem."""
    try:
        return Settings.model_validate(sources.nested(given))
    except ValidationError as error:
        wrong = {
            ".".join(str(part) for part in found["loc"][:2]): _worded(found)
            for found in error.errors(include_input=False, include_context=False)
        }
    for name, message in wrong.items():
        plain = message.removeprefix("Value error, ").replace("Input should", "should")
        problems.append(given[name].problem(name, plain + _shown(name, given[name])))
    return _checked({name: given[name] for name in given if name not in wrong}, problems)


def _worded(found: ErrorDetails) -> str:
    """Say what is wrong with a value, and where within it."""
    message = found["msg"].replace("Extra inputs are not permitted", "there is no such option")
    within = ".".join(str(part) for part in found["loc"][2:])
    return f"{within}: {message}" if within else message


def _shown(name: str, given: Given) -> str:
    may_hold_a_secret = name in _NAMES.secrets or given.is_confidential or "@" in str(given.value)
    return "" if may_hold_a_secret else f", not {given.value!r}"


def _contradictions(settings: Settings) -> Iterator[tuple[tuple[str, ...], str]]:
    """Find settings that are fine alone and wrong together; the first name gets the blame."""
    if settings.backend.url is not None and settings.model.path is not None:
        yield (
            ("backend.url", "model.path"),
            "cannot be combined with model.path: Temper either uses a running server or starts "
            "one for a model; remove one of the two",
        )
    if settings.server.api_key is None and not is_loopback(settings.server.host):
        yield (
            ("server.host", "server.api_key"),
            f"{settings.server.host} can be reached from other machines, so a key is required: "
            f"set server.api_key ({sources.variable('server.api_key')}) or listen on 127.0.0.1",
        )


def is_loopback(host: str) -> bool:
    """Tell whether only this machine can reach an address; a name other than localhost may not."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _all_in_one(problems: list[InvalidConfiguration]) -> InvalidConfiguration:
    if len(problems) == 1:
        return problems[0]
    lines = "".join(f"\n  {problem}" for problem in problems)
    return InvalidConfiguration("configuration", f"{len(problems)} problems{lines}")
