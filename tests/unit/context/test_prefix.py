import pytest

from proxy.context.prefix import PrefixBroken, compare, trace
from proxy.conversation.messages import Message, assistant_message, tool_result, user_message
from proxy.conversation.tools import Tool
from tests.unit.context.conversations import system_message

SYSTEM = system_message("Be brief.")
ONE, TWO, THREE = (user_message(text) for text in ("one", "two", "three"))
ANSWER = assistant_message("Yes.")
LOOK, RUN = (Tool(name, True, b'{"name": "%s"}' % name.encode()) for name in ("look", "run"))


def compare_prompts(before: tuple[Message, ...], now: tuple[Message, ...]) -> PrefixBroken | None:
    return compare(trace(before, (LOOK,)), trace(now, (LOOK,)))


@pytest.mark.parametrize("now", [(SYSTEM, ONE), (SYSTEM, ONE, ANSWER, TWO), (SYSTEM,)])
def test_compare_returns_none_if_one_prompt_is_a_prefix_of_the_other(
    now: tuple[Message, ...],
) -> None:
    assert compare_prompts((SYSTEM, ONE), now) is None


@pytest.mark.parametrize(
    ("before", "now", "expected_reason"),
    [
        ("It is 2026-10-05 12:30. Be brief.", "It is 2026-10-05 12:31. Be brief.", "21{time}"),
        ("Today: 3.10.2026", "Today: 4.10.2026", "7{time}"),
        ("Session 0a1b2c3d4e", "Session 0a1b2c3d4f", "17{id}"),
        ("Turn 7 of many", "Turn 8 of many", "5{number}"),
        ("Be brief.", "Be kind.", "3"),
        ("Be brief.", "Be brief. Please.", "9"),
    ],
)
def test_a_changed_system_prompt_is_reported_with_its_position(
    before: str, now: str, expected_reason: str
) -> None:
    change = compare_prompts((system_message(before), ONE), (system_message(now), ONE))
    causes = {
        "time": " (it seems to contain a timestamp)",
        "id": " (it seems to contain a generated id)",
        "number": " (it seems to contain a counter)",
    }
    changed = f"the system prompt changed at character {expected_reason.format(**causes)}"
    assert change == PrefixBroken(0, changed, "system")
    assert change.section == "the system prompt"


def test_the_reason_counts_the_messages_that_the_client_removed() -> None:
    change = compare_prompts((SYSTEM, ONE, ANSWER, TWO), (SYSTEM, TWO, ANSWER, THREE))
    removed = "the client removed 2 messages, starting with message 1"
    assert change == PrefixBroken(1, removed, "user")
    change = compare_prompts((SYSTEM, ONE, ANSWER), (SYSTEM, ANSWER))
    removed = "the client removed a message, starting with message 1"
    assert change == PrefixBroken(1, removed, "assistant")


def test_the_reason_counts_the_messages_that_were_inserted() -> None:
    change = compare_prompts((SYSTEM, ONE, ANSWER), (SYSTEM, TWO, ONE, ANSWER))
    assert change == PrefixBroken(1, "a message was inserted before message 1", "user")
    change = compare_prompts((SYSTEM, ONE), (SYSTEM, TWO, THREE, ONE))
    assert change == PrefixBroken(1, "2 messages were inserted before message 1", "user")


@pytest.mark.parametrize(
    ("before", "now", "role"),
    [(tool_result("a", "one"), tool_result("a", "two"), "tool"), (SYSTEM, ONE, "user")],
)
def test_the_reason_names_the_message_that_was_rewritten(
    before: Message, now: Message, role: str
) -> None:
    change = compare_prompts((SYSTEM, THREE, before), (SYSTEM, THREE, now))
    assert change == PrefixBroken(2, f"message 2 ({role}) was rewritten", role)
    assert change.section == f"message 2 ({role})"


@pytest.mark.parametrize(
    ("before", "now", "reason"),
    [
        ((LOOK,), (LOOK, RUN), "tools were added: run"),
        ((LOOK, RUN), (RUN,), "tools were removed: look"),
        (
            (LOOK,),
            (Tool("look", True, b'{"name": "Look"}'),),
            "the description of a tool changed: look",
        ),
        ((LOOK, RUN), (RUN, LOOK), "the order of the tools changed"),
    ],
)
def test_the_reason_names_the_tools_that_changed(
    before: tuple[Tool, ...], now: tuple[Tool, ...], reason: str
) -> None:
    change = compare(trace((ONE,), before), trace((TWO,), now))
    assert change == PrefixBroken(None, reason)
    assert change.section == "the tools"


def test_reordered_members_of_a_tool_are_a_difference_but_white_space_is_not() -> None:
    spaced = Tool("look", True, b'{\n  "name" : "l\\u006fok"\n}')
    assert compare(trace((ONE,), (LOOK,)), trace((ONE,), (spaced,))) is None
    named, turned = (Tool("t", True, source) for source in (b'{"a":1,"b":2}', b'{"b":2,"a":1}'))
    assert compare(trace((ONE,), (named,)), trace((ONE,), (turned,))) is not None
