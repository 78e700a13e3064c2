import pytest

from proxy.conversation.json import JsonObject, JsonValue
from proxy.guardrails.schemas.references import ROOT, References, UnknownTarget, follow

NAMED: JsonObject = {"$anchor": "n", "title": "named"}
INNER: JsonObject = {"$defs": {"x": {"title": "of inner"}, "n": {"$anchor": "n"}}, "$id": "inner"}
DYNAMIC: JsonObject = {"$dynamicAnchor": "d"}
DOCUMENT: JsonObject = {
    "$id": "http://example.com/root#",
    "$defs": {"a/b ~c": {"title": "odd"}, "list": {"anyOf": [{"title": "first"}]}, "n": NAMED},
    "properties": {"inner": INNER, "d": DYNAMIC, "$id": {"title": "a property"}},
}


@pytest.mark.parametrize(
    ("reference", "title"),
    [
        ("#/$defs/a~1b%20~0c", "odd"),
        ("#/$defs/list/anyOf/0", "first"),
        ("#/properties/$id", "a property"),
        ("#n", "named"),
        ("http://example.com/root#n", "named"),
        ("root#/$defs/n", "named"),
        ("inner#/$defs/x", "of inner"),
        (f"{ROOT}#/$defs/n", "named"),
        ("json-schema:///#/$defs/n", "named"),
    ],
)
def test_a_reference_leads_to_a_place_of_the_document(reference: str, title: str) -> None:
    target = References(DOCUMENT).target(DOCUMENT, reference)
    assert isinstance(target, dict)
    assert target["title"] == title


@pytest.mark.parametrize("reference", ["#", "", "http://example.com/root"])
def test_a_reference_leads_to_the_document(reference: str) -> None:
    assert References(DOCUMENT).target(DOCUMENT, reference) is DOCUMENT


def test_a_reference_is_read_where_it_stands() -> None:
    references = References(DOCUMENT)
    assert references.target(INNER, "#") is INNER
    assert references.target(INNER, "#n") == {"$anchor": "n"}


def test_a_meta_schema_has_no_schemas_of_the_document() -> None:
    there = "https://json-schema.org/draft/2020-12/schema"
    assert References({}).target({}, there) is True


def test_a_dynamic_reference_may_lead_to_all_that_go_by_its_name() -> None:
    other: JsonObject = {"$dynamicAnchor": "d"}
    references = References({"$defs": {"one": DYNAMIC, "two": [other], "n": NAMED}})
    found = references.dynamic_targets({}, "#d")
    assert {id(one) for one in found} == {id(DYNAMIC), id(other)}
    assert references.dynamic_targets({}, "#n") == [NAMED]


@pytest.mark.parametrize(
    "reference",
    ["#/nowhere", "#/$defs/list/anyOf/1", "#/$defs/n/title/x", "#x", "other", "file:/x"],
)
def test_a_reference_that_leads_nowhere_is_reported(reference: str) -> None:
    with pytest.raises(UnknownTarget):
        References(DOCUMENT).target(DOCUMENT, reference)


def test_a_path_is_followed_through_lists_and_objects() -> None:
    document: JsonValue = {"a": [{"b": True}]}
    assert follow(document, ["a", "0", "b"]) is True
    assert follow(document, []) is document
    with pytest.raises(UnknownTarget):
        follow(document, ["a", "-1"])
