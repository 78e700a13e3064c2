import pytest

from proxy.conversation.json import JsonObject
from proxy.guardrails.executed_calls import are_alike, awaits_change, count_wanted

TEXT: JsonObject = {"type": "string"}
SCHEMA: JsonObject = {
    "type": "object",
    "properties": {
        "to": TEXT,
        "count": {"type": "number"},
        "urgent": {"type": "boolean", "default": False},
        "options": {"type": "object", "properties": {"loud": {"default": True}}},
        "items": {"type": "array"},
    },
    "required": ["to"],
}
SENT: JsonObject = {"to": "Ann", "count": 5}


@pytest.mark.parametrize(
    ("other", "is_loose", "is_exact"),
    [
        pytest.param({"count": 5, "to": "Ann"}, True, True, id="another order"),
        pytest.param({**SENT, "count": 5.0}, True, True, id="a float"),
        pytest.param({**SENT, "count": "5"}, True, True, id="a number as text"),
        pytest.param({**SENT, "count": True}, False, False, id="a boolean"),
        pytest.param({**SENT, "count": 6}, False, False, id="another number"),
        pytest.param({**SENT, "urgent": False}, True, True, id="a default"),
        pytest.param({**SENT, "urgent": True}, False, False, id="not the default"),
        pytest.param({**SENT, "items": []}, True, True, id="an empty member"),
        pytest.param({**SENT, "options": {"loud": True}}, True, True, id="an inner default"),
        pytest.param(
            {**SENT, "options": {"loud": False}}, False, False, id="not the inner default"
        ),
        pytest.param({**SENT, "items": ["a"]}, False, False, id="a new member"),
        pytest.param({**SENT, "total": 105}, True, False, id="a member of the result"),
        pytest.param({"count": 5, "to": " ann"}, True, False, id="case and white space"),
        pytest.param({"count": 5}, False, False, id="a required member is missing"),
        pytest.param({**SENT, "to": "Bob"}, False, False, id="another text"),
        pytest.param({**SENT, "to": ["Ann"]}, False, False, id="another type"),
        pytest.param(None, False, False, id="no object"),
    ],
)
def test_the_function_are_alike_compares_arguments_loosely_or_exactly(
    other: JsonObject | None, is_loose: bool, is_exact: bool
) -> None:
    assert are_alike(SENT, other, SCHEMA, "", is_exact=False) is is_loose
    assert are_alike(SENT, other, SCHEMA, "", is_exact=True) is is_exact


@pytest.mark.parametrize(
    "keyword",
    [
        {"additionalProperties": {}},
        {"additionalProperties": True},
        {"patternProperties": {"": {}}},
        {"anyOf": [{"properties": {"total": {}}}]},
        {"properties": {}},
    ],
    ids=lambda keyword: next(iter(keyword)),
)
def test_calls_with_different_unlisted_members_of_an_open_schema_differ(
    keyword: JsonObject,
) -> None:
    schema: JsonObject = {**SCHEMA, **keyword}
    assert not are_alike(SENT, {**SENT, "total": 105}, schema, "", is_exact=False)


def test_texts_that_differ_in_case_are_alike_unless_the_user_names_both_spellings() -> None:
    assert are_alike("a.txt", "A.txt", None, "Delete a.txt.", is_exact=False)
    assert not are_alike("a.txt", "A.txt", None, "Delete a.txt and A.txt.", is_exact=False)
    assert are_alike([1, {"a": "X"}], ["1", {"a": "x"}], None, "", is_exact=False)
    assert not are_alike([1], [1, 2], None, "", is_exact=False)
    assert not are_alike("five", 5, None, "", is_exact=False)


@pytest.mark.parametrize(
    ("request_text", "count"),
    [
        ("Send it to Ann twice.", 2),
        ("Mail Ann, and ring the bell three times.", 1),
        ("Ring the bell three times, then mail Ann twice.", 2),
        ("Schick Ann die Mail dreimal.", 3),
        ("Hazlo 4 veces.", 4),
        ("给她发两次邮件", 2),
        ("Send it to Ann at 2 o'clock.", 1),
        ("", 1),
    ],
)
def test_count_wanted_returns_how_often_the_request_requires_a_call(
    request_text: str, count: int
) -> None:
    tools = ["send_mail", "ring_bell"]
    assert count_wanted("send_mail", {"to": "Ann"}, request_text, tools) == count
    assert count_wanted("send_mail", None, "Twice.", tools) == 2


@pytest.mark.parametrize(
    ("request_text", "result", "continues"),
    [
        ("Wait for the build.", '{"phase": 1}', True),
        ("Wait for the build.", '{"phase": "done"}', False),
        ("Is the build through?", '{"phase": 1}', False),
    ],
)
def test_a_request_awaits_a_change_until_a_result_reports_the_requested_event(
    request_text: str, result: str, continues: bool
) -> None:
    assert awaits_change(request_text, result) is continues
