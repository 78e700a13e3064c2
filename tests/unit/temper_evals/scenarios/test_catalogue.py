from temper_evals.scenarios.catalogue import TOOLS, WRITING, SampleValues, tools_with
from temper_evals.scenarios.worlds import tool_name


def test_an_instance_has_the_same_values_each_time() -> None:
    def drawn(instance: str) -> list[str]:
        values = SampleValues(instance)
        return [values.name(), values.city(), values.sku(), values.date(), values.phone()]

    assert drawn("chain-1") == drawn("chain-1")
    assert drawn("chain-1") != drawn("chain-2")


def test_needed_tools_are_mixed_with_others_up_to_a_number() -> None:
    names = [tool_name(tool) for tool in tools_with(["get_stock"], SampleValues("a"), 7)]
    assert "get_stock" in names
    assert len(set(names)) == 7
    assert len(tools_with([*TOOLS], SampleValues("a"), 3)) == len(TOOLS)


def test_only_tools_with_side_effects_are_in_the_list_of_writing_tools() -> None:
    assert "cancel_order" in WRITING
    assert "get_stock" not in WRITING
