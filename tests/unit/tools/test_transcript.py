import pytest

from proxy.conversation import json
from proxy.conversation.json import JsonObject
from proxy.conversation.messages import assistant_message, tool_result, user_message
from proxy.errors import InvalidRequest
from proxy.tools.executor import Outcome, Round, Status
from proxy.tools.transcript import Conversation, Exchanged
from tests.fakes.rounds import called

SYSTEM: JsonObject = {"role": "system", "content": "Be brief."}
HISTORY = (
    user_message("What is 1 + 2?"),
    assistant_message("Let me see.", (called(1), called(2)), reasoning="Sum."),
    tool_result("call_1", "3", failed=False),
    tool_result("call_2", "gone", failed=True),
    assistant_message("3", ()),
)


def test_messages_have_the_chat_api_format() -> None:
    talk = Conversation.of([SYSTEM, {"role": "user", "content": "Hi"}])
    assert talk.messages == (SYSTEM, {"role": "user", "content": "Hi"})
    assert [message.text for message in talk.history] == ["Be brief.", "Hi"]
    assert len(Conversation.of([])) == 0


def test_an_invalid_message_is_refused() -> None:
    with pytest.raises(InvalidRequest):
        Conversation.of([{"role": "user", "content": 7}])


def test_a_string_instead_of_a_list_of_messages_is_refused() -> None:
    with pytest.raises(TypeError, match="a list of messages"):
        Conversation.of("Hello.")  # type: ignore[arg-type]


def test_a_conversation_is_dumped_as_lines_and_loaded_again() -> None:
    talk = Conversation(HISTORY)
    lines = talk.dump()
    assert len(lines.splitlines()) == len(talk) == 5
    assert b'"failed":true' in lines
    again = Conversation.load(lines + b"\n")
    assert again.history == talk.history
    assert again.dump() == lines


@pytest.mark.parametrize("line", [b"[]", b"{", b'{"role": 3}'])
def test_load_refuses_a_line_that_is_not_a_message(line: bytes) -> None:
    with pytest.raises(InvalidRequest):
        Conversation.load(line)


def test_turns_contain_the_prompt_and_the_rounds_with_outcomes_and_the_answer() -> None:
    done = Outcome(called(1), "3")
    failed = Outcome(called(2), "gone", Status.FAILED)
    exchange = Exchanged("What is 1 + 2?", (Round("Let me see.", (done, failed)),), "3")
    assert Conversation(HISTORY).turns() == (exchange,)


def test_turns_are_separated_by_user_messages() -> None:
    talk = Conversation.of(
        [
            SYSTEM,
            {"role": "user", "content": "One"},
            {"role": "user", "content": "more"},
            {"role": "assistant", "content": "Two"},
            {"role": "user", "content": "Bye"},
        ]
    )
    assert talk.turns() == (Exchanged("One\nmore", (), "Two"), Exchanged("Bye"))


def test_rounds_are_distinguished_although_their_calls_share_an_id() -> None:
    messages = (assistant_message("", (called(1),)), tool_result("call_1", "Error: no"))
    again = (assistant_message("", (called(1), called(2))), tool_result("call_1", "3"))
    (turn,) = Conversation((user_message("Hi"), *messages, *again)).turns()
    assert [
        [(outcome.text, outcome.status) for outcome in tool_round.outcomes]
        for tool_round in turn.rounds
    ] == [
        [("Error: no", Status.FAILED)],
        [("3", Status.DONE), ("There is no result.", Status.LOST)],
    ]
    assert turn.answer == ""


def test_appending_to_a_fork_does_not_change_the_original() -> None:
    talk = Conversation(HISTORY)
    fork = talk.fork(1)
    with fork.hold() as append:
        append(user_message("Again"))
    assert [len(transcript) for transcript in (talk, fork, talk.fork())] == [5, 2, 5]


def test_a_second_run_on_a_conversation_is_refused_until_the_first_ends() -> None:
    talk = Conversation()
    with talk.hold() as append:
        append(user_message("Hi"))
        with pytest.raises(RuntimeError, match="fork"), talk.hold():
            pass
    with talk.hold() as append:
        append(user_message("Ho"))
    assert [message.text for message in talk.history] == ["Hi", "Ho"]


def test_a_message_keeps_all_its_fields() -> None:
    talk = Conversation.of([{"role": "user", "content": "ü", "name": "x"}])
    assert json.parse(talk.history[0].source) == {"role": "user", "content": "ü", "name": "x"}
