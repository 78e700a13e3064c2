import pytest

from temper_evals.scenarios.actions import WISHES
from temper_evals.scenarios.catalogue import TOOLS, SampleValues
from temper_evals.scenarios.worlds import objection


@pytest.mark.parametrize("name", WISHES)
def test_a_wish_says_every_value_of_its_call_but_the_one_that_is_left_out(name: str) -> None:
    for seed in range(30):
        wish = WISHES[name](SampleValues(f"{name}-{seed}"))
        assert wish.call.name == name
        assert objection((TOOLS[name],), name, wish.call.arguments) is None
        values = [str(one) for one in wish.call.arguments.values()]
        assert [one for one in values if one not in wish.said] == []
        assert [one for one in values if one not in wish.vague] != []
