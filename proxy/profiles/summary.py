"""What a profile comes down to, for people and for programs: what `temper models` shows."""

from dataclasses import asdict

from proxy.conversation.json import JsonObject
from proxy.guardrails.model_quirks import Template, Traits
from proxy.profiles.profile import Sampling
from proxy.profiles.recognition import Recognition


def summary(recognition: Recognition, traits: Traits) -> dict[str, str]:
    """Describe a model line by line: a word, and what there is to say about it."""
    profile = recognition.profile
    lines = {
        "profile": f"{profile.name} ({profile.title}): {recognition.reason}",
        "calls": _calls(traits),
        "tools": _tools(traits),
        "prose": _prose(traits),
        "thoughts": f"replayed: {traits.replay.value}",
        "template": _template(traits.template),
        "sampling": _sampling(profile.sampling),
        "launch": " ".join(profile.launch_flags),
        "state": "cannot be rolled back" if traits.resets_state else "",
        "sources": " ".join(profile.sources),
    }
    return {word: line for word, line in lines.items() if line}


def document(recognition: Recognition, traits: Traits) -> JsonObject:
    profile, template = recognition.profile, traits.template
    return {
        "profile": profile.name,
        "title": profile.title,
        "reason": recognition.reason,
        "syntaxes": [*traits.syntaxes],
        "parallel_calls": traits.calls_in_parallel,
        "tools_in_prompt": traits.convention or None,
        "text_policy": traits.text_policy.value,
        "offers_respond": traits.offers_respond,
        "replay": traits.replay.value,
        "resets_state": traits.resets_state,
        "aliases": {**traits.aliases},
        "template": {
            "developer": template.has_developer,
            "system": template.system.value,
            "alternates": template.alternates,
            "control_tokens": [*template.control_tokens],
        },
        "launch_flags": [*profile.launch_flags],
        "sampling": _published(profile.sampling),
        "sources": [*profile.sources],
    }


def _prose(traits: Traits) -> str:
    offered = "" if traits.offers_respond else ", respond is not offered"
    return f"{traits.text_policy.value}{offered}"


def _calls(traits: Traits) -> str:
    first = ", ".join(traits.syntaxes)
    tried = f"{first}, then every other syntax" if first else "every syntax"
    return f"{tried}; {'several' if traits.calls_in_parallel else 'one'} at once"


def _tools(traits: Traits) -> str:
    if not traits.convention:
        return "described by the chat template"
    return f"described in the prompt, as {traits.convention}"


def _template(template: Template) -> str:
    told = [f"system messages {template.system.value}"]
    if template.alternates:
        told.append("user and assistant in turns")
    if not template.has_developer:
        told.append("no role developer")
    return ", ".join(told)


def _published(sampling: Sampling) -> JsonObject:
    return {name: value for name, value in asdict(sampling).items() if value not in (None, "")}


def _sampling(sampling: Sampling) -> str:
    values = [f"{name} {value}" for name, value in _published(sampling).items() if name != "source"]
    return f"{', '.join(values)} ({sampling.source})" if values else ""
