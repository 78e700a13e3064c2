from proxy.conversation import json
from temper_evals.scenarios.held_out.calendar import calendar
from temper_evals.scenarios.task import PlannedTask
from tests.unit.temper_evals.players import follow_plan, play


def free_times(task: PlannedTask) -> list[set[str]]:
    _, messages = play(task, follow_plan)
    results = [
        json.parse(str(message["content"])) for message in messages if message.get("role") == "tool"
    ]
    free = [result["free"] for result in results if isinstance(result, dict) and "free" in result]
    return [{*map(str, times)} for times in free if isinstance(times, list)]


def test_the_invitation_is_at_the_first_time_that_all_people_have_free() -> None:
    for index in range(0, 40, 2):
        task = calendar(index)
        first = min(set.intersection(*free_times(task)))
        world, _ = play(task, follow_plan)
        assert [change.arguments["start"] for change in world.changes] == [first]


def test_if_the_room_is_taken_the_invitation_is_at_the_next_time_free_for_room_and_people() -> None:
    for index in range(1, 40, 2):
        task = calendar(index)
        world, messages = play(task, follow_plan)
        contents = [str(message["content"]) for message in messages]
        (problem,) = (content for content in contents if "is taken at" in content)
        room = {*problem.partition("free at ")[2].removesuffix('"}').split(", ")}
        people = set.intersection(*free_times(task))
        assert [change.arguments["start"] for change in world.changes] == [min(people & room)]
        assert room - people  # at some time the room is free, but not all people


def test_the_first_step_of_a_calendar_task_has_two_or_three_calls() -> None:
    assert {len(calendar(index).steps[0].calls) for index in range(9)} == {2, 3}
