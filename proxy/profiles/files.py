"""Profiles from TOML files: ours, and those of an operator, who may replace ours.

The schema below is the only documentation of a field; what a profile is used for is not known here.
"""

import tomllib
from collections.abc import Iterable
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    model_validator,
)

from proxy.errors import InvalidConfiguration
from proxy.guardrails.model_quirks import Quirks, Replay, SystemRole, Template
from proxy.guardrails.offer import TextPolicy
from proxy.guardrails.rescue.registry import SYNTAXES
from proxy.profiles.profile import GENERIC, Matching, Profile, Sampling
from proxy.profiles.recognition import literal_length

_SHORTEST_LITERAL = 2
_KNOWN_SYNTAXES = tuple(syntax.name for syntax in SYNTAXES)

Convention = Literal["hermes", "mistral", "gemma", "llama3", "react", "json"]
Describer = Literal["template", "hermes", "mistral", "gemma", "llama3", "react", "json"]


def _check_syntax(name: str) -> str:
    if name not in _KNOWN_SYNTAXES:
        raise ValueError(f"should be one of {', '.join(_KNOWN_SYNTAXES)}")
    return name


def _check_pattern(pattern: str) -> str:
    if literal_length(pattern) < _SHORTEST_LITERAL:
        raise ValueError("should hold at least two characters that are no wildcards")
    return pattern


Text = Annotated[str, StringConstraints(min_length=1)]
Url = Annotated[str, StringConstraints(pattern=r"^https://\S+$")]
Texts = tuple[Text, ...]
Temperature = Annotated[float, Field(ge=0, le=2)]
Share = Annotated[float, Field(ge=0, le=1)]
Penalty = Annotated[float, Field(ge=-2, le=2)]


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class _Match(_Section):
    names: tuple[Annotated[Text, AfterValidator(_check_pattern)], ...] = Field(
        default=(),
        description='globs for names of models; case is ignored, and " ", "_" and "-" are the same',
    )
    architectures: Texts = Field(default=(), description="values of GGUF's general.architecture")
    templates: Texts = Field(
        default=(), description="strings that all stand in the family's chat templates"
    )


class _Calls(_Section):
    syntaxes: tuple[Annotated[str, AfterValidator(_check_syntax)], ...] = Field(
        default=(), description="rescue syntaxes to try first, in this order"
    )
    parallel: bool = Field(
        default=True, description="whether the model can make several calls in one reply"
    )
    tools: Describer = Field(
        default="template",
        description="what describes the tools: the chat template, or a convention of ours",
    )
    fallback: Convention = Field(
        default="hermes",
        description="convention for chat templates that turn out not to describe tools",
    )
    aliases: dict[Text, Text] = Field(
        default={}, description="names that the model writes, and the tools it may mean"
    )


class _Answers(_Section):
    text_policy: TextPolicy = Field(
        default=TextPolicy.AUTO, description="what prose is worth while tools are offered"
    )
    respond: bool = Field(
        default=True, description="whether text_policy auto offers the tool for answers"
    )


class _Reasoning(_Section):
    replay: Replay = Field(
        default=Replay.FULL,
        description="which earlier thoughts the model wants back; last: since the user spoke",
    )


class _Template(_Section):
    developer: bool = Field(default=True, description="whether it knows the role developer")
    system: SystemRole = Field(
        default=SystemRole.ANYWHERE, description="where system messages have an effect"
    )
    alternates: bool = Field(
        default=False, description="whether it demands user and assistant in turns"
    )
    control_tokens: Texts = Field(default=(), description="strings that structure its prompts")


class _Launch(_Section):
    flags: Texts = Field(default=(), description="what llama-server needs for this family")


class _Sampling(_Section):
    temperature: Temperature | None = Field(default=None, description="as published")
    top_p: Share | None = Field(default=None, description="as published")
    top_k: Annotated[int, Field(ge=0)] | None = Field(default=None, description="as published")
    min_p: Share | None = Field(default=None, description="as published")
    repeat_penalty: Annotated[float, Field(gt=0, le=2)] | None = Field(
        default=None, description="as published, where it is often named repetition_penalty"
    )
    presence_penalty: Penalty | None = Field(default=None, description="as published")
    source: Url | None = Field(default=None, description="where the values are published")

    @model_validator(mode="after")
    def _has_a_source(self) -> Self:
        if self.model_fields_set and self.source is None:
            raise ValueError("values need a source: the address where they are published")
        return self


