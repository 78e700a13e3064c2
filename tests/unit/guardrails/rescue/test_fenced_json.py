import pytest

from proxy.conversation.tools import WrittenCall
from proxy.guardrails.rescue.fenced_json import FencedJson
from proxy.guardrails.rescue.syntax import Calls, NotACall, Reason
from tests.fakes.arrivals import read_syntax

PING = '{"name": "ping", "parameters": {"host": "```"}}'
CALL = WrittenCall("ping", {"host": "```"})


@pytest.mark.parametrize("language", ["", "json", "tool_call"])
def test_a_fence_is_read_up_to_its_end(language: str) -> None:
    result = read_syntax(FencedJson(), f"```{language}\n{PING}\n```\nrest")
    assert result == (Calls((CALL,)), "rest")


def test_fences_may_follow_one_another() -> None:
    result = read_syntax(FencedJson(), f"```json\n{PING}\n```\n\n```json\n[{PING}]\n```")
    assert result == (Calls((CALL, CALL)), "")


def test_the_end_of_the_last_fence_may_be_missing() -> None:
    result = read_syntax(FencedJson(), f"```json\n{PING}\n")
    assert result == (Calls((CALL,), closed=False), "")


@pytest.mark.parametrize(
    "text",
    [
        "```python\nprint(1)\n```",
        "````",
        "``` text",
        '```json\n{"host": "a"}\n```',
        f"```json\n{PING}\n```\n```python\nprint(1)\n```",
        f"```json\n{PING}\n```\n```json\nnothing\n```",
    ],
)
def test_other_code_is_no_call(text: str) -> None:
    assert read_syntax(FencedJson(), text)[0] == NotACall(Reason.NOT_A_CALL)


def test_a_fence_may_hold_python_calls_if_it_says_so() -> None:
    result = read_syntax(FencedJson(), '```tool_code\nprint(ping(host="a"))\n```')
    assert result == (Calls((WrittenCall("ping", {"host": "a"}),)), "")
    assert read_syntax(FencedJson(), "```tool_code\nx = 1\n```")[0] == NotACall(Reason.NOT_A_CALL)
