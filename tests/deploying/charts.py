"""The chart, rendered by Helm itself: objects by kind, and the contents of temper.toml."""

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
    """The objects rendered from one set of values."""

    objects: Mapping[str, JsonObject]
    notes: str

    def at(self, kind: str, *path: str | int) -> JsonValue:
        """Return the value at a path in the object of a kind."""
        value: JsonValue = self.objects[kind]
        for step in path:
            match value, step:
                case dict(), str():
                    value = value[step]
                case list(), int():
                    value = value[step]
                case _:
                    raise AssertionError(f"{kind}: {path} leads to nothing")
        return value

    def pod(self, *path: str | int) -> JsonValue:
        """Return the value at a path of the pod specification."""
        return self.at("Deployment", "spec", "template", "spec", *path)

    def toml(self) -> str:
        """Return the settings."""
        return str(self.at("ConfigMap", "data", "temper.toml"))

    def environment(self) -> dict[str, str]:
        """Return the variables with literal values of Temper's container."""
        given = self.pod("containers", 0, "env")
        assert isinstance(given, list)
        plain = [
            variable for variable in given if isinstance(variable, dict) and "value" in variable
        ]
        return {str(variable["name"]): str(variable["value"]) for variable in plain}


def rendered(render: Renders, values: JsonObject) -> Rendered:
    """Render the chart; there is at most one object of each kind."""
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
    """Merge values as Helm does; later ones win."""
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
