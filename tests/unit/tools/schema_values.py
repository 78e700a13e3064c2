"""Draws values that satisfy a JSON schema made from the signature of a function."""

from typing import cast

from hypothesis import strategies as st

from proxy.conversation.json import JsonObject, JsonValue

_FORMATS: dict[str, st.SearchStrategy[str]] = {
    "date-time": st.datetimes().map(lambda moment: f"{moment.isoformat()}Z"),
    "date": st.dates().map(lambda day: day.isoformat()),
    "uuid": st.uuids().map(str),
}
_MOST_ITEMS = 3
_DEEPEST = 4


def values(
    schema: JsonValue, root: JsonValue = None, depth: int = 0
) -> st.SearchStrategy[JsonValue]:
    """Draw values that satisfy `schema`; a recursive schema is expanded to a limited depth."""
    assert isinstance(schema, dict)
    root = schema if root is None else root
    match schema:
        case {"$ref": str(reference)}:
            assert isinstance(root, dict)
            definitions = cast("JsonObject", root["$defs"])
            return values(definitions[reference.rpartition("/")[2]], root, depth + 1)
        case {"const": constant}:
            return st.just(constant)
        case {"enum": list(options)}:
            return st.sampled_from(options)
        case {"anyOf": list(forms)} | {"oneOf": list(forms)}:
            simple = [form for form in forms if isinstance(form, dict) and "$ref" not in form]
            return st.one_of([values(form, root, depth) for form in _shallow(forms, simple, depth)])
        case {"type": str(kind)}:
            return _of_type(kind, schema, root, depth)
        case _:
            return st.none() | st.booleans() | st.integers() | st.text()


def _shallow(forms: list[JsonValue], simple: list[JsonObject], depth: int) -> list[JsonValue]:
    return [*simple] if simple and depth > _DEEPEST else forms


def _of_type(
    kind: str, schema: JsonObject, root: JsonValue, depth: int
) -> st.SearchStrategy[JsonValue]:
    if kind == "array":
        return _arrays(schema, root, depth)
    return _objects(schema, root, depth) if kind == "object" else _scalars(kind, schema)


def _scalars(kind: str, schema: JsonObject) -> st.SearchStrategy[JsonValue]:
    match kind:
        case "string":
            return _FORMATS.get(str(schema.get("format")), st.text()).map(str)
        case "integer":
            least, most = schema.get("minimum"), schema.get("maximum")
            return st.integers(cast("int | None", least), cast("int | None", most)).map(int)
        case "number":
            return st.floats(allow_nan=False, allow_infinity=False).map(float)
        case "boolean":
            return st.booleans().map(bool)
        case _:
            return st.none()


def _arrays(schema: JsonObject, root: JsonValue, depth: int) -> st.SearchStrategy[JsonValue]:
    if isinstance(places := schema.get("prefixItems"), list):
        return st.tuples(*(values(item, root, depth) for item in places)).map(list)
    most = 0 if depth > _DEEPEST else _MOST_ITEMS
    items = values(schema.get("items", {}), root, depth)
    drawn = st.lists(items, max_size=most, unique_by=repr if schema.get("uniqueItems") else None)
    return drawn.map(list)


def _objects(schema: JsonObject, root: JsonValue, depth: int) -> st.SearchStrategy[JsonValue]:
    members = cast("JsonObject", schema.get("properties", {}))
    required = cast("list[str]", schema.get("required", []))
    if isinstance(more := schema.get("additionalProperties"), dict):
        return st.dictionaries(st.text(), values(more, root, depth), max_size=_MOST_ITEMS).map(dict)
    optional = {} if depth > _DEEPEST else {n: members[n] for n in members if n not in required}
    return st.fixed_dictionaries(
        {name: values(members[name], root, depth) for name in required},
        optional={name: values(schema, root, depth) for name, schema in optional.items()},
    ).map(dict)
