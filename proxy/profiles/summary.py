"""What a profile comes down to, for people and for programs: what `temper models` shows."""

from dataclasses import asdict

from proxy.conversation.json import JsonObject
from proxy.guardrails.model_quirks import Quirks, Template
from proxy.profiles.profile import Sampling
from proxy.profiles.recognition import Recognition


def summary(recognition: Recognition, quirks: Quirks) -> dict[str, str]:
    """Describe a model line by line: a word, and what there is to say about it."""
    profile = recognition.profile
    first = ", ".join(quirks.syntaxes)
    tried = f"{first}, then every other syntax" if first else "every syntax"
    describer = f"in the prompt, as {quirks.convention}" if quirks.convention else ""
    respond = "" if quirks.offers_respond else ", respond is not offered"
    lines = {
        "profile": f"{profile.name} ({profile.title}): {recognition.reason}",
        "calls": f"{tried}; {'several' if quirks.calls_in_parallel else 'one'} at once",
        "tools": f"described {describer or 'by the chat template'}",
        "prose": f"{quirks.text_policy.value}{respond}",
        "thoughts": f"replayed: {quirks.replay}",
        "template": _template(quirks.template),
        "sampling": _sampling(profile.sampling),
        "launch": " ".join(profile.launch_flags),
        "state": "cannot be rolled back" if quirks.resets_state else "",
        "sources": " ".join(profile.sources),
    }
    return {word: line for word, line in lines.items() if line}


def document(recognition: Recognition, quirks: Quirks) -> JsonObject:
    profile, template = recognition.profile, quirks.template
    return {
        "profile": profile.name,
        "title": profile.title,
        "reason": recognition.reason,
        "syntaxes": [*quirks.syntaxes],
        "parallel_calls": quirks.calls_in_parallel,
        "tools_in_prompt": quirks.convention or None,
        "text_policy": quirks.text_policy.value,
        "offers_respond": quirks.offers_respond,
        "replay": quirks.replay,
        "resets_state": quirks.resets_state,
        "aliases": {**quirks.aliases},
        "template": {
            "developer": template.has_developer,
            "system": template.system,
            "alternates": template.alternates,
            "prefill": template.prefill,
            "control_tokens": [*template.control_tokens],
        },
        "launch_flags": [*profile.launch_flags],
        "sampling": _drop_unset(profile.sampling),
        "sources": [*profile.sources],
    }


def _template(template: Template) -> str:
    told = [f"system messages {template.system}"]
    if template.alternates:
        told.append("user and assistant in turns")
    if not template.has_developer:
        told.append("no role developer")
    return ", ".join(told)


def _drop_unset(sampling: Sampling) -> JsonObject:
    return {name: value for name, value in asdict(sampling).items() if value not in (None, "")}


def _sampling(sampling: Sampling) -> str:
    values = [
        f"{name} {value}" for name, value in _drop_unset(sampling).items() if name != "source"
    ]
    return f"{', '.join(values)} ({sampling.source})" if values else ""
