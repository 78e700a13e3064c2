import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.guardrails.rescue.values.runs import (
    DEPTH,
    ITEMS,
    KEYWORDS,
    MEMBERS,
    MemberRun,
    RunFinder,
    find_bare_items,
)
from tests.fakes.arrivals import is_linear

scalars = st.none() | st.booleans() | st.integers(-(10**20), 10**20) | st.text()
documents = st.recursive(
    scalars | st.floats(-1e6, 1e6).map(lambda number: round(number, 3)),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)


@settings(deadline=None)
@given(st.lists(documents, min_size=2, max_size=6))
def test_the_method_find_returns_a_run_of_all_json_members_except_the_last(
    members: list[JsonValue],
) -> None:
    texts = [json.dump_text(member) for member in members]
    run = ITEMS.find(",".join(texts) + ",")
    length = len(",".join(texts[:-1])) + 1
    assert run is not None
    assert run == MemberRun(members[:-1], length, run.size)
    assert len(run.members) <= run.size <= length


@pytest.mark.parametrize(
    ("text", "members", "rest"),
    [
        ("'a', 'b', ", ["a"], "'b', "),
        ("True, None, False,true,", [True, None, False], "true,"),
        ("{'a': None, b: [1]}, 2,", [{"a": None, "b": [1]}], "2,"),
        ('{"a": 1} {"b": 2}\n[3], 4,', [{"a": 1}, {"b": 2}, [3]], "4,"),
        ('"a" "b"\n\'c\', 1, ', ["a", "b", "c"], "1, "),
    ],
)
def test_the_method_find_returns_a_run_of_unambiguous_members_that_are_not_json(
    text: str, members: list[JsonValue], rest: str
) -> None:
    run = ITEMS.find(text)
    assert run is not None
    assert (run.members, text[run.length :].lstrip()) == (members, rest)


@pytest.mark.parametrize(
    ("text", "items", "rest"),
    [
        ("x y, z ,", ["x y", "z"], ""),
        ("\n true,False, null,None,ünder, 1", [True, False, None, None, "ünder"], " 1"),
        ("a:b, c/d, e f", ["a:b", "c/d"], " e f"),
    ],
)
def test_find_bare_items_finds_items_without_quotation_marks(
    text: str, items: list[JsonValue], rest: str
) -> None:
    run = find_bare_items(text)
    assert run is not None
    assert (run.members, run.size, text[run.length :]) == (items, len(items), rest)


@pytest.mark.parametrize("text", ["", "x", "x,", "x,y", "1,2,", '"x","y",', "x\n,y,", "{},x,"])
def test_find_bare_items_finds_nothing_in_a_single_item_or_another_value(text: str) -> None:
    assert find_bare_items(text) is None


@pytest.mark.parametrize(
    ("runs", "text", "members", "source"),
    [
        (MEMBERS, '"a": 1, "b": [], "c"', {"a": 1}, '"a": 1,'),
        (MEMBERS, "a: 1, 'b': 2, ", {"a": 1}, "a: 1,"),
        (KEYWORDS, "a=1, b = {'c': 'd'}, e=5,", {"a": 1, "b": {"c": "d"}}, "a=1, b = {'c': 'd'},"),
    ],
)
def test_a_run_of_object_members_is_found_with_its_keys(
    runs: RunFinder[JsonObject], text: str, members: JsonObject, source: str
) -> None:
    run = runs.find(text)
    assert run is not None
    assert (run.members, text[: run.length].rstrip()) == (members, source)


@pytest.mark.parametrize(
    ("runs", "text"),
    [
        (ITEMS, ""),
        (ITEMS, "1"),
        (ITEMS, "1,"),
        (ITEMS, "1, 2"),
        (ITEMS, '"a"b", "c",'),
        (ITEMS, '"a\nb", "c", 1,'),
        (ITEMS, r'"\d", "c", 1,'),
        (ITEMS, r'"\ud83d", "c", 1,'),
        (ITEMS, "'it\"s', 'c', 1,"),
        (ITEMS, '"a""b", 1,'),
        (ITEMS, '[1] "b", 1,'),
        (ITEMS, "[1,], [2,], 3,"),
        (ITEMS, "[1}, [2}, 3,"),
        (ITEMS, '["a":1], ["a":1], 3,'),
        (ITEMS, "01, 1, 2,"),
        (ITEMS, "1e999, 1, 2,"),
        (ITEMS, "9" * 151 + ", 1, 2,"),
        (ITEMS, "NaN, 1, 2,"),
        (ITEMS, "truely, 1, 2,"),
        (ITEMS, '"\ud800", 1, 2,'),
        (ITEMS, "[" * (DEPTH + 1) + "]" * (DEPTH + 1) + ", 1, 2,"),
        (ITEMS, '{"a": 1, "a": 2}, {}, 1,'),
        (MEMBERS, '"a":1,"a":2,"b":3,'),
        (MEMBERS, "1: 2, 3: 4,"),
        (MEMBERS, "a=1, b=2, c=3,"),
        (MEMBERS, '"a": {} "b": {} "c": {},'),
        (KEYWORDS, "'a'=1, 'b'=2, c=3,"),
    ],
)
def test_the_method_find_returns_none_for_ambiguous_text(
    runs: RunFinder[JsonObject], text: str
) -> None:
    assert runs.find(text) is None


@pytest.mark.parametrize(
    "unit", ["[", '{"a":', '"', '"a",', "1", "[],", "'", "\\", '{"a":1}', "a:1,"]
)
def test_the_search_for_runs_takes_linear_time(unit: str) -> None:
    def text(size: int) -> str:
        return unit * (size // len(unit))

    assert is_linear(ITEMS.find, text, 20_000)
    assert is_linear(MEMBERS.find, text, 20_000)
