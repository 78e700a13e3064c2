from temper_evals.scenarios import stepping


def test_each_later_step_of_a_chain_task_needs_a_value_that_only_a_result_contains() -> None:
    for index in range(6):
        task = stepping.chain(index)
        assert all(step.needs for step in task.steps[1:])
        assert not any(need in task.user for step in task.steps for need in step.needs)


def test_tasks_of_the_family_branch_end_with_reorder_article_or_create_task() -> None:
    ends = {stepping.branch(index).calls[-1].name for index in range(20)}
    assert ends == {"reorder_article", "create_task"}


def test_two_of_three_tasks_of_the_family_failing_have_a_call_after_the_failed_call() -> None:
    assert [len(stepping.failing(index).calls) for index in range(3)] == [2, 2, 1]


def test_the_last_step_of_a_long_task_needs_a_value_of_the_first_result() -> None:
    task = stepping.long(0)
    assert len(task.steps) > 30
    results = [str(outcomes[0].result) for outcomes in task.setting.outcomes.values()]
    need = task.steps[-1].needs[0]
    assert need in results[0]
    assert not any(need in result for result in results[1:])
    assert sum(map(len, results)) > 4 * 8192
    assert "\n" in str(next(iter(stepping.long(1).setting.outcomes.values()))[0].result)
