"""Reads profiles from TOML files: from config/models, and from the operator's profile.folder.

The comments in the schema below document the fields. An example of a file:

    name = "qwen3"
    title = "Qwen3"
    sources = ["https://huggingface.co/Qwen/Qwen3-8B"]
    match = {names = ["*qwen3*", "*qwen-3-*"]}
    calls = {syntaxes = ["hermes"]}
"""

from collections.abc import Iterable
from functools import cache
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

from proxy.dialects.openai_chat.thinking import Effort
from proxy.errors import InvalidConfiguration
from proxy.files import list_shipped, read_toml
from proxy.guardrails.model_quirks import Quirks, Replay, SystemRole, Template
from proxy.guardrails.offer import TextPolicy
from proxy.guardrails.rescue.registry import SYNTAXES
from proxy.profiles.profile import GENERIC, Matching, Profile, Sampling, Text, Texts

_KNOWN_SYNTAXES = tuple(syntax.name for syntax in SYNTAXES)

Convention = Literal["hermes", "mistral", "gemma", "llama3", "react", "json"]
Describer = Literal["template", "hermes", "mistral", "gemma", "llama3", "react", "json"]


def _check_syntax(name: str) -> str:
    if name not in _KNOWN_SYNTAXES:
        raise ValueError(f"should be one of {', '.join(_KNOWN_SYNTAXES)}")
    return name


def _check_source(sampling: Sampling) -> Sampling:
    if sampling != Sampling() and not sampling.source:
        raise ValueError("values need a source: the address where they are published")
    return sampling


class _ProfileSection(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class _CallsSection(_ProfileSection):
    # the syntaxes in which the model writes calls; these are tried first, in this order
    syntaxes: tuple[Annotated[str, AfterValidator(_check_syntax)], ...] = ()
    parallel: bool = True  # whether the model can make several calls in one reply
    # "template": the chat template describes the tools; otherwise Temper does, in this convention
    tools: Describer = "template"
    fallback: Convention = "hermes"  # convention if the chat template does not describe tools
    aliases: dict[Text, Text] = {}  # a wrong tool name that the model writes -> the right name


class _Answers(_ProfileSection):
    text_policy: TextPolicy = TextPolicy.AUTO  # handling of replies without a call
    # whether TextPolicy.AUTO adds the answer tool if the prompt describes the tools
    respond: bool = True


class _ReasoningSection(_ProfileSection):
    # The earlier reasoning to send back: none, last (since the last user message), or full. A
    # profile that sets `replay` also states that the chat template renders earlier reasoning.
    replay: Replay = "full"
    opened: bool = False  # whether the chat template opens the reasoning block of a reply
    efforts: tuple[Effort, ...] = ()  # the accepted values, if the chat template rejects others
    effort_variable: str = ""  # the template's variable for effort, if not reasoning_effort
    # template variables that make the template render all earlier reasoning; sent if profile.replay
    # is full
    kept_by: dict[Text, bool] = {}


class _TemplateSection(_ProfileSection):
    developer: bool = True  # whether the template supports the role developer
    system: SystemRole = "anywhere"  # positions at which the template accepts system messages
    alternates: bool = False  # whether user and assistant messages must alternate
    prefill: bool = True  # whether the last message may be a message of the assistant
    control_tokens: Texts = ()  # strings that structure a prompt, such as <|im_start|>


class _Launch(_ProfileSection):
    flags: Texts = ()  # flags of llama-server for this family


class _StateSection(_ProfileSection):
    resets: bool = False  # whether the state cannot be rolled back (as in Mamba models)


class _File(_ProfileSection):
    # name of the family; must equal the name of the file without .toml
    name: Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9.-]*$")]
    title: Text  # the name of the family as its publisher writes it
    # URLs of the sources: model cards, chat templates, documentation
    sources: Annotated[
        tuple[Annotated[str, StringConstraints(pattern=r"^https://\S+$")], ...], Field(min_length=1)
    ]
    match: Matching
    calls: _CallsSection = _CallsSection()
    answers: _Answers = _Answers()
    reasoning: _ReasoningSection = _ReasoningSection()
    template: _TemplateSection = _TemplateSection()  # the limits of the chat template
    launch: _Launch = _Launch()
    sampling: Annotated[Sampling, AfterValidator(_check_source)] = Sampling()
    state: _StateSection = _StateSection()  # the state of the engine between requests

    @model_validator(mode="after")
    def _can_be_found(self) -> Self:
        if self.name == GENERIC.name:
            raise ValueError("the name 'generic' is reserved for the profile of unknown models")
        if self.match == Matching():
            raise ValueError("match needs names, architectures or templates")
        return self


