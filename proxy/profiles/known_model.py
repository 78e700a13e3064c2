"""A model, the profile it was given and why, and what follows from that for those who ask it."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from proxy.guardrails.formats.react import ReActConvention
from proxy.guardrails.model_quirks import Quirks, Replay
from proxy.profiles.chat_templates import knows_thoughts, quirks_for
from proxy.profiles.profile import Profile
from proxy.profiles.recognition import Evidence, Recognition, recognise


@dataclass(frozen=True, slots=True)
class Overrides:
    """What the operator decided; None where recognition decides.

    `profile` takes the place of whatever would be recognised. An empty `convention` leaves the
    describing of tools to the chat template, whatever it does. `setting` is where the profile was
    named. `thinking` is whether the model thinks where a request does not say.
    """

    profile: Profile | None = None
    convention: str | None = None
    replay: Replay | None = None
    setting: str = "profile.name"
    thinking: bool | None = None


@dataclass(frozen=True, slots=True)
class KnownModel:
    """A model, the profile it was given and why, and the quirks that follow from all of it.

    `slots` counts the requests that its backend works on at once, `window` the tokens that one of
    them has room for; None where nobody knows. `senses` are what it takes beside text, and one that
    `is_blind` takes no pictures; of others nobody knows. `evidence` and `overrides` are what it
    follows from. Names of one `identity` lead to the same model. What its `engine` `lacks` was told
    by its kind, or by its refusals.
    """

    model: str
    recognition: Recognition
    quirks: Quirks
    slots: int | None = None
    window: int | None = None
    evidence: Evidence = field(default_factory=Evidence)
    overrides: Overrides = field(default_factory=Overrides)
    senses: tuple[str, ...] = ()
    identity: str = ""
    is_blind: bool = False
    engine: str = ""
    lacks: tuple[str, ...] = ()

    @property
    def capabilities(self) -> tuple[str, ...]:
        """What a client may ask of it; tools work with every model here."""
        thinking = ("thinking",) if knows_thoughts(self.evidence.template) else ()
        return ("tools", *thinking, *self.senses)


def introduce(
    model: str, evidence: Evidence, profiles: Sequence[Profile], overrides: Overrides
) -> KnownModel:
    """Give a model its profile and quirks, by what is known of it and what was decided."""
    if overrides.profile is not None:
        recognition = Recognition(overrides.profile, f"chosen by {overrides.setting}")
    else:
        recognition = recognise(evidence, profiles)
    quirks = quirks_for(recognition.profile, evidence.template, takes_tools=evidence.takes_tools)
    if overrides.convention is not None:
        quirks = replace(quirks, convention=overrides.convention)
    if quirks.convention == ReActConvention.name:
        quirks = replace(quirks, calls_in_parallel=False)
    if overrides.replay is not None:
        quirks = replace(quirks, replay=overrides.replay)
    return KnownModel(model, recognition, quirks, evidence=evidence, overrides=overrides)
