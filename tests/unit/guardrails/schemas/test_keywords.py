import pytest

from proxy.conversation.json import JsonValue
from proxy.guardrails.schemas.keywords import change_schemas


@pytest.mark.parametrize(
    ("keyword", "value", "changed"),
    [
        ("properties", {"a": {}, "b": True}, {"a": "new", "b": "new"}),
        ("anyOf", [{}, {}], ["new", "new"]),
        ("items", [{}], ["new"]),
        ("items", {}, "new"),
        ("not", False, "new"),
        ("enum", [{}], [{}]),
        ("properties", [], []),
        ("x-own", {"a": {}}, {"a": {}}),
    ],
)
def test_only_schemas_are_changed(keyword: str, value: JsonValue, changed: JsonValue) -> None:
    assert change_schemas(keyword, value, lambda _: "new") == changed