def load_profiles(extra: Path | None = None) -> tuple[Profile, ...]:
    """Read every profile, ordered by name.

    A profile in the folder `extra` replaces a shipped profile of the same name. Raises
    `InvalidConfiguration`, which names the file and the invalid field.
    """
    profiles = {profile.name: profile for profile in _load_shipped()}
    if extra is not None:
        if not extra.is_dir():
            raise InvalidConfiguration(
                str(extra), "is not a folder; create it or remove the setting"
            )
        profiles |= {profile.name: profile for profile in _read_all(extra.iterdir())}
    return tuple(profiles[name] for name in sorted(profiles))


@cache
def _load_shipped() -> tuple[Profile, ...]:
    return _read_all(list_shipped("models"))


def _read_all(files: Iterable[Traversable]) -> tuple[Profile, ...]:
    return tuple(_read(file) for file in files if file.name.endswith(".toml"))


def _read(file: Traversable) -> Profile:
    try:
        read = _File.model_validate(read_toml(file))
    except ValidationError as error:
        raise InvalidConfiguration(str(file), _describe(error)) from error
    if file.name != f"{read.name}.toml":
        raise InvalidConfiguration(
            str(file),
            f"name: {read.name!r} is not the name of the file; rename one of them",
        )
    return _profile(read)


def _describe(error: ValidationError) -> str:
    problems = []
    for defect in error.errors(include_context=False, include_url=False):
        field = ".".join(str(part) for part in defect["loc"]) or "the file"
        message = defect["msg"].removeprefix("Value error, ").replace("Input should", "should")
        if defect["type"] in {"extra_forbidden", "unexpected_keyword_argument"}:
            message = "unknown key; correct its spelling or remove it"
        elif defect["type"] == "missing":
            message = "is missing; add it"
        problems.append(f"{field}: {message}")
    return "; ".join(problems)


def _renders_reasoning(read: _ReasoningSection) -> bool | None:
    """Return whether the chat template renders earlier reasoning; None without `replay`."""
    return read.replay != "none" if "replay" in read.model_fields_set else None


def _profile(read: _File) -> Profile:
    convention = read.calls.tools
    template = read.template
    quirks = Quirks(
        syntaxes=read.calls.syntaxes,
        text_policy=read.answers.text_policy,
        convention="" if convention == "template" else convention,
        replay=read.reasoning.replay,
        template=Template(
            template.developer,
            template.system,
            template.alternates,
            template.control_tokens,
            template.prefill,
        ),
        calls_in_parallel=read.calls.parallel,
        resets_state=read.state.resets,
        aliases=read.calls.aliases,
        offers_respond=read.answers.respond,
        opens_thoughts=read.reasoning.opened,
        efforts=read.reasoning.efforts,
        effort_variable=read.reasoning.effort_variable,
        kept_by=read.reasoning.kept_by,
        renders_reasoning=_renders_reasoning(read.reasoning),
    )
    return Profile(
        name=read.name,
        title=read.title,
        quirks=quirks,
        matching=read.match,
        fallback_convention=read.calls.fallback,
        launch_flags=read.launch.flags,
        sampling=read.sampling,
        sources=read.sources,
    )
