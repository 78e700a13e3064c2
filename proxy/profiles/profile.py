"""One model family, as data: how it is recognised, judged, started and sampled."""

import re
from dataclasses import dataclass
from typing import Annotated

from pydantic import AfterValidator, ConfigDict, Field, StringConstraints

from proxy.guardrails.model_quirks import GENERIC as GENERIC_QUIRKS
from proxy.guardrails.model_quirks import Quirks

_SHORTEST_LITERAL = 2


def literal_length(pattern: str) -> int:
    return len(re.sub(r"\[[^\]]*\]|[*?]", "", pattern))


def _check_pattern(pattern: str) -> str:
    if literal_length(pattern) < _SHORTEST_LITERAL:
        raise ValueError("should hold at least two characters that are no wildcards")
    return pattern


Text = Annotated[str, StringConstraints(min_length=1)]
Texts = tuple[Text, ...]
_Share = Annotated[float, Field(ge=0, le=1)]


@dataclass(frozen=True, slots=True)
class Matching:
    """By what a family is recognised, as files have it.

    `names` are globs without regard to case, in which a space, "_" and "-" are the same;
    `architectures` are values of GGUF's `general.architecture`; all of `templates` must stand in
    the chat template.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")

    names: tuple[Annotated[Text, AfterValidator(_check_pattern)], ...] = ()
    architectures: Texts = ()
    templates: Texts = ()


@dataclass(frozen=True, slots=True)
class Sampling:
    """The values that the model's makers publish, None where they are silent, and where.

    `repeat_penalty` is often named repetition_penalty.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")

    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: _Share | None = None
    top_k: Annotated[int, Field(ge=0)] | None = None
    min_p: _Share | None = None
    repeat_penalty: Annotated[float, Field(gt=0, le=2)] | None = None
    presence_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    source: Annotated[str, StringConstraints(pattern=r"^(https://\S+)?$")] = ""


@dataclass(frozen=True, slots=True)
class Profile:
    """A model family.

    `fallback_convention` describes tools in the prompt where the chat template at hand turns out
    not to do it. `launch_flags` are for llama-server; `sources` are the addresses of the facts.
    """

    name: str
    title: str
    quirks: Quirks
    matching: Matching = Matching()
    fallback_convention: str = "hermes"
    launch_flags: tuple[str, ...] = ()
    sampling: Sampling = Sampling()
    sources: tuple[str, ...] = ()


GENERIC = Profile("generic", "Any model", GENERIC_QUIRKS)
