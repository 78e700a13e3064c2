from proxy.conversation import json
from temper_evals.scenarios.held_out.calendar import calendar
from temper_evals.scenarios.task import PlannedTask
from tests.unit.temper_evals.players import knowing, play


def free_times(task: PlannedTask) -> list[set[str]]:
    _, messages = play(task, knowing)
    results = [
        json.parse(str(message["content"])) for message in messages if message.get("role") == "tool"
    ]
    free = [result["free"] for result in results if isinstance(result, dict) and "free" in result]
    return [{*map(str, times)} for times in free if isinstance(times, list)]


def test_the_invitation_is_for_the_first_time_that_suits_everybody() -> None:
    for index in range(0, 40, 2):
        task = calendar(index)
        first = min(set.intersection(*free_times(task)))
        world, _ = play(task, knowing)
        assert [change.arguments["start"] for change in world.changes] == [first]


def test_a_used_room_leads_to_the_first_time_that_suits_the_room_too() -> None:
    for index in range(1, 40, 2):
        task = calendar(index)
        world, messages = play(task, knowing)
        contents = [str(message["content"]) for message in messages]
        (problem,) = (content for content in contents if "is taken at" in content)
        room = {*problem.partition("free at ")[2].removesuffix('"}').split(", ")}
        shared = set.intersection(*free_times(task))
        assert [change.arguments["start"] for change in world.changes] == [min(shared & room)]
        assert room - shared


def test_two_or_three_people_are_looked_up_at_once() -> None:
    assert {len(calendar(index).steps[0].calls) for index in range(9)} == {2, 3}
