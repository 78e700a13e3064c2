from proxy.conversation import json
from temper_evals.scenarios.held_out.travel import travel
from tests.unit.temper_evals.players import knowing, play


def test_the_seat_is_in_the_train_that_arrives_first() -> None:
    for index in range(30):
        _, messages = play(travel(index), knowing)
        lists = [
            json.parse(str(message["content"]))
            for message in messages
            if message.get("role") == "tool"
        ]
        for trains in lists:
            if isinstance(trains, list):
                arrivals = {
                    str(train["arrives"]): train["train"]
                    for train in trains
                    if isinstance(train, dict)
                }
                assert any(str(arrivals[min(arrivals)]) in str(message) for message in messages)
                assert next(iter(arrivals)) != min(arrivals)


def test_a_seat_is_released_if_the_hotel_is_full_and_only_then() -> None:
    for index in range(30):
        world, _ = play(travel(index), knowing)
        made = [change.name for change in world.changes]
        kept = ["reserve_seat", "reserve_hotel"]
        assert made == (["reserve_seat", "release_seat", *kept] if index % 3 else kept)


def test_keeping_a_seat_that_must_be_released_is_wrong() -> None:
    task = travel(1)
    world, messages = play(task, knowing)
    world.changes = [change for change in world.changes if change.name != "release_seat"]
    assert "release_seat" in task.judge(world, messages).why
