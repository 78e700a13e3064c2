"""A model, the profile it was given and why, and what follows from that for those who ask it.

What the text of a chat template tells about itself is worth more than any profile. Templates that
refuse something say so with `raise_exception('...')`; the wordings here are those of the official
templates of Gemma, Llama 2, Mistral, Devstral, Ministral and Qwen3.5. None is run.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from proxy.backends.client import Abilities
from proxy.guardrails.model_quirks import Quirks, Replay, SystemRole, Template
from proxy.guardrails.reasoning import ThoughtHabit
from proxy.guardrails.rescue.formats import TABLE
from proxy.guardrails.rescue.marks import REASONING
from proxy.guardrails.tool_prompts.react import ReActConvention
from proxy.profiles.profile import Profile
from proxy.profiles.recognition import Evidence, Recognition, recognise


@dataclass(frozen=True, slots=True)
class Overrides:
    """What the operator decided; None where recognition decides.

    `profile` takes the place of whatever would be recognised. An empty `convention` leaves the
    describing of tools to the chat template, whatever it does. `setting` is where the profile was
    named. Whether the model thinks (`thinking`) and how much (`effort`) is for requests that do not
    say.
    """

    profile: Profile | None = None
    convention: str | None = None
    replay: Replay | None = None
    setting: str = "profile.name"
    thinking: bool | None = None
    effort: str = ""


@dataclass(frozen=True, slots=True)
class KnownModel(Abilities):
    """A model, the profile it was given and why, and the quirks that follow from all of it.

    `evidence` and `overrides` are what it follows from. Names of one `identity` lead to the same
    model. Its `habit` is that of the profile, and then of its replies; `tuned` are settings that it
    earned, by section: changes of the policy, and of the overrides.
    """

    model: str
    recognition: Recognition
    quirks: Quirks
    evidence: Evidence = field(default_factory=Evidence)
    overrides: Overrides = field(default_factory=Overrides)
    tuned: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    habit: ThoughtHabit = field(default_factory=ThoughtHabit, compare=False)

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
    if overrides.replay != "full":
        quirks = replace(quirks, kept_by={})
    known = KnownModel(model, recognition, quirks, evidence=evidence, overrides=overrides)
    if quirks.opens_thoughts:
        known.habit.note(is_shown=True)
    return known


_CLOSERS = {"{#": "#}", "{%": "%}", "{{": "}}"}
_OPENER = re.compile("|".join(map(re.escape, _CLOSERS)))
_LITERAL = re.compile(r"'(?:[^'\\]|\\.)*'?|\"(?:[^\"\\]|\\.)*\"?", re.DOTALL)
_REFUSAL = re.compile(r"raise_exception\(\s*(?:'([^']*)|\"([^\"]*))")
_TOOLS = re.compile(r"(?<![\w.])tools\b")
_THOUGHTS = re.compile(
    "|".join(
        map(re.escape, ("enable_thinking", "reasoning_content", TABLE.messages.channel, *REASONING))
    )
)
_DEVELOPER = re.compile(r"['\"]developer['\"]")

_ALTERNATION = re.compile(r"roles must alternate")
_NO_SYSTEM = re.compile(r"system (?:role|messages?|prompts?) (?:is |are )?not supported")
_SYSTEM_FIRST = re.compile(
    r"system message must be (?:at the beginning|the first)"
    r"|optional (?:initial )?system message|initial (?:optional )?system message"
)
_UNKNOWN_ROLE = re.compile(
    r"only [\w,/ ]{1,60} roles are supported"
    r"|(?:unexpected|unknown|unsupported|invalid) (?:message )?role"
)


def quirks_for(profile: Profile, template: str, *, takes_tools: bool | None = None) -> Quirks:
    """Return a profile's quirks, corrected by the model's chat template; "" where it is unknown.

    A backend that says itself whether it `takes_tools` is believed more than any template.

    A known template decides who describes the tools: it does if it mentions them, otherwise the
    profile's convention or, where the profile relies on the template, its fallback. Apply this only
    where the operator left `tools_in_prompt` on auto: for templates without tools llama-server has
    a generic prompt of its own.
    """
    quirks = profile.quirks
    if template:
        quirks = replace(quirks, template=template_quirks(template, quirks.template))
    if takes_tools is None:
        if not template:
            return quirks
        takes_tools = renders_tools(template)
    convention = quirks.convention or profile.fallback_convention
    return replace(quirks, convention="" if takes_tools else convention)


def renders_tools(template: str) -> bool:
    """Whether a chat template uses its variable `tools`; the word in its prose is nothing."""
    return any(_TOOLS.search(_LITERAL.sub("''", code)) for code in _code(template))


def knows_thoughts(template: str) -> bool:
    return _THOUGHTS.search(template) is not None


def template_quirks(template: str, profile_template: Template) -> Template:
    """Read from a chat template what it refuses; the profile keeps what it cannot say.

    A refusal that the profile claims and the text does not contain is not believed: quantised
    files often carry mended templates.
    """
    refusals = " ".join(
        (single or double).lower()
        for code in _code(template)
        for single, double in _REFUSAL.findall(code)
    )
    return replace(
        profile_template,
        alternates=_ALTERNATION.search(refusals) is not None,
        system=_system_role(template, refusals, profile_template.system),
        has_developer=_has_developer(template, refusals, profile_template),
    )


def _code(template: str) -> Iterator[str]:
    """Return what stands in statements and expressions, without text and comments."""
    start = 0
    while opener := _OPENER.search(template, start):
        end = template.find(_CLOSERS[opener[0]], opener.end())
        if end < 0:
            return
        if opener[0] != "{#":
            yield template[opener.end() : end]
        start = end + 2


def _system_role(template: str, refusals: str, believed: SystemRole) -> SystemRole:
    if _NO_SYSTEM.search(refusals):
        return "nowhere"
    if _ALTERNATION.search(refusals):
        # where the turns are counted, anything but a first system message spoils the count
        return "first" if "system" in template else "nowhere"
    if _SYSTEM_FIRST.search(refusals) or believed == "nowhere":
        return "first"
    return believed


def _has_developer(template: str, refusals: str, profile_template: Template) -> bool:
    if _DEVELOPER.search(template):
        return True
    if _UNKNOWN_ROLE.search(refusals) or _ALTERNATION.search(refusals):
        return False
    return profile_template.has_developer
