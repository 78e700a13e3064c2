"""Lists the available models with their profiles, for `temper models`.

    {"id": "qwen3-8b", "profile": "qwen3", "reason": "...", "syntaxes": ["hermes"], "memory": {...}}

Text output is made from `summary`, and `--json` output from `document`.
"""

import asyncio
from contextlib import suppress
from dataclasses import asdict, dataclass, replace

from proxy.conversation.json import JsonObject
from proxy.errors import BackendFailed, InvalidRequest, LaunchFailed, ProcessFailed
from proxy.guardrails.model_quirks import Quirks, Template
from proxy.hardware import summary as memory
from proxy.hardware.snapshot import detect_hardware
from proxy.hardware.summary import Prospect
from proxy.processes.launch import check_model_file, find_program
from proxy.profiles.files import load_profiles
from proxy.profiles.known_model import KnownModel, Overrides
from proxy.profiles.known_models import KnownModels
from proxy.profiles.profile import Profile, Sampling
from proxy.profiles.recognition import Recognition
from proxy.serving import opening
from proxy.serving.assembly import overrides_of
from proxy.serving.managed_server import (
    memory_for,
    model_file,
    nothing_to_serve,
    recognize_file,
)
from proxy.settings import Settings


@dataclass(frozen=True, slots=True)
class ListedModel:
    """A model with its profile, or with the problem that prevented its examination.

    `name` is the name that clients use. `prospect` compares the memory that a managed server would
    need with the available memory.
    """

    name: str
    known: KnownModel | None = None
    prospect: Prospect | None = None
    problem: str = ""

    def summary(self) -> dict[str, str]:
        if self.known is None:
            return {"problem": self.problem}
        profile = profile_summary(self.known.recognition, self.known.quirks)
        return profile | (memory.summary(self.prospect) if self.prospect else {})

    def document(self) -> JsonObject:
        if self.known is None:
            return {"id": self.name, "problem": self.problem}
        profile = profile_document(self.known.recognition, self.known.quirks)
        fit: JsonObject = {"memory": memory.document(self.prospect)} if self.prospect else {}
        return {"id": self.name, **profile, **fit}


async def list_models(settings: Settings) -> tuple[ListedModel, ...]:
    """List the models of running servers and of files; starts no server.

    A model that cannot be examined is listed with its problem if there are other models. If it is
    the only model, `LaunchFailed` or `BackendFailed` is raised. Raises `InvalidConfiguration`.
    """
    profiles = load_profiles(settings.profile.folder)
    if settings.models:
        listings = (_list_configured(settings, name, profiles) for name in settings.models)
        return tuple(await asyncio.gather(*listings))
    overrides = overrides_of(settings.profile, profiles)
    if not opening.server_urls(settings):
        if settings.model.source is None:
            raise nothing_to_serve()
        return (_list_file(settings, overrides),)
    async with opening.open_backend(settings, lambda _stage: None) as backend:
        known = KnownModels(backend, profiles, overrides)
        models = [await known.look_up(model.id) for model in await backend.models()]
    return tuple(ListedModel(model.model, model) for model in models)


async def _list_configured(
    settings: Settings, name: str, profiles: tuple[Profile, ...]
) -> ListedModel:
    served, single = settings.models[name], opening.settings_of(settings, name)
    overrides = opening.overrides_for(settings, name, profiles)
    try:
        if not opening.server_urls(single):
            return replace(_list_file(single, overrides), name=name)
        async with opening.open_backend(single, lambda _stage: None) as backend:
            await backend.models()  # raises an error if the server does not respond
            models = KnownModels(backend, profiles, overrides)
            return ListedModel(name, await models.look_up(served.upstream_model or name))
    except (BackendFailed, InvalidRequest, ProcessFailed) as error:
        return ListedModel(name, problem=str(error))


def _list_file(settings: Settings, overrides: Overrides) -> ListedModel:
    model = settings.model
    if model.path is not None:
        check_model_file(model.path)
    known = recognize_file(settings, model_file(model), overrides)
    return ListedModel(known.model, known, prospect_of(settings))


def prospect_of(settings: Settings) -> Prospect | None:
    """Return the memory that the configured model needs, and the available memory.

    Returns None if no file is configured, or if the file does not contain the model's dimensions.
    """
    if opening.server_urls(settings):
        return None
    model = settings.model
    shape = model_file(model).shape
    if shape is None:
        return None
    available = detect_hardware()
    with suppress(LaunchFailed):  # llama-server is not installed
        available = memory_for(find_program(model.server), available)
    return Prospect(shape, available, model.slots)


def list_profiles(settings: Settings) -> tuple[ListedModel, ...]:
    """List every profile as if it were a model, with the model names that it matches."""
    return tuple(
        ListedModel(
            profile.name,
            KnownModel(
                profile.name,
                Recognition(profile, ", ".join(profile.matching.names) or "not recognized by name"),
                profile.quirks,
            ),
        )
        for profile in load_profiles(settings.profile.folder)
    )


def profile_summary(recognition: Recognition, quirks: Quirks) -> dict[str, str]:
    """Return the lines of text that describe a model, keyed by their label.

    Example: {"calls": "hermes, then ...; one at once"}
    """
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
        "efforts": ", ".join(quirks.efforts),
        "template": _template(quirks.template),
        "sampling": _sampling(profile.sampling),
        "launch": " ".join(profile.launch_flags),
        "state": "cache cannot be truncated" if quirks.resets_state else "",
        "sources": " ".join(profile.sources),
    }
    return {word: line for word, line in lines.items() if line}


def profile_document(recognition: Recognition, quirks: Quirks) -> JsonObject:
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
        "efforts": [*quirks.efforts],
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
    features = [f"system messages {template.system}"]
    if template.alternates:
        features.append("user and assistant messages alternate")
    if not template.has_developer:
        features.append("no developer role")
    return ", ".join(features)


def _drop_unset(sampling: Sampling) -> JsonObject:
    return {name: value for name, value in asdict(sampling).items() if value not in (None, "")}


def _sampling(sampling: Sampling) -> str:
    values = [
        f"{name} {value}" for name, value in _drop_unset(sampling).items() if name != "source"
    ]
    return f"{', '.join(values)} ({sampling.source})" if values else ""
