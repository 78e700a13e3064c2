from proxy.conversation import json
from temper_evals.scenarios.held_out.travel import travel
from tests.unit.temper_evals.players import knowing, play


def test_the_seat_is_in_the_train_that_arrives_first() -> None:
    for index in range(30):
        _, said = play(travel(index), knowing)
        lists = [json.parse(str(one["content"])) for one in said if one.get("role") == "tool"]
        for trains in lists:
            if isinstance(trains, list):
                arrivals = {
                    str(one["arrives"]): one["train"] for one in trains if isinstance(one, dict)
                }
                assert any(str(arrivals[min(arrivals)]) in str(one) for one in said)
                assert next(iter(arrivals)) != min(arrivals)


def test_a_seat_is_released_if_the_hotel_is_full_and_only_then() -> None:
    for index in range(30):
        world, _ = play(travel(index), knowing)
        made = [one.name for one in world.changes]
        kept = ["reserve_seat", "reserve_hotel"]
        assert made == (["reserve_seat", "release_seat", *kept] if index % 3 else kept)


def test_who_keeps_a_seat_that_is_to_be_released_is_wrong() -> None:
    task = travel(1)
    world, said = play(task, knowing)
    world.changes = [one for one in world.changes if one.name != "release_seat"]
    assert "release_seat" in task.judge(world, said).why
