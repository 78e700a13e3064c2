import pytest

from proxy.conversation.tools import WrittenCall
from proxy.guardrails.rescue.findings import Found
from proxy.guardrails.rescue.scanner import find_calls
from proxy.guardrails.rescue.syntax import Calls, NotACall, Reason
from proxy.guardrails.rescue.syntaxes.react import ReAct, ReActContract
from tests.fakes.arrivals import read_syntax

PING = 'Action: ping\nAction Input: {"host": "a"}'
CALL = WrittenCall("ping", {"host": "a"})


def test_an_action_is_a_call() -> None:
    assert read_syntax(ReAct(), f"{PING}\n") == (Calls((CALL,)), "")
    assert read_syntax(ReAct(), 'Action:ping\n\nAction Input:\n{"host": "a"}') == (
        Calls((CALL,)),
        "",
    )


def test_several_actions_may_follow_one_another() -> None:
    assert read_syntax(ReAct(), f"{PING}\n{PING}")[0] == Calls((CALL, CALL))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("Action: none", Reason.NOT_A_CALL),
        ("Action: ", Reason.NOT_A_CALL),
        ("Action: ping\nAction Input: a", Reason.NOT_A_CALL),
        ("Action: ping\nInput: {}", Reason.NOT_A_CALL),
        ('Action: ping\nAction Input: {"host": "a', Reason.BROKEN),
        (f"{PING}\nAction: Finish", Reason.NOT_A_CALL),
    ],
)
def test_anything_else_is_no_call(text: str, reason: Reason) -> None:
    assert read_syntax(ReAct(), text)[0] == NotACall(reason)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        (f"Thought: I have to look.\n{PING}", 1),
        (f"Then {PING}", 0),
        (f"{PING}\nObservation: 3 ms", 0),
        (PING.replace("ping", "pong"), 0),
    ],
)
def test_it_counts_for_offered_tools_on_lines_of_its_own_at_the_end(text: str, count: int) -> None:
    found = find_calls(text, (ReAct(),), ("ping",))
    assert sum(isinstance(one, Found) for one in found) == count


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        (PING, (CALL,)),
        (f"{PING}\n{PING}\n", (CALL, CALL)),
        ('Action: ping\nAction Input: ```json\n{"host": "a"}\n```\n', (CALL,)),
        ("Action: ping", (WrittenCall("ping", {}),)),
        ("Action: ping\nAction Input:\n", (WrittenCall("ping", {}),)),
    ],
)
def test_a_model_that_was_asked_for_actions_is_read_more_kindly(
    text: str, calls: tuple[WrittenCall, ...]
) -> None:
    assert read_syntax(ReActContract(), text) == (Calls(calls), "")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("Action: \n", Reason.NOT_A_CALL),
        ("Action: ping\nAction Input: a", Reason.BROKEN),
        ("Action: ping the host", Reason.BROKEN),
        ('Action: ping\nAction Input: {"host": "a', Reason.BROKEN),
    ],
)
def test_what_it_broke_it_has_to_mend(text: str, reason: Reason) -> None:
    assert read_syntax(ReActContract(), text)[0] == NotACall(reason)
