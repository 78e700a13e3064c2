"""Where the references of a JSON schema lead within its own document; nothing is ever fetched."""

from urllib.parse import unquote, urljoin

from proxy.conversation.json import JsonObject, JsonValue

ROOT = "urn:temper:schema"

_DEFAULT = "json-schema:///"  # the validator's own name for a document without one
_META = ("https://json-schema.org/", "http://json-schema.org/")
_ANCHORS = ("$anchor", "$dynamicAnchor")


class UnknownTarget(LookupError):
    """A reference leads nowhere, as far as this can tell."""


class References:
    """The references of one document."""

    def __init__(self, document: JsonValue) -> None:
        self._bases: dict[int, str] = {}
        self._resources: dict[str, JsonValue] = dict.fromkeys(("", ROOT, _DEFAULT), document)
        self._anchors: dict[tuple[str, str], JsonObject] = {}
        self._dynamic: dict[str, list[JsonObject]] = {}
        self._look_for_names(document)

    def target(self, source: JsonObject, reference: str) -> JsonValue:
        """Return what `$ref` in `source` refers to, True for a meta-schema."""
        base = self._bases.get(id(source), "")
        address, _, fragment = reference.partition("#")
        if address.startswith(_META):
            return True
        resource = urljoin(base, address) if address else base
        if resource not in self._resources:
            raise UnknownTarget(reference)
        fragment = unquote(fragment)
        if not fragment or fragment.startswith("/"):
            steps = fragment.split("/")[1:]
            return follow(self._resources[resource], [_unescaped(step) for step in steps])
        if (resource, fragment) not in self._anchors:
            raise UnknownTarget(reference)
        return self._anchors[resource, fragment]

    def dynamic_targets(self, source: JsonObject, reference: str) -> list[JsonValue]:
        """Return all that `$dynamicRef` in `source` can refer to."""
        named = self._dynamic.get(reference.partition("#")[2], [])
        return [*named] or [self.target(source, reference)]

    def _look_for_names(self, document: JsonValue) -> None:
        """Note what goes by a name of its own, and from where references start."""
        rest = [(document, "")]
        while rest:
            value, base = rest.pop()
            if isinstance(value, list):
                rest += [(item, base) for item in value]
            elif isinstance(value, dict):
                base = self._note(value, base)
                rest += [(member, base) for member in value.values()]

    def _note(self, schema: JsonObject, base: str) -> str:
        name = schema.get("$id")
        if isinstance(name, str):
            base = urljoin(base, name).partition("#")[0]
            self._resources.setdefault(base, schema)
        if base:
            self._bases[id(schema)] = base
        for keyword in _ANCHORS:
            anchor = schema.get(keyword)
            if isinstance(anchor, str):
                self._anchors[base, anchor] = schema
        dynamic = schema.get("$dynamicAnchor")
        if isinstance(dynamic, str):
            self._dynamic.setdefault(dynamic, []).append(schema)
        return base


def follow(document: JsonValue, path: list[str]) -> JsonValue:
    """Return what stands at a path; raises UnknownTarget where there is nothing."""
    value = document
    for step in path:
        if isinstance(value, dict) and step in value:
            value = value[step]
        elif isinstance(value, list) and step.isdecimal() and int(step) < len(value):
            value = value[int(step)]
        else:
            raise UnknownTarget(step)
    return value


def _unescaped(step: str) -> str:
    return step.replace("~1", "/").replace("~0", "~")
