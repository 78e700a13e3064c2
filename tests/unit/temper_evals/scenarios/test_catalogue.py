from temper_evals.scenarios.catalogue import TOOLS, WRITING, SampleValues, tools_with
from temper_evals.scenarios.worlds import tool_name


def test_sample_values_of_the_same_instance_are_equal() -> None:
    def drawn(instance: str) -> list[str]:
        values = SampleValues(instance)
        return [values.name(), values.city(), values.sku(), values.date(), values.phone()]

    assert drawn("chain-1") == drawn("chain-1")
    assert drawn("chain-1") != drawn("chain-2")


def test_other_tools_are_added_up_to_the_given_number() -> None:
    names = [tool_name(tool) for tool in tools_with(["get_stock"], SampleValues("a"), 7)]
    assert "get_stock" in names
    assert len(set(names)) == 7
    assert len(tools_with([*TOOLS], SampleValues("a"), 3)) == len(TOOLS)


def test_the_set_of_writing_tools_contains_cancel_order_but_not_get_stock() -> None:
    assert "cancel_order" in WRITING
    assert "get_stock" not in WRITING
