"""Settings of [models.NAME], presets and swapping, and checks of their combination.

    [models.qwen3]
    path = "models/qwen3-8b-q4_k_m.gguf"
    ttl_seconds = 600

A model with a file is loaded on demand. A model with an address runs on a running server.
"""

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Literal, TypeAlias, TypeVar

from pydantic import Field

from proxy.dialects.openai_chat.thinking import Effort
from proxy.settings.sections import Address, Model, Section
from proxy.settings.values import Count, Name, NonNegative, OrNone, RequiredName, Share, setting

# the names of the settings, and the error; the message starts with the first of these names
Contradiction: TypeAlias = tuple[tuple[str, ...], str]
Shared = TypeVar("Shared", str, int)


class Preset(Section):
    """Another name of a model; requests to it have other defaults for these parameters."""

    thinking: Literal["auto", "on", "off"] = setting(
        "auto", "reasoning: on, off, or auto (as the model)"
    )
    effort: Literal["auto", Effort] = setting("auto", "reasoning effort, or auto (as the model)")
    system_prompt: str = setting("", "system message of requests without one")
    temperature: OrNone[Annotated[NonNegative, Field(le=2)]] = setting(None, "sampling temperature")
    top_p: OrNone[Share] = setting(None, "nucleus sampling")
    top_k: OrNone[Annotated[Count, Field(ge=0)]] = setting(None, "number of candidate tokens")
    min_p: OrNone[Annotated[NonNegative, Field(le=1)]] = setting(
        None, "minimum probability of a token, relative to the most likely token"
    )
    presence_penalty: OrNone[Annotated[float, Field(ge=-2, le=2)]] = setting(
        None, "penalty for tokens that have occurred"
    )


class ServedModel(Address, Model):
    """A section [models.NAME]: a model that Temper loads on demand, or that a server has loaded."""

    upstream_model: Name = setting(
        None, "model name to send to the server at url, if it differs from the section name"
    )
    aliases: list[RequiredName] = setting([], "additional model names that clients may use")
    profile: Name = setting(None, "profile to use instead of the detected one")
    thinking: Literal["auto", "on", "off"] = setting(
        "auto", "reasoning for requests that do not set it: on, off, or auto (profile.thinking)"
    )
    effort: Literal["auto", Effort] = setting(
        "auto", "reasoning effort for requests that do not set it, or auto (profile.effort)"
    )
    presets: dict[str, Preset] = setting(
        {},
        "further names of the model with their own defaults: thinking, effort, system_prompt, "
        "temperature, top_p, top_k, min_p, presence_penalty",
    )
    fallback: Name = setting(
        None,
        "another section [models.NAME] whose model gets one attempt after all attempts at this "
        "model were rejected; it receives the whole conversation",
    )
    fallback_per_hour: Count = setting(
        60, "maximum number of attempts at fallback in any 60 minutes; 0 means no limit", ge=0
    )
    ttl_seconds: NonNegative = setting(
        0, "idle time after which the model is unloaded, in seconds; 0 means never"
    )
    preload: bool = setting(False, "load the model at startup instead of at the first request")
    memory_mb: Count = setting(0, "memory that the model needs, in MB; 0 estimates it", ge=0)


class Swapping(Section):
    """Limits for the models of [models.NAME] that are loaded at the same time."""

    max_loaded: Count = setting(1, "maximum number of loaded models; 0 means no limit", ge=0)
    memory_mb: Count = setting(
        0, "maximum memory of all loaded models, in MB; 0 means no limit", ge=0
    )


_INVALID_NAME = "is not a valid model name; use letters, digits and . _ : / -"
# also `owner/name:tag`, as in Ollama and on Hugging Face
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/-]{0,127}")


def find_shared(uses: Iterable[tuple[Shared, str]]) -> Iterator[tuple[Shared, str, str]]:
    """Yield (value, second user, first user) for each exclusive value with two users."""
    owners: dict[Shared, str] = {}
    for value, user in uses:
        if (owner := owners.setdefault(value, user)) != user:
            yield value, user, owner


def find_server_conflicts(
    address: Address, model: Model, server: str, launched: str
) -> Iterator[Contradiction]:
    """Find conflicts between addresses of running servers and a model to start.

    `server` is the section of `url` and `urls`, and `launched` is the section of `path` and
    `hf_repo`.
    """
    url, path, repository = f"{server}.url", f"{launched}.path", f"{launched}.hf_repo"
    if address.url is not None and address.urls:
        problem = f"cannot be combined with {url}; add that server to {server}.urls, or remove urls"
        yield (f"{server}.urls", url), problem
    source = path if model.path is not None else repository
    if model.source is not None and address.addresses:
        problem = (
            f"cannot be combined with {source}: Temper either uses a running server or starts one "
            "for a model; remove one of the two"
        )
        yield (url, source), problem
    if model.path is not None and model.hf_repo is not None:
        problem = f"cannot be combined with {path}; set a file or a repository, not both"
        yield (repository, path), problem


