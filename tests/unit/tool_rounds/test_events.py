from proxy.conversation.messages import user_message
from proxy.tool_rounds.events import Added, RoundEvent, ToolFinished, ToolStarted
from tests.fakes.rounds import called, done


def test_what_is_told_of_a_round_names_its_number() -> None:
    call = called(1)
    told: list[RoundEvent] = [
        ToolStarted(call, 2),
        ToolFinished(done(call), 2),
        Added(user_message("Hi")),
    ]
    assert [one.round for one in told if not isinstance(one, Added)] == [2, 2]
