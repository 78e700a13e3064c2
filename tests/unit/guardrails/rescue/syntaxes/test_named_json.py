import pytest

from proxy.conversation.tools import WrittenCall
from proxy.guardrails.rescue.syntax import Calls, NotACall, Reason
from proxy.guardrails.rescue.syntaxes.named_json import (
    DEEPSEEK,
    DEEPSEEK_PLAIN,
    HARMONY,
    HARMONY_START,
    KIMI,
    PLAMO,
    SOLAR,
    NamedJson,
)
from tests.fakes.arrivals import read_syntax

BAR, LINE = "\uff5c", "\u2581"
BEGIN = f"<{BAR}tool{LINE}call{LINE}begin{BAR}>"
SEPARATOR = f"<{BAR}tool{LINE}sep{BAR}>"
END = f"<{BAR}tool{LINE}call{LINE}end{BAR}>"
ARGUMENTS = '{"dish": "soup"}'
PLAMO_TEXT = (
    "<|plamo:begin_tool_name:plamo|>cook<|plamo:end_tool_name:plamo|>"
    "<|plamo:begin_tool_arguments:plamo|><|plamo:constrain|>json<|plamo:msg|>"
    f"{ARGUMENTS}<|plamo:end_tool_arguments:plamo|><|plamo:end_tool_request:plamo|>"
)
CALL = WrittenCall("cook", {"dish": "soup"})


@pytest.mark.parametrize(
    ("syntax", "text"),
    [
        (
            KIMI,
            "<|tool_call_begin|> cook:0 <|tool_call_argument_begin|> "
            f"{ARGUMENTS} <|tool_call_end|>",
        ),
        (DEEPSEEK, f"{BEGIN}function{SEPARATOR}cook\n```json\n{ARGUMENTS}\n```{END}"),
        (DEEPSEEK, f"{BEGIN}cook{SEPARATOR}{ARGUMENTS}{END}"),
        (HARMONY, f"<|channel|>commentary to=functions.cook\n<|message|>{ARGUMENTS}\n<|call|>"),
        (HARMONY, f" to=functions.cook<|channel|>commentary json<|message|>{ARGUMENTS}<|call|>"),
        (HARMONY_START, f"to=functions.cook <|constrain|>json<|message|>{ARGUMENTS}<|end|>"),
        (PLAMO, PLAMO_TEXT),
    ],
)
def test_a_name_and_its_arguments_are_read(syntax: NamedJson, text: str) -> None:
    assert read_syntax(syntax, f"{text}rest") == (Calls((CALL,)), "rest")


def test_the_closing_mark_may_be_missing() -> None:
    text = f"<|tool_call_begin|>cook:0<|tool_call_argument_begin|>{ARGUMENTS}"
    assert read_syntax(KIMI, text) == (Calls((CALL,), closed=False), "")


def test_there_may_be_no_arguments() -> None:
    text = "<|tool_call_begin|>cook<|tool_call_argument_begin|><|tool_call_end|>"
    assert read_syntax(KIMI, text)[0] == Calls((WrittenCall("cook", {}),))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("<|tool_call_begin|>", Reason.NOT_A_CALL),
        ("<|tool_call_begin|>cook", Reason.NOT_A_CALL),
        ("<|tool_call_begin|>cook<|tool_call_argument_begin|>soup", Reason.NOT_A_CALL),
        ("<|tool_call_begin|>cook<|tool_call_argument_begin|>{soup}", Reason.BROKEN),
    ],
)
def test_anything_else_is_no_call(text: str, reason: Reason) -> None:
    assert read_syntax(KIMI, text)[0] == NotACall(reason)


@pytest.mark.parametrize(
    ("syntax", "text"),
    [
        (KIMI, f"<|tool_call_begin|>functions.cook:0{ARGUMENTS}<|tool_call_end|>"),
        (
            DEEPSEEK,
            f"<{BAR}tool{LINE}call{LINE}begin{BAR}>function<{BAR}tool{LINE}sep{BAR}>cook\n"
            f"{ARGUMENTS}<{BAR}tool{LINE}call{LINE}end{BAR}>",
        ),
        (
            DEEPSEEK_PLAIN,
            f"<|tool{LINE}call{LINE}begin|>cook<|tool{LINE}sep|>{ARGUMENTS}"
            f"<|tool{LINE}call{LINE}end|>",
        ),
        (
            SOLAR,
            f"<|tool_call:begin|>x1<|tool_call:name|>cook<|tool_call:args|>{ARGUMENTS}"
            "<|tool_call:end|>",
        ),
    ],
)
def test_marks_may_be_missing_or_spelled_otherwise(syntax: NamedJson, text: str) -> None:
    found, rest = read_syntax(syntax, text)
    assert isinstance(found, Calls)
    assert found.calls[0].name.removeprefix("functions.") == "cook"
    assert (found.calls[0].arguments, found.closed, rest) == (CALL.arguments, True, "")
