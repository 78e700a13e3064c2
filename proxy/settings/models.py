"""Several models: their settings, and what can be wrong with them together."""

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Literal, TypeAlias

from pydantic import Field

from proxy.settings.sections import Address, Model, Section
from proxy.settings.values import Count, Name, Patience, RequiredName

Contradiction: TypeAlias = tuple[tuple[str, ...], str]  # the first name gets the blame


class ServedModel(Address, Model):
    """One of several models: loaded when it is wanted, or on a running server."""

    upstream_model: Name = Field(
        default=None, description="name that the model has at the url, if it is another one"
    )
    aliases: list[RequiredName] = Field(
        default=[], description="further names under which clients may ask for the model"
    )
    profile: Name = Field(
        default=None, description="profile to use instead of the one that is recognised"
    )
    thinking: Literal["auto", "on", "off"] = Field(
        default="auto",
        description="whether it thinks before it answers: on, off, or auto for profile.thinking",
    )
    ttl_seconds: Patience = Field(
        default=0,
        description="idle time after which the model is unloaded, in seconds; 0 means never",
    )
    preload: bool = Field(
        default=False, description="load the model at the start, before anybody asks for it"
    )
    memory_mb: Count = Field(
        default=0, ge=0, description="memory that it takes, in MB; 0 has it calculated"
    )


class Swapping(Section):
    """Which of the models in [models.NAME] are loaded at the same time."""

    max_loaded: Count = Field(
        default=1, ge=0, description="models that stay loaded at once; 0 means any number"
    )
    memory_mb: Count = Field(
        default=0, ge=0, description="memory for all that are loaded, in MB; 0 means no limit"
    )


_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/-]{0,127}")


def contradictions(
    models: Mapping[str, ServedModel], swapping: Swapping
) -> Iterator[Contradiction]:
    """Find what is wrong with models that are fine as far as each setting goes."""
    for name, model in models.items():
        yield from _contradictions_within(f"models.{name}", name, model)
        if 0 < swapping.memory_mb < model.memory_mb:
            yield (
                (f"models.{name}.memory_mb", "swapping.memory_mb"),
                f"{model.memory_mb} MB is more than all models may take together: "
                f"swapping.memory_mb is {swapping.memory_mb}",
            )
    yield from _too_many(models, swapping)
    yield from _find_shared_names(models)
    yield from _find_shared_ports(models)


def find_misnamed_rules(
    models: Mapping[str, ServedModel], rules: Iterable[str]
) -> Iterator[Contradiction]:
    """Find rules of order for a model that there is not, or that has rules by another name."""
    names = {alias: name for name, model in models.items() for alias in (name, *model.aliases)}
    owners: dict[str, str] = {}
    for section in rules:
        model = names.get(section)
        if model is None:
            near = (*difflib.get_close_matches(section, names, 1), *models)[0]
            yield (f"workflows.{section}",), f"there is no such model; did you mean {near!r}?"
        elif (owner := owners.setdefault(model, section)) != section:
            problem = f"models.{model} has its rules in workflows.{owner} already"
            yield (f"workflows.{section}", f"workflows.{owner}"), problem


def find_misnamed_aliases(
    models: Mapping[str, ServedModel], aliases: Mapping[str, str]
) -> Iterator[Contradiction]:
    """Find patterns of names that lead to no model, where the models are known."""
    names = {alias for name, model in models.items() for alias in (name, *model.aliases)}
    for pattern, meant in aliases.items():
        if models and meant not in names:
            near = (*difflib.get_close_matches(meant, names, 1), *models)[0]
            yield (f"aliases.{pattern}",), f"there is no model {meant!r}; did you mean {near!r}?"


def _contradictions_within(section: str, name: str, model: ServedModel) -> Iterator[Contradiction]:
    path, url, ttl = f"{section}.path", f"{section}.url", f"{section}.ttl_seconds"
    if model.alias is not None:
        problem = f"is {name!r} already, by the name of the section; use {section}.aliases for more"
        yield (f"{section}.alias",), problem
    if not _NAME.fullmatch(name):
        yield (section,), "is no name for a model: use letters, digits and any of . _ : / -"
    if model.source is None and not model.addresses:
        yield (path, url), f"is missing: name a GGUF file, or a running server as {url}"
    if model.url is not None and model.urls:
        yield (f"{section}.urls", url), f"cannot be combined with {url}: name all servers here"
    if model.source is not None and model.addresses:
        yield (
            (url, path),
            f"cannot be combined with {path}: Temper either uses a running server or starts one "
            "for a file; remove one of the two",
        )
    if model.addresses and model.preload:
        yield (f"{section}.preload", url), f"needs {path}: a running server loads on its own"
    if model.addresses and model.ttl_seconds:
        yield (ttl, url), f"needs {path}: Temper cannot unload what it has not started"


def _too_many(models: Mapping[str, ServedModel], swapping: Swapping) -> Iterator[Contradiction]:
    preloaded = [name for name, model in models.items() if model.preload]
    if 0 < swapping.max_loaded < len(preloaded):
        yield (
            (f"models.{preloaded[-1]}.preload", "swapping.max_loaded"),
            f"only {swapping.max_loaded} of the {len(preloaded)} models to preload can stay: raise "
            "swapping.max_loaded, or preload less",
        )


def _find_shared_names(models: Mapping[str, ServedModel]) -> Iterator[Contradiction]:
    owners = {name: name for name in models}
    for name, model in models.items():
        for alias in model.aliases:
            owner = owners.setdefault(alias, name)
            if owner != name:
                yield (
                    (f"models.{name}.aliases", f"models.{owner}.aliases"),
                    f"{alias!r} leads to models.{owner} already; remove it here or there",
                )


def _find_shared_ports(models: Mapping[str, ServedModel]) -> Iterator[Contradiction]:
    owners: dict[int, str] = {}
    for name, model in models.items():
        owner = owners.setdefault(model.port, name)
        if model.port and owner != name:
            yield (
                (f"models.{name}.port", f"models.{owner}.port"),
                f"{model.port} is the port of models.{owner} already; 0 takes a free one",
            )
