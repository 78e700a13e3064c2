"""One model family, as data: how it is recognised, judged, started and sampled."""

from dataclasses import dataclass

from proxy.guardrails.model_quirks import GENERIC as GENERIC_QUIRKS
from proxy.guardrails.model_quirks import Quirks


@dataclass(frozen=True, slots=True)
class Matching:
    """By what a family is recognised.

    `names` are globs without regard to case, in which a space, "_" and "-" are the same;
    `architectures` are values of GGUF's `general.architecture`; all of `templates` must stand in
    the chat template.
    """

    names: tuple[str, ...] = ()
    architectures: tuple[str, ...] = ()
    templates: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Sampling:
    """The values that the model's makers publish, None where they are silent, and where."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    repeat_penalty: float | None = None
    presence_penalty: float | None = None
    source: str = ""


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
