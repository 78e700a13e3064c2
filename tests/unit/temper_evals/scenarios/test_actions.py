import pytest

from temper_evals.scenarios.actions import WISHES, make_wish
from temper_evals.scenarios.catalogue import TOOLS, SampleValues
from temper_evals.scenarios.worlds import objection


@pytest.mark.parametrize("name", WISHES)
def test_a_wish_contains_all_values_of_its_call_and_a_vague_wish_does_not(name: str) -> None:
    for seed in range(30):
        wish = make_wish(name, SampleValues(f"{name}-{seed}"))
        assert wish.call.name == name
        assert objection((TOOLS[name],), name, wish.call.arguments) is None
        values = [str(value) for value in wish.call.arguments.values()]
        assert [value for value in values if value not in wish.text] == []
        assert [value for value in values if value not in wish.vague] != []
