"""A model with its profile, the reason for the profile, and the resulting quirks.

The chat template takes precedence over the profile. Templates are searched, not rendered: a
template rejects a conversation with `raise_exception('...')`, and the patterns below match these
error messages in the official templates of Gemma, Llama 2, Mistral, Devstral, Ministral and
Qwen3.5.
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
from proxy.profiles.recognition import Evidence, Recognition, recognize


@dataclass(frozen=True, slots=True)
class Overrides:
    """The operator's settings; None means that the profile of the recognized model decides.

    `profile` replaces the recognized profile. If `convention` is "", the chat template describes
    the tools. `setting` is the name of the setting that selected the profile. `thinking` and
    `effort` apply to requests that do not set them; `effort` "" means that it is not set.
    """

    profile: Profile | None = None
    convention: str | None = None
    replay: Replay | None = None
    setting: str = "profile.name"
    thinking: bool | None = None
    effort: str = ""


@dataclass(frozen=True, slots=True)
class KnownModel(Abilities):
    """A model with its recognized profile and the resulting quirks.

    `evidence` and `overrides` are the inputs. Two names with the same `identity` mean the same
    model. `habit` records whether replies begin inside a reasoning block; the profile sets its
    initial value. `tuned` are measured settings by section.
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
        """The capabilities to report to clients; Temper makes tools work with every model."""
        thinking = ("thinking",) if knows_thoughts(self.evidence.template) else ()
        return ("tools", *thinking, *self.senses)


def identify_model(
    model: str, evidence: Evidence, profiles: Sequence[Profile], overrides: Overrides
) -> KnownModel:
    """Determine the profile and quirks of a model from the evidence and the overrides."""
    if overrides.profile is not None:
        recognition = Recognition(overrides.profile, f"chosen by {overrides.setting}")
    else:
        recognition = recognize(evidence, profiles)
    quirks = quirks_for(recognition.profile, evidence.template, takes_tools=evidence.takes_tools)
    if overrides.convention is not None:
        quirks = replace(quirks, convention=overrides.convention)
    if quirks.convention == ReActConvention.name:  # ReAct has one action per reply
        quirks = replace(quirks, calls_in_parallel=False)
    if overrides.replay is not None:
        quirks = replace(quirks, replay=overrides.replay)
    if overrides.replay != "full":
        quirks = replace(quirks, kept_by={})
    quirks = replace(quirks, renders_reasoning=_renders_reasoning(quirks, evidence.template))
    known = KnownModel(model, recognition, quirks, evidence=evidence, overrides=overrides)
    if quirks.opens_thoughts:  # so that reasoning in the first reply is recognized
        known.habit.note(is_shown=True)
    return known


# Jinja's marks of comments, statements and expressions
_CLOSERS = {"{#": "#}", "{%": "%}", "{{": "}}"}
_OPENER = re.compile("|".join(map(re.escape, _CLOSERS)))
_LITERAL = re.compile(r"'(?:[^'\\]|\\.)*'?|\"(?:[^\"\\]|\\.)*\"?", re.DOTALL)
# `raise_exception('Conversation roles must alternate')` -> the message
_REFUSAL = re.compile(r"raise_exception\(\s*(?:'([^']*)|\"([^\"]*))")
# the variable `tools`, but not `message.tools` or `builtin_tools`
_TOOLS = re.compile(r"(?<![\w.])tools\b")
_THOUGHTS = re.compile(
    "|".join(
        map(re.escape, ("enable_thinking", "reasoning_content", TABLE.messages.channel, *REASONING))
    )
)
# the fields of a message that contain its reasoning; llama-server renames them for gpt-oss and
# Ministral
_EARLIER = re.compile(
    r"reasoning_content|\.(?:thinking|reasoning)\b|['\"](?:thinking|reasoning)['\"]"
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
    """Return the quirks of a profile, corrected by the chat template ("" if unknown).

    A template that uses the variable `tools` describes the tools itself. For any other template,
    Temper describes the tools in the profile's convention, or in its fallback convention. If the
    backend reports `takes_tools`, this value is used instead of searching the template.
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
    """Return whether the code of a chat template (not its text) uses the variable `tools`."""
    return any(_TOOLS.search(_LITERAL.sub("''", code)) for code in _code(template))


def knows_thoughts(template: str) -> bool:
    return _THOUGHTS.search(template) is not None


def _renders_reasoning(quirks: Quirks, template: str) -> bool | None:
    """Return whether a chat template ("" if unknown) uses the reasoning of earlier messages."""
    if template:
        return any(_EARLIER.search(code) for code in _code(template))
    return quirks.renders_reasoning


def template_quirks(template: str, profile_template: Template) -> Template:
    """Return the limits of a chat template, from its error messages and from the profile.

    Quantized files often contain corrected templates. So two limits of the profile are dropped if
    the template does not contain their error messages: that user and assistant messages must
    alternate, and that no system message is accepted, not even at the beginning.
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
    """Yield the statements and expressions of a template, without its text and comments."""
    start = 0
    while opener := _OPENER.search(template, start):
        end = template.find(_CLOSERS[opener[0]], opener.end())
        if end < 0:
            return
        if opener[0] != "{#":
            yield template[opener.end() : end]
        start = end + 2


def _system_role(template: str, refusals: str, profile_value: SystemRole) -> SystemRole:
    if _NO_SYSTEM.search(refusals):
        return "nowhere"
    if _ALTERNATION.search(refusals):
        # a template that checks whether roles alternate counts all messages, so a system message is
        # safe only at the beginning
        return "first" if "system" in template else "nowhere"
    if _SYSTEM_FIRST.search(refusals) or profile_value == "nowhere":
        return "first"
    return profile_value


def _has_developer(template: str, refusals: str, profile_template: Template) -> bool:
    if _DEVELOPER.search(template):
        return True
    if _UNKNOWN_ROLE.search(refusals) or _ALTERNATION.search(refusals):
        return False
    return profile_template.has_developer
