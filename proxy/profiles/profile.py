"""A model family as data: its marks, quirks, launch flags and sampling values."""

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
        raise ValueError("must contain at least two characters that are not wildcards")
    return pattern


Text = Annotated[str, StringConstraints(min_length=1)]
Texts = tuple[Text, ...]
_Share = Annotated[float, Field(ge=0, le=1)]


@dataclass(frozen=True, slots=True)
class Matching:
    """The marks by which a family is recognized.

    `names` are case-insensitive globs in which a space, "_" and "-" are equal; `architectures` are
    values of GGUF's `general.architecture`; `templates` are texts that must all occur in the chat
    template.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")

    names: tuple[Annotated[Text, AfterValidator(_check_pattern)], ...] = ()
    architectures: Texts = ()
    templates: Texts = ()


@dataclass(frozen=True, slots=True)
class Sampling:
    """The sampling values published by the makers of the model, None where they publish none.

    `repeat_penalty` is often named repetition_penalty; `source` is the address of the publication.
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

    `fallback_convention` describes tools in the prompt if the chat template does not.
    `launch_flags` are for llama-server; `sources` are the URLs of pages that publish the
    values.
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
