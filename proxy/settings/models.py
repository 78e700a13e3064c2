"""Several models: their settings, and what can be wrong with them together."""

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Literal, TypeAlias, TypeVar

from proxy.dialects.openai_chat.thinking import Effort
from proxy.settings.sections import Address, Model, Section
from proxy.settings.values import Count, Name, Patience, RequiredName, setting

Contradiction: TypeAlias = tuple[tuple[str, ...], str]  # the first name gets the blame
Shared = TypeVar("Shared", str, int)


class ServedModel(Address, Model):
    """One of several models: loaded on demand, or on a running server."""

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
    ttl_seconds: Patience = setting(
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


_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/-]{0,127}")


def find_shared(uses: Iterable[tuple[Shared, str]]) -> Iterator[tuple[Shared, str, str]]:
    """Find what several use that only one may: it, whoever uses it too, and who did before."""
    owners: dict[Shared, str] = {}
    for one, user in uses:
        if (owner := owners.setdefault(one, user)) != user:
            yield one, user, owner


def find_rivals(
    address: Address, model: Model, server: str, launched: str
) -> Iterator[Contradiction]:
    """Find what names several servers, or one beside that which is started for a model.

    The settings are called `server` with `url` or `urls`, and `launched` with `path` or `hf_repo`.
    """
    url, path, repository = f"{server}.url", f"{launched}.path", f"{launched}.hf_repo"
    if address.url is not None and address.urls:
        problem = f"cannot be combined with {url}: name all servers here, or only one there"
        yield (f"{server}.urls", url), problem
    named = path if model.path is not None else repository
    if model.source is not None and address.addresses:
        problem = (
            f"cannot be combined with {named}: Temper either uses a running server or starts one "
            "for a model; remove one of the two"
        )
        yield (url, named), problem
    if model.path is not None and model.hf_repo is not None:
        problem = f"cannot be combined with {path}: name a file or a repository to download"
        yield (repository, path), problem


def contradictions(
    models: Mapping[str, ServedModel], swapping: Swapping
) -> Iterator[Contradiction]:
    """Find what is wrong with models that are fine as far as each setting goes."""
    for name, model in models.items():
        yield from _contradictions_within(f"models.{name}", name, model)
        if 0 < swapping.memory_mb < model.memory_mb:
            problem = (
                f"{model.memory_mb} MB is more than all models may take together: "
                f"swapping.memory_mb is {swapping.memory_mb}"
            )
            yield (f"models.{name}.memory_mb", "swapping.memory_mb"), problem
    preloaded = [name for name, model in models.items() if model.preload]
    if 0 < swapping.max_loaded < len(preloaded):
        problem = (
            f"only {swapping.max_loaded} of the {len(preloaded)} models to preload can stay: raise "
            "swapping.max_loaded, or preload less"
        )
        yield (f"models.{preloaded[-1]}.preload", "swapping.max_loaded"), problem
    aliases = [(alias, name) for name, model in models.items() for alias in model.aliases]
    for alias, name, owner in find_shared([*zip(models, models, strict=True), *aliases]):
        problem = f"{alias!r} leads to models.{owner} already; remove it here or there"
        yield (f"models.{name}.aliases", f"models.{owner}.aliases"), problem
    ports = ((model.port, name) for name, model in models.items() if model.port)
    for port, name, owner in find_shared(ports):
        problem = f"{port} is the port of models.{owner} already; 0 takes a free one"
        yield (f"models.{name}.port", f"models.{owner}.port"), problem


def find_misnamed(
    models: Mapping[str, ServedModel], rules: Iterable[str], aliases: Mapping[str, str]
) -> Iterator[Contradiction]:
    """Find rules of order and aliases for models that there are not, and rules given twice."""
    names = {alias: name for name, model in models.items() for alias in (name, *model.aliases)}

    def nearest(name: str) -> str:
        return (*difflib.get_close_matches(name, names, 1), *models)[0]

    for pattern, meant in aliases.items():
        if meant not in names:
            problem = f"there is no model {meant!r}; did you mean {nearest(meant)!r}?"
            yield (f"aliases.{pattern}",), problem
    for section in rules:
        if section not in names:
            problem = f"there is no such model; did you mean {nearest(section)!r}?"
            yield (f"workflows.{section}",), problem
    known = ((names[section], section) for section in rules if section in names)
    for model, section, owner in find_shared(known):
        problem = f"models.{model} has its rules in workflows.{owner} already"
        yield (f"workflows.{section}", f"workflows.{owner}"), problem


def _contradictions_within(section: str, name: str, model: ServedModel) -> Iterator[Contradiction]:
    path, url, ttl = f"{section}.path", f"{section}.url", f"{section}.ttl_seconds"
    if model.alias is not None:
        problem = f"is {name!r} already, by the name of the section; use {section}.aliases for more"
        yield (f"{section}.alias",), problem
    if not _NAME.fullmatch(name):
        yield (section,), "is no name for a model: use letters, digits and any of . _ : / -"
    if model.source is None and not model.addresses:
        yield (path, url), f"is missing: name a GGUF file, or a running server as {url}"
    yield from find_rivals(model, model, section, section)
    if model.addresses and model.preload:
        yield (f"{section}.preload", url), f"needs {path}: a running server loads on its own"
    if model.addresses and model.ttl_seconds:
        yield (ttl, url), f"needs {path}: Temper cannot unload what it has not started"
