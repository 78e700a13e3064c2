import pytest

from proxy.conversation.json import JsonObject
from temper_evals.scenarios.catalogue import TOOLS, WRITING
from temper_evals.scenarios.scenario import PlannedCall, ToolFailed
from temper_evals.scenarios.worlds import (
    CannedOutcome,
    CannedWorld,
    Setting,
    function_of,
    key_of,
    possible_results,
    reference,
    schema_of,
)

STOCK = PlannedCall("get_stock", {"sku": "lamp-1"})
ORDER = PlannedCall("reorder_article", {"sku": "lamp-1", "quantity": 2})
OUTCOMES = {
    key_of("get_stock", STOCK.arguments): (
        CannedOutcome("busy", fails=True),
        CannedOutcome({"in_stock": 3}),
    )
}
SETTING = Setting("case-1", (TOOLS["get_stock"], TOOLS["reorder_article"]), OUTCOMES, WRITING)


def test_the_key_of_a_call_does_not_depend_on_the_order_of_its_arguments() -> None:
    turned: JsonObject = {"quantity": 2, "sku": "lamp-1"}
    assert key_of("reorder_article", ORDER.arguments) == key_of("reorder_article", turned)
    assert key_of("a", {"b": [{"d": 1, "c": 2}]}) == key_of("a", {"b": [{"c": 2, "d": 1}]})


def test_repeated_calls_return_the_outcomes_in_order_and_then_always_the_last() -> None:
    world = CannedWorld(SETTING)
    with pytest.raises(ToolFailed, match="busy"):
        world.call(STOCK.name, STOCK.arguments)
    again = [world.call(STOCK.name, STOCK.arguments) for _ in range(2)]
    assert again == ['{"in_stock":3}'] * 2
    assert world.changes == []


def test_a_call_of_a_writing_tool_is_stored_as_a_change_and_returns_a_reference() -> None:
    world = CannedWorld(SETTING)
    result = world.call(ORDER.name, ORDER.arguments)
    assert reference("case-1", ORDER.name, ORDER.arguments) in result
    assert reference("case-2", ORDER.name, ORDER.arguments) not in result
    assert world.changes == [ORDER]
    assert possible_results(SETTING, ORDER) == {result: False}


@pytest.mark.parametrize(
    ("name", "arguments", "why"),
    [
        ("get_stick", {}, "unknown tool"),
        ("get_stock", {}, "sku"),
        ("reorder_article", {"sku": "lamp-1", "quantity": "2"}, "/quantity"),
        ("get_stock", {"sku": "desk-1"}, "nothing was found"),
    ],
)
def test_an_invalid_call_or_a_call_without_outcome_raises_tool_failed(
    name: str, arguments: dict[str, str], why: str
) -> None:
    with pytest.raises(ToolFailed, match=why):
        CannedWorld(SETTING).call(name, {**arguments})


def test_a_tool_without_parameters_has_an_empty_schema() -> None:
    assert function_of({}) == {}
    assert schema_of(({"function": {"name": "a"}},), "a") == {}
    assert possible_results(SETTING, PlannedCall("get_stock", {"sku": "x"})) == {}
    assert possible_results(SETTING, STOCK) == {'{"error":"busy"}': True, '{"in_stock":3}': False}
