from temper_evals.scenarios.building import TaskBuilder
from temper_evals.scenarios.catalogue import TOOLS
from temper_evals.scenarios.scenario import PlannedCall
from temper_evals.scenarios.task import ExpectedEnd
from tests.unit.temper_evals.players import follow_plan, judged


def test_a_built_task_has_its_steps_and_an_answer_with_all_facts() -> None:
    builder = TaskBuilder("made", 1, (TOOLS["get_stock"], TOOLS["reorder_article"]))
    builder.step(builder.returns("get_stock", {"sku": "a-1"}, {"in_stock": 3}))
    order = PlannedCall("reorder_article", {"sku": "a-1", "quantity": 3})
    builder.change(order, needs=['"in_stock":3'])
    task = builder.done("Order as many of a-1 as there are.", ExpectedEnd(("a-1",)))
    assert task.name == builder.name == "made-1"
    assert len(task.expected.facts) == 2
    assert all(fact in task.answer for fact in task.expected.facts)
    assert task.limit == 14
    assert judged(task, follow_plan).right
