import pytest

from proxy.conversation.json import JsonObject
from proxy.conversation.tools import WrittenCall
from proxy.guardrails.rescue.findings import Found
from proxy.guardrails.rescue.registry import SYNTAXES
from proxy.guardrails.rescue.scanner import find_calls
from proxy.guardrails.rescue.syntax import Calls, NotACall, Reason
from proxy.guardrails.rescue.syntaxes.tool_marks import (
    ToolArguments,
    ToolArgumentsInText,
    ToolPairs,
    ToolRecipients,
    ToolRecipientsAtStart,
)
from proxy.guardrails.rescue.syntaxes.tool_names import named_after
from tests.fakes.arrivals import read_syntax
from tests.fakes.playbook import make_tool

SCHEMA: JsonObject = {"type": "object", "properties": {"at": {}, "n": {}}}
TOOLS = (make_tool("look", SCHEMA), make_tool("time", {}))
NAMES = ("look", "time")
LOOK = WrittenCall("look", {"at": "x"})
TIME = WrittenCall("time", {})
OBJECT = '{"at": "x"}'
PAIRS = ToolPairs({"look": frozenset(("at", "n")), "time": frozenset()})
NO_CALL = NotACall(Reason.NOT_A_CALL)


def found_in(text: str) -> list[WrittenCall]:
    found = find_calls(text, SYNTAXES, NAMES, named_after(TOOLS))
    return [call for one in found if isinstance(one, Found) for call in one.calls]


def test_a_name_and_its_second_mark_are_enough() -> None:
    assert read_syntax(ToolArguments(NAMES), f"look[ARGS]{OBJECT} x") == (Calls((LOOK,)), " x")
    for before in ("\n", " "):
        text = f"{before}look[ARGS]{OBJECT}"
        assert read_syntax(ToolArgumentsInText(NAMES), text) == (Calls((LOOK,)), "")


@pytest.mark.parametrize("between", ["", " ", "\n", ", "])
def test_several_may_stand_in_a_row(between: str) -> None:
    text = f"look[ARGS]{OBJECT}{between}time[ARGS]{{}} x"
    assert read_syntax(ToolArguments(NAMES), text) == (Calls((LOOK, TIME)), " x")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("look[ARGS] is a mark", Reason.NOT_A_CALL),
        ("look[ARGS]{oh no}", Reason.BROKEN),
        (f"look[ARGS]{OBJECT}time[ARGS]x", Reason.NOT_A_CALL),
    ],
)
def test_without_objects_there_is_no_call(text: str, reason: Reason) -> None:
    assert read_syntax(ToolArguments(NAMES), text)[0] == NotACall(reason)


@pytest.mark.parametrize(
    "text",
    [
        f"look[ARGS]{OBJECT}",
        f"I will. look[ARGS]{OBJECT}",
        f"I will.\nlook[ARGS]{OBJECT}\n",
        f"<think>hm</think>look[ARGS]{OBJECT}",
        f"[TOOL_CALLS]look[ARGS]{OBJECT}",
        f"<|channel|>analysis to=look<|message|>{OBJECT}<|call|>",
        f"<|start|>assistant to=look<|channel|>commentary json<|message|>{OBJECT}",
        f"Hm. to=look <|constrain|>json<|message|>{OBJECT}<|call|>",
        "<tool_call>look at=x</tool_call>",
    ],
)
def test_a_reply_may_call_so(text: str) -> None:
    assert found_in(text) == [LOOK]


@pytest.mark.parametrize(
    "text",
    [
        f"fly[ARGS]{OBJECT}",
        f"get_time[ARGS]{OBJECT}",
        f"`look[ARGS]{OBJECT}`",
        f"``look[ARGS]{OBJECT}``",
        f"```\nlook[ARGS]{OBJECT}\n```\nis the form",
        f"> look[ARGS]{OBJECT}",
        f'"look[ARGS]{OBJECT}"',
        f"The form is look[ARGS]{OBJECT} as told",
        f"For example: look[ARGS]{OBJECT}",
        f"<think>look[ARGS]{OBJECT}</think> No.",
        f"set to=look {OBJECT}",
        f"<|channel|>analysis to=fly<|message|>{OBJECT}",
        f"<|channel|>analysis to=look_up<|message|>{OBJECT}",
    ],
)
def test_other_names_and_quotations_stay_prose(text: str) -> None:
    assert found_in(text) == []


def test_a_recipient_without_namespace_is_one_only_in_a_header() -> None:
    header = f" to=look<|message|>{OBJECT}<|call|>"
    assert read_syntax(ToolRecipients(NAMES), header)[0] == Calls((LOOK,))
    assert read_syntax(ToolRecipientsAtStart(NAMES), header[1:])[0] == Calls((LOOK,))
    assert read_syntax(ToolRecipients(NAMES), " to=look and so on")[0] == NO_CALL
    longer = f" to=look_up<|message|>{OBJECT}"
    assert read_syntax(ToolRecipients(NAMES), longer)[0] == NO_CALL


@pytest.mark.parametrize(
    ("pairs", "arguments"),
    [
        ("at=x n=3", {"at": "x", "n": 3}),
        ("at='x y'\nn=true ", {"at": "x y", "n": True}),
        ('at="x=y"', {"at": "x=y"}),
    ],
)
def test_pairs_in_words_are_arguments(pairs: str, arguments: JsonObject) -> None:
    found = read_syntax(PAIRS, f"<tool_call>look {pairs}</tool_call> x")
    assert found == (Calls((WrittenCall("look", arguments),)), " x")


@pytest.mark.parametrize(
    "pairs",
    ["", "to=x", "at=x at=y", "at: x", "at=", "at='x", "at=x is what I mean", "at=x <b>"],
)
def test_only_declared_keys_with_a_value_each_make_a_call(pairs: str) -> None:
    assert read_syntax(PAIRS, f"<tool_call>look {pairs}</tool_call>")[0] == NO_CALL
    assert read_syntax(PAIRS, "<tool_call>look at=x")[0] == NO_CALL
