"""The chart, rendered by Helm itself: objects by their kind, and what stands in temper.toml."""

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import yaml

from proxy.conversation.json import JsonObject, JsonValue

RELEASE = "temper"
KUBERNETES = "1.37"

POOL: JsonObject = {
    "existingSecret": "temper-key",
    "backends": ["http://vllm-0:8000", "http://vllm-1:8000"],
}
UNIT: JsonObject = {
    "shape": "unit",
    "existingSecret": "temper-key",
    "engine": {"modelVolume": {"persistentVolumeClaim": {"claimName": "models"}}},
}
SHAPES = {"pool": POOL, "unit": UNIT}


class Renders(Protocol):
    """Helm's `template`: manifests by the path of their template."""

    def __call__(self, values: JsonObject, *, name: str, namespace: str) -> Mapping[str, str]: ...


@dataclass(frozen=True)
class Rendered:
    """What came of one set of values."""

    objects: Mapping[str, JsonObject]
    notes: str

    def at(self, kind: str, *path: str | int) -> JsonValue:
        """Return what stands at a path in the object of a kind."""
        found: JsonValue = self.objects[kind]
        for step in path:
            match found, step:
                case dict(), str():
                    found = found[step]
                case list(), int():
                    found = found[step]
                case _:
                    raise AssertionError(f"{kind}: {path} leads to nothing")
        return found

    def pod(self, *path: str | int) -> JsonValue:
        """Return what stands at a path of the pods' specification."""
        return self.at("Deployment", "spec", "template", "spec", *path)

    def toml(self) -> str:
        """Return the settings."""
        return str(self.at("ConfigMap", "data", "temper.toml"))

    def environment(self) -> dict[str, str]:
        """Return the variables that Temper's container is given as they are."""
        given = self.pod("containers", 0, "env")
        assert isinstance(given, list)
        plain = [one for one in given if isinstance(one, dict) and "value" in one]
        return {str(one["name"]): str(one["value"]) for one in plain}


def rendered(render: Renders, values: JsonObject) -> Rendered:
    """Render the chart; every kind comes once at most."""
    manifests = render(values, name=RELEASE, namespace="ai")
    objects: dict[str, JsonObject] = {}
    notes = ""
    for path, text in manifests.items():
        if path.endswith("NOTES.txt"):
            notes = text
            continue
        for document in yaml.safe_load_all(text):
            if document is not None:
                assert document["kind"] not in objects
                objects[document["kind"]] = document
    return Rendered(objects, notes)


def merged(values: JsonObject, *others: JsonObject) -> JsonObject:
    """Lay values over values, as Helm does."""
    result = copy.deepcopy(values)
    for other in others:
        for name, value in other.items():
            under = result.get(name)
            if isinstance(value, dict) and isinstance(under, dict):
                result[name] = merged(under, value)
            else:
                result[name] = copy.deepcopy(value)
    return result


def at_path(path: str, value: JsonValue) -> JsonObject:
    """Return values with one value at a dotted path."""
    name, _, rest = path.partition(".")
    return {name: at_path(rest, value) if rest else value}
