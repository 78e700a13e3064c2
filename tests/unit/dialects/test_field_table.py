import pytest

from proxy.dialects.field_table import (
    CARRIED,
    DROPPED,
    IGNORED,
    FieldTable,
    copies,
    copy_to,
    refuse,
    rows,
)
from proxy.errors import InvalidRequest

TABLE = FieldTable(
    rows(CARRIED, "model messages"),
    {"top_p": copy_to("options.top_p"), "audio": DROPPED, "n": refuse("Send 1.", (1,))},
)


def test_a_table_has_the_rows_of_all_its_groups() -> None:
    assert [*TABLE] == ["model", "messages", "top_p", "audio", "n"]
    assert (len(TABLE), TABLE["top_p"].target) == (5, "options.top_p")


def test_an_unlisted_field_has_the_row_for_unknown_fields() -> None:
    assert TABLE.of("model") == CARRIED
    assert TABLE.of("brand_new") == IGNORED
    strict = FieldTable(unknown=refuse("There is no such field."))
    with pytest.raises(InvalidRequest, match="There is no such field"):
        strict.check("brand_new", None)


def test_refused_fields_have_a_remedy_and_dropped_fields_are_reported() -> None:
    assert (TABLE.remedy("n"), TABLE.remedy("model")) == ("Send 1.", None)
    assert (TABLE.drops("audio"), TABLE.drops("model"), TABLE.drops("new")) == (True, False, False)


def test_a_harmless_value_of_a_refused_field_is_accepted() -> None:
    TABLE.check("n", 1)
    TABLE.check("model", "m")
    with pytest.raises(InvalidRequest, match="Send 1") as raised:
        TABLE.check("n", 2)
    assert raised.value.param == "n"


def test_the_functions_rows_and_copies_build_a_row_for_each_name() -> None:
    assert rows(IGNORED, "a b") == {"a": IGNORED, "b": IGNORED}
    assert copies("a b", "x.") == {"a": copy_to("x.a"), "b": copy_to("x.b")}
