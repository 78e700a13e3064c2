"""What the text of a chat template tells about itself, which is worth more than any profile.

Templates that refuse something say so with `raise_exception('...')`; the wordings here are those of
the official templates of Gemma, Llama 2, Mistral, Devstral, Ministral and Qwen3.5. None is run.
"""

import re
from collections.abc import Iterator
from dataclasses import replace

from proxy.guardrails.model_quirks import Quirks, SystemRole, Template
from proxy.profiles.profile import Profile

_CLOSERS = {"{#": "#}", "{%": "%}", "{{": "}}"}
_OPENER = re.compile("|".join(map(re.escape, _CLOSERS)))
_LITERAL = re.compile(r"'(?:[^'\\]|\\.)*'?|\"(?:[^\"\\]|\\.)*\"?", re.DOTALL)
_REFUSAL = re.compile(r"raise_exception\(\s*(?:'([^']*)|\"([^\"]*))")
_TOOLS = re.compile(r"(?<![\w.])tools\b")
_THOUGHTS = re.compile(r"enable_thinking|reasoning_content|<think>|\[THINK\]|<\|channel\|>")
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
