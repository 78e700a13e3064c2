import pytest

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from temper_evals.benchmarks.bfcl import BfclQuestion, UserTurn
from temper_evals.benchmarks.gold_model import GoldTurn, gold_setup
from temper_evals.loop import AgentLoop
from temper_evals.model_setups import SimulatedSetup
from temper_evals.runs import make_client
from temper_evals.scenarios.scenario import CallTools, GiveAnswer, PlannedCall
from temper_evals.scenarios.task import ExpectedEnd, PlannedStep
from temper_evals.scenarios.worlds import Setting

FIRST, SECOND = PlannedCall("cd", {"folder": "a"}), PlannedCall("ls", {})
TURN = GoldTurn(
    family="bfcl:multi_turn_base",
    index=0,
    user="",
    setting=Setting("c", (), {}, frozenset()),
    steps=(PlannedStep((FIRST,)), PlannedStep((SECOND,))),
    answer="Done.",
    expected=ExpectedEnd(),
    case="c-turn0",
    start=1,
)
USER: JsonObject = {"role": "user", "content": "Show me a."}


def executed_call(call: PlannedCall, result: str = "{}") -> list[JsonObject]:
    function: JsonObject = {"name": call.name, "arguments": json.dump_text(call.arguments)}
    calls: list[JsonValue] = [{"id": call.name, "type": "function", "function": function}]
    return [
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "tool", "tool_call_id": call.name, "content": result},
    ]


@pytest.mark.parametrize(
    ("messages", "progress", "tries", "due"),
    [
        ([], 0, 0, FIRST),
        ([{"role": "assistant", "content": "I go to a."}], 0, 1, FIRST),
        (executed_call(FIRST), 1, 0, SECOND),
        ([*executed_call(FIRST), *executed_call(FIRST)], 1, 1, SECOND),
        (executed_call(PlannedCall("cd", {"folder": "b"})), 1, 0, SECOND),
        (executed_call(PlannedCall("cd", {"folder": 1}), "Error during execution: x"), 0, 1, FIRST),
        (executed_call(FIRST, '{"error": "the right call may fail"}'), 1, 0, SECOND),
    ],
)
def test_position_returns_the_first_call_of_the_turn_that_was_not_executed(
    messages: list[JsonObject], progress: int, tries: int, due: PlannedCall
) -> None:
    position = TURN.position([USER, *messages])
    assert (position.progress, position.tries) == (progress, tries)
    assert position.action == CallTools((due,))


def test_position_returns_the_answer_after_all_calls_of_a_turn() -> None:
    calls = [*executed_call(FIRST), *executed_call(SECOND)]
    assert TURN.position([USER, *calls]).action == GiveAnswer("Done.")


async def test_the_gold_model_solves_a_question_of_bfcl() -> None:
    function: JsonObject = {
        "name": "math.add",
        "description": "Adds.",
        "parameters": {"type": "dict", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
    }
    entry: JsonObject = {"id": "simple_1", "question": [[USER]], "function": [function]}
    question = BfclQuestion("simple_python", entry, [{"math.add": {"a": ["", 2], "b": ["", 1]}}])
    setup = gold_setup(SimulatedSetup("healthy"), [question])
    world = question.world()
    async with setup.open(is_ceiling=False) as target, make_client() as client:
        run = await AgentLoop(client, target).run(setup.adapt(question), 0, world)
    assert world.calls == [PlannedCall("math_add", {"a": 2})]
    assert run.transcript[-1]["content"] == "That is done."
    usage = setup.usage_of("bfcl-simple_1/0")
    assert usage is not None
    assert usage.generations == 2


@pytest.mark.parametrize(("most", "replies"), [(8, 3), (2, 2), (1, 1)])
def test_the_calls_of_a_turn_are_distributed_over_as_many_steps_as_most_replies_allows(
    most: int, replies: int
) -> None:
    class Task:
        name, family = "c", "bfcl:multi_turn_base"
        turns = (UserTurn((USER,), (), (FIRST, SECOND, FIRST), most_replies=most),)

    case = gold_setup(SimulatedSetup("healthy"), [Task()]).find({"user": "c/3", "messages": [USER]})
    assert case is not None
    assert len(case.task.steps) == replies
    assert case.task.calls == (FIRST, SECOND, FIRST)
