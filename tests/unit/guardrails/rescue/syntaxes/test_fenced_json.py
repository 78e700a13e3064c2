import pytest

from proxy.conversation.tools import WrittenCall
from proxy.guardrails.rescue.findings import Prose
from proxy.guardrails.rescue.registry import SYNTAXES
from proxy.guardrails.rescue.syntax import Calls, NotACall, Reason
from proxy.guardrails.rescue.syntaxes.bare_json import BareJson
from proxy.guardrails.rescue.syntaxes.fenced_json import FencedJson
from proxy.guardrails.rescue.syntaxes.hermes import Hermes
from proxy.guardrails.rescue.syntaxes.marked_json import MarkedJson
from proxy.guardrails.rescue.syntaxes.qwen_coder import QwenCoder
from tests.fakes.arrivals import chunkings, read_syntax, scan

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


MARKED = FencedJson(
    (Hermes(), QwenCoder(), MarkedJson("granite", ("<function_call>",)), BareJson())
)
TAGGED = "<tool_call><function=ping><parameter=host>```</parameter></function></tool_call>"


@pytest.mark.parametrize("language", ["", "xml", "json", "text"])
@pytest.mark.parametrize("body", [f"<tool_call>{PING}</tool_call>", TAGGED])
def test_a_marked_call_may_be_the_entire_content(language: str, body: str) -> None:
    result = read_syntax(MARKED, f"```{language}\n{body}\n```\n")
    assert result == (Calls((CALL,)), "")


def test_several_marked_calls_and_the_marks_that_leak_around_them_may_stand_in_a_fence() -> None:
    text = f"<|im_start|>{TAGGED}\n<tool_call>{PING}</tool_call>\n"
    text += f"<function_call>{PING}</function_call>"
    assert read_syntax(MARKED, f"```\n{text}\n```") == (Calls((CALL,) * 3), "")


@pytest.mark.parametrize(
    "body",
    [
        f"Like this: {TAGGED}",
        f"{TAGGED}\nor so",
        "<tool_call>oh</tool_call>",
        "<s>" * 9 + TAGGED,
        TAGGED * 30,
    ],
)
def test_a_marked_call_among_other_things_is_not_the_entire_content(body: str) -> None:
    outcome, rest = read_syntax(MARKED, f"```xml\n{body}\n```")
    assert isinstance(outcome, NotACall) or rest.strip("`\n") or not outcome.closed


@pytest.mark.parametrize("language", ["", "python", "tool_code"])
def test_a_list_of_python_calls_may_be_the_entire_content(language: str) -> None:
    result = read_syntax(FencedJson(), f"```{language}\n[ping(host='```')]\n```")
    assert result == (Calls((CALL,)), "")


def test_what_is_only_tried_in_a_fence_is_not_announced() -> None:
    text = "```<|channel|>commentary to=functions.ping<|constrain|>json<|message|>{>"
    for pieces in chunkings(text):
        assert scan(pieces, SYNTAXES, ["ping"]) == [Prose(text)]
