import pytest

from temper_evals.scenarios.actions import USER_REQUESTS, make_user_request
from temper_evals.scenarios.catalogue import TOOLS, SampleValues
from temper_evals.scenarios.worlds import objection


@pytest.mark.parametrize("name", USER_REQUESTS)
def test_text_of_a_request_contains_all_values_of_its_call_but_vague_lacks_some(
    name: str,
) -> None:
    for seed in range(30):
        request = make_user_request(name, SampleValues(f"{name}-{seed}"))
        assert request.call.name == name
        assert objection((TOOLS[name],), name, request.call.arguments) is None
        values = [str(value) for value in request.call.arguments.values()]
        assert [value for value in values if value not in request.text] == []
        assert [value for value in values if value not in request.vague] != []