class _State(_Section):
    resets: bool = Field(
        default=False, description="whether its state cannot be rolled back (Mamba and the like)"
    )


class _File(_Section):
    name: Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9.-]*$")] = Field(
        description="name of the family; that of the file without .toml"
    )
    title: Text = Field(description="the family as people write it")
    sources: Annotated[tuple[Url, ...], Field(min_length=1)] = Field(
        description="addresses of the facts: model cards, chat templates, documentation"
    )
    match: _Match = Field(description="how the family is recognised")
    calls: _Calls = Field(default=_Calls(), description="how it calls tools")
    answers: _Answers = Field(default=_Answers(), description="how it answers")
    reasoning: _Reasoning = Field(default=_Reasoning(), description="how it thinks")
    template: _Template = Field(default=_Template(), description="what its chat template takes")
    launch: _Launch = Field(default=_Launch(), description="how to start a server for it")
    sampling: _Sampling = Field(default=_Sampling(), description="the sampling it was made for")
    state: _State = Field(default=_State(), description="what it keeps between requests")

    @model_validator(mode="after")
    def _can_be_found(self) -> Self:
        if self.name == GENERIC.name:
            raise ValueError("the name generic is taken by the profile for unknown models")
        if not (self.match.names or self.match.architectures or self.match.templates):
            raise ValueError("match needs names, architectures or templates")
        return self


def load_profiles(extra: Path | None = None) -> tuple[Profile, ...]:
    """Read every profile, ordered by name; one in the folder `extra` replaces ours of its name.

    Raises `InvalidConfiguration` naming file and field if one cannot be used.
    """
    profiles = {profile.name: profile for profile in _load_shipped()}
    if extra is not None:
        if not extra.is_dir():
            raise InvalidConfiguration(str(extra), "is not a folder; create it or leave it out")
        profiles |= {profile.name: profile for profile in _read_all(extra.iterdir())}
    return tuple(profiles[name] for name in sorted(profiles))


@cache
def _load_shipped() -> tuple[Profile, ...]:
    return _read_all(_find_shipped_folder(resources.files("proxy")).iterdir())


def _find_shipped_folder(package: Traversable) -> Traversable:
    """Return `models` within an installed package; in a checkout they lie beside it."""
    installed = package / "models"
    return installed if installed.is_dir() else package / ".." / "config" / "models"


def _read_all(files: Iterable[Traversable]) -> tuple[Profile, ...]:
    return tuple(_read(file) for file in files if file.name.endswith(".toml"))


def _read(file: Traversable) -> Profile:
    try:
        document = tomllib.loads(file.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise InvalidConfiguration(str(file), f"cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise InvalidConfiguration(str(file), f"is not valid TOML: {error}") from error
    try:
        read = _File.model_validate(document)
    except ValidationError as error:
        raise InvalidConfiguration(str(file), _describe(error)) from error
    if file.name != f"{read.name}.toml":
        raise InvalidConfiguration(
            str(file), f"name: should be that of the file, not {read.name!r}; rename one of the two"
        )
    return _profile(read)


def _describe(error: ValidationError) -> str:
    problems = []
    for found in error.errors(include_context=False, include_url=False):
        field = ".".join(str(part) for part in found["loc"]) or "the file"
        message = found["msg"].removeprefix("Value error, ").replace("Input should", "should")
        if found["type"] == "extra_forbidden":
            message = "there is no such key; correct its spelling or remove it"
        elif found["type"] == "missing":
            message = "is missing; add it"
        problems.append(f"{field}: {message}")
    return "; ".join(problems)


def _profile(read: _File) -> Profile:
    values = read.sampling.model_dump(exclude={"source"})
    return Profile(
        name=read.name,
        title=read.title,
        quirks=_quirks(read),
        matching=Matching(read.match.names, read.match.architectures, read.match.templates),
        fallback_convention=read.calls.fallback,
        launch_flags=read.launch.flags,
        sampling=Sampling(**values, source=read.sampling.source or ""),
        sources=read.sources,
    )


def _quirks(read: _File) -> Quirks:
    convention = read.calls.tools
    template = read.template
    return Quirks(
        syntaxes=read.calls.syntaxes,
        text_policy=read.answers.text_policy,
        convention="" if convention == "template" else convention,
        replay=read.reasoning.replay,
        template=Template(
            template.developer, template.system, template.alternates, template.control_tokens
        ),
        calls_in_parallel=read.calls.parallel,
        resets_state=read.state.resets,
        aliases=read.calls.aliases,
        offers_respond=read.answers.respond,
    )
