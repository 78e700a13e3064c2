from proxy.conversation import json
from temper_evals.scenarios.held_out.travel import travel
from tests.unit.temper_evals.players import follow_plan, play


def test_a_seat_is_reserved_in_the_train_that_arrives_first() -> None:
    for index in range(30):
        world, messages = play(travel(index), follow_plan)
        results = [
            json.parse(str(message["content"]))
            for message in messages
            if message.get("role") == "tool"
        ]
        for trains in results:
            if isinstance(trains, list):
                arrivals = {
                    str(train["arrives"]): train["train"]
                    for train in trains
                    if isinstance(train, dict)
                }
                first = str(arrivals[min(arrivals)])
                assert any(first in str(change.arguments) for change in world.changes)
                assert next(iter(arrivals)) != min(arrivals)


def test_the_seat_is_released_only_if_the_hotel_is_full() -> None:
    for index in range(30):
        world, _ = play(travel(index), follow_plan)
        changes = [change.name for change in world.changes]
        final = ["reserve_seat", "reserve_hotel"]
        assert changes == (["reserve_seat", "release_seat", *final] if index % 3 else final)


def test_keeping_a_seat_that_must_be_released_is_wrong() -> None:
    task = travel(1)
    world, messages = play(task, follow_plan)
    world.changes = [change for change in world.changes if change.name != "release_seat"]
    assert "release_seat" in task.judge(world, messages).why
