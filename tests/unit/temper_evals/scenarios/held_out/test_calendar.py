from proxy.conversation import json
from temper_evals.scenarios.held_out.calendar import calendar
from temper_evals.scenarios.task import PlannedTask
from tests.unit.temper_evals.players import knowing, play


def free_times(task: PlannedTask) -> list[set[str]]:
    _, said = play(task, knowing)
    results = [json.parse(str(one["content"])) for one in said if one.get("role") == "tool"]
    found = [one["free"] for one in results if isinstance(one, dict) and "free" in one]
    return [{*map(str, one)} for one in found if isinstance(one, list)]


def test_the_invitation_is_for_the_first_time_that_suits_everybody() -> None:
    for index in range(0, 40, 2):
        task = calendar(index)
        first = min(set.intersection(*free_times(task)))
        world, _ = play(task, knowing)
        assert [one.arguments["start"] for one in world.changes] == [first]


def test_a_room_that_is_taken_leads_to_the_first_time_that_suits_the_room_as_well() -> None:
    for index in range(1, 40, 2):
        task = calendar(index)
        world, said = play(task, knowing)
        (problem,) = (str(one["content"]) for one in said if "is taken at" in str(one["content"]))
        room = {*problem.partition("free at ")[2].removesuffix('"}').split(", ")}
        shared = set.intersection(*free_times(task))
        assert [one.arguments["start"] for one in world.changes] == [min(shared & room)]
        assert room - shared


def test_two_or_three_people_are_looked_up_at_once() -> None:
    assert {len(calendar(index).steps[0].calls) for index in range(9)} == {2, 3}
