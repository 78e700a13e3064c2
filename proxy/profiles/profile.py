"""The profile of a model family: patterns, quirks, launch flags and sampling values."""

import re
from dataclasses import dataclass
from typing import Annotated

from pydantic import AfterValidator, ConfigDict, Field, StringConstraints

from proxy.guardrails.model_quirks import GENERIC as GENERIC_QUIRKS
from proxy.guardrails.model_quirks import Quirks

_SHORTEST_LITERAL = 2  # characters; a shorter pattern such as `*a*` would match most names


def literal_length(pattern: str) -> int:
    return len(re.sub(r"\[[^\]]*\]|[*?]", "", pattern))


def _check_pattern(pattern: str) -> str:
    if literal_length(pattern) < _SHORTEST_LITERAL:
        raise ValueError("must contain at least two characters that are not wildcards")
    return pattern


Text = Annotated[str, StringConstraints(min_length=1)]
Texts = tuple[Text, ...]
_Share = Annotated[float, Field(ge=0, le=1)]


@dataclass(frozen=True, slots=True)
class Matching:
    """The patterns by which a family is recognized.

    `names` are case-insensitive globs in which a space, "_" and "-" are equal. `architectures` are
    values of GGUF's `general.architecture`. `templates` are texts that must all occur in the chat
    template.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")

    names: tuple[Annotated[Text, AfterValidator(_check_pattern)], ...] = ()
    architectures: Texts = ()
    templates: Texts = ()


@dataclass(frozen=True, slots=True)
class Sampling:
    """The sampling values that the model's publisher recommends; None for no recommendation.

    `repeat_penalty` is often called repetition_penalty. `source` is the URL of the recommendation.
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

    If the chat template does not describe tools, Temper describes them in `fallback_convention`.
    `launch_flags` are flags of llama-server. `sources` are the URLs of the pages with these values.
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