def contradictions(
    models: Mapping[str, ServedModel], swapping: Swapping
) -> Iterator[Contradiction]:
    """Find invalid combinations of settings of the models."""
    for name, model in models.items():
        yield from _contradictions_within(f"models.{name}", name, model)
        if 0 < swapping.memory_mb < model.memory_mb:
            problem = (
                f"{model.memory_mb} MB exceeds the limit for all models; "
                f"raise swapping.memory_mb ({swapping.memory_mb})"
            )
            yield (f"models.{name}.memory_mb", "swapping.memory_mb"), problem
    preloaded = [name for name, model in models.items() if model.preload]
    if 0 < swapping.max_loaded < len(preloaded):
        problem = (
            f"only {swapping.max_loaded} of {len(preloaded)} preloaded models can be loaded; raise "
            "swapping.max_loaded, or preload fewer models"
        )
        yield (f"models.{preloaded[-1]}.preload", "swapping.max_loaded"), problem
    aliases = [(alias, name) for name, model in models.items() for alias in model.aliases]
    for alias, name, owner in find_shared([*zip(models, models, strict=True), *aliases]):
        problem = f"{alias!r} is already used by models.{owner}; remove one of the two"
        yield (f"models.{name}.aliases", f"models.{owner}.aliases"), problem
    yield from _preset_contradictions(models)
    yield from _fallback_contradictions(models, swapping)
    ports = ((model.port, name) for name, model in models.items() if model.port)
    for port, name, owner in find_shared(ports):
        problem = f"{port} is already used by models.{owner}; 0 picks a free port"
        yield (f"models.{name}.port", f"models.{owner}.port"), problem


def _fallback_contradictions(
    models: Mapping[str, ServedModel], swapping: Swapping
) -> Iterator[Contradiction]:
    for name, model in models.items():
        other, section = model.fallback, f"models.{name}.fallback"
        if other is None:
            continue
        others = ", ".join(each for each in models if each != name)
        if other == name:
            yield (
                (section,),
                f"must be another model than {name}; name another section, or remove fallback",
            )
        elif other not in models:
            remedy = f"use one of: {others}" if others else "add this section"
            yield (section,), f"there is no section [models.{other}]; {remedy}"
        elif (path := _follow_fallbacks(models, name))[-1] == name:
            cycle = " -> ".join(path)
            yield (section,), f"leads back to {name} ({cycle}); remove one of these fallbacks"
        elif swapping.max_loaded == 1 and model.source and models[other].source:
            problem = (
                f"{name} and {other} have to be loaded at the same time; raise swapping.max_loaded "
                "(1) to at least 2"
            )
            yield (section, "swapping.max_loaded"), problem


def _follow_fallbacks(models: Mapping[str, ServedModel], name: str) -> list[str]:
    """Return the chain of fallbacks that starts at `name`; it ends at the first repetition."""
    path = [name]
    while (other := models[path[-1]].fallback) is not None and other in models:
        path.append(other)
        if other in path[:-1]:
            break
    return path


def _preset_contradictions(models: Mapping[str, ServedModel]) -> Iterator[Contradiction]:
    names = {name for model in models for name in (model, *models[model].aliases)}
    presets = [(preset, name) for name, model in models.items() for preset in model.presets]
    for preset, name in presets:
        section = f"models.{name}.presets.{preset}"
        if not _NAME.fullmatch(preset):
            yield (section,), _INVALID_NAME
        if preset in names:
            yield (section,), f"{preset!r} is already the name of a model; use another name"
    for preset, name, owner in find_shared(presets):
        problem = f"models.{owner} already has a preset of this name; use another name"
        yield (f"models.{name}.presets.{preset}",), problem


def find_unknown_names(
    models: Mapping[str, ServedModel], rules: Iterable[str], aliases: Mapping[str, str]
) -> Iterator[Contradiction]:
    """Find workflow rules and aliases of nonexistent models, and duplicate rules."""
    names = {
        alias: name
        for name, model in models.items()
        for alias in (name, *model.aliases, *model.presets)
    }

    def nearest(name: str) -> str:
        return (*difflib.get_close_matches(name, names, 1), *models)[0]

    for pattern, target in aliases.items():
        if target not in names:
            problem = f"model {target!r} does not exist; did you mean {nearest(target)!r}?"
            yield (f"aliases.{pattern}",), problem
    for section in rules:
        if section not in names:
            problem = f"this model does not exist; did you mean {nearest(section)!r}?"
            yield (f"workflows.{section}",), problem
    known = ((names[section], section) for section in rules if section in names)
    for model, section, owner in find_shared(known):
        problem = f"workflows.{owner} already has rules for models.{model}; merge the two sections"
        yield (f"workflows.{section}", f"workflows.{owner}"), problem


def _contradictions_within(section: str, name: str, model: ServedModel) -> Iterator[Contradiction]:
    path, url, ttl = f"{section}.path", f"{section}.url", f"{section}.ttl_seconds"
    if model.alias is not None:
        problem = (
            f"is already {name!r}, the name of the section; use {section}.aliases for more names"
        )
        yield (f"{section}.alias",), problem
    if not _NAME.fullmatch(name):
        yield (section,), _INVALID_NAME
    if model.source is None and not model.addresses:
        yield (path, url), f"is missing; set a GGUF file, or a running server with {url}"
    yield from find_server_conflicts(model, model, section, section)
    if model.addresses and model.preload:
        yield (
            (f"{section}.preload", url),
            f"requires {path}; a running server loads its model itself",
        )
    if model.addresses and model.ttl_seconds:
        yield (ttl, url), f"requires {path}; Temper cannot unload models of a running server"
