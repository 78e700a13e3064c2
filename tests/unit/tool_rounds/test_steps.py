from proxy.tool_rounds.executor import RoundContext
from proxy.tool_rounds.steps import Ask, Execute, Step
from tests.fakes.playbook import make_request
from tests.fakes.rounds import called


def test_a_step_is_to_ask_the_model_or_to_execute_calls() -> None:
    steps: list[Step] = [Ask(make_request()), Execute((called(1),), RoundContext())]
    for step in steps:
        match step:
            case Ask(request, is_last):
                assert (request, is_last) == (make_request(), False)
            case Execute(calls, context):
                assert (calls, context) == ((called(1),), RoundContext())
