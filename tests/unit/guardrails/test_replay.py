import pytest

from proxy.conversation.json import JsonObject, JsonValue
from proxy.guardrails.replay import replay_thoughts
from tests.fakes.arrivals import is_linear
from tests.fakes.histories import call, called, history, result, said, written

HI = said("user", "Hi <think>x</think>", reasoning="kept")


def text(value: str) -> JsonValue:
    return {"type": "text", "text": value}


PLAYBOOK: list[tuple[JsonObject, JsonObject]] = [
    (said("assistant", "a", reasoning_content="x"), said("assistant", "a")),
    (said("assistant", "a", reasoning="x", thinking="y"), said("assistant", "a")),
    (called(call("c"), content=None, reasoning="x"), called(call("c"), content=None)),
    (called(call("c"), reasoning="x"), called(call("c"))),
    (said("assistant", "<think>\nx\n</think>\n\na"), said("assistant", "a")),
    (said("assistant", "<think>\n\n</think>\n\na"), said("assistant", "a")),
    (said("assistant", "[THINK]x[/THINK]a", name="y"), said("assistant", "a", name="y")),
    (said("assistant", "x\n</think>\n\na"), said("assistant", "a")),
    (
        called(call("c"), content="<|channel>thought\nx<channel|>"),
        called(call("c"), content=""),
    ),
    (
        said("assistant", [text("<think>x</think>a"), text("<think>b</think>")]),
        said("assistant", [text("a"), text("<think>b</think>")]),
    ),
    (
        said("assistant", [{"type": "thinking", "thinking": "x"}, text("a")]),
        said("assistant", [text("a")]),
    ),
    (said("assistant", [{"type": "reasoning"}], reasoning="x"), said("assistant", [])),
]
INTACT: list[JsonObject] = [
    HI,
    result("c", "<think>x</think>"),
    said("assistant", "a <think>b</think>"),
    said("assistant", 'the "thinking" member'),
    said("assistant", "a", reasoning_content=None),
    said("assistant", "reasoning", name="thinking"),
    said("assistant", [{"type": "image", "image": "thinking"}]),
    called(call("c"), content=None),
]


@pytest.mark.parametrize(("came", "went"), PLAYBOOK)
def test_thoughts_are_taken_out(came: JsonObject, went: JsonObject) -> None:
    assert written(replay_thoughts(history(came), "none")) == [went]


@pytest.mark.parametrize("message", INTACT)
def test_a_message_without_thoughts_stays_the_very_same(message: JsonObject) -> None:
    (given,) = history(message)
    (replayed,) = replay_thoughts((given,), "none")
    assert replayed is given


THOUGHTFUL = said("assistant", "a", reasoning_content="x")
PLAIN = said("assistant", "a")


@pytest.mark.parametrize(
    ("came", "went"),
    [
        ([HI, THOUGHTFUL, HI, THOUGHTFUL, THOUGHTFUL], [HI, PLAIN, HI, THOUGHTFUL, THOUGHTFUL]),
        ([THOUGHTFUL, HI], [PLAIN, HI]),
        ([THOUGHTFUL], [THOUGHTFUL]),
        ([], []),
    ],
)
def test_the_latest_thoughts_may_stay(came: list[JsonObject], went: list[JsonObject]) -> None:
    assert written(replay_thoughts(history(*came), "last")) == went


def test_all_thoughts_may_stay() -> None:
    messages = history(THOUGHTFUL, HI)
    assert replay_thoughts(messages, "full") is messages


@pytest.mark.parametrize("message", [THOUGHTFUL, said("assistant", "<think>x</think>a")])
def test_the_work_is_linear_in_the_history(message: JsonObject) -> None:
    messages = history(message)
    assert is_linear(
        lambda words: replay_thoughts(messages * len(words), "none"),
        lambda size: "x" * size,
        500,
    )
