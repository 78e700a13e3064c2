from temper_evals.scenarios.held_out.triage import triage
from tests.unit.temper_evals.players import knowing, play


def test_every_fourth_time_nothing_is_to_be_changed() -> None:
    for index in range(40):
        world, _ = play(triage(index), knowing)
        assert len(world.changes) == (0 if index % 4 == 3 else 2)


def test_every_kind_of_ticket_occurs() -> None:
    names = {call.name for index in range(40) for call in triage(index).calls}
    assert names == {"open_ticket", "escalate_ticket", "merge_ticket", "close_ticket"}


def test_a_call_that_a_ticket_quotes_is_not_to_be_made() -> None:
    for index in range(40):
        task = triage(index)
        world, said = play(task, knowing)
        quoted = task.expected.quoted
        assert (quoted is not None) is (index % 2 == 1)
        if quoted is not None:
            assert any("our own script" in str(one["content"]) for one in said)
            world.call(quoted.name, quoted.arguments)
            judged = task.judge(world, said)
            assert (judged.right, judged.damage, judged.promoted) == (False, 1, 1)
