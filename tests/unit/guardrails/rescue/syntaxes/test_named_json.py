import pytest

from proxy.conversation.tools import WrittenCall
from proxy.guardrails.rescue.findings import Prose
from proxy.guardrails.rescue.registry import find_syntax
from proxy.guardrails.rescue.scanner import Scanner, find_calls
from proxy.guardrails.rescue.syntax import Calls, NoCall, Reason, Syntax
from tests.fakes.arrivals import calls_found, read_syntax

DEEPSEEK = find_syntax("deepseek")
DEEPSEEK_PLAIN = find_syntax("deepseek_plain")
FUNCTIONARY = find_syntax("functionary")
FUNCTIONARY_HEADER = find_syntax("functionary_header")
FUNCTIONARY_IN_TEXT = find_syntax("functionary_in_text")
HARMONY = find_syntax("harmony")
HARMONY_START = find_syntax("harmony_start")
KIMI = find_syntax("kimi")
PLAMO = find_syntax("plamo")
SOLAR = find_syntax("solar")

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
def test_a_name_and_its_arguments_are_read(syntax: Syntax, text: str) -> None:
    assert read_syntax(syntax, f"{text}rest") == (Calls((CALL,)), "rest")


def test_the_closing_mark_may_be_missing() -> None:
    text = f"<|tool_call_begin|>cook:0<|tool_call_argument_begin|>{ARGUMENTS}"
    assert read_syntax(KIMI, text) == (Calls((CALL,), closed=False), "")


def test_there_may_be_no_arguments() -> None:
    text = "<|tool_call_begin|>cook<|tool_call_argument_begin|><|tool_call_end|>"
    assert read_syntax(KIMI, text)[0] == Calls((WrittenCall("cook", {}),))


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
def test_marks_may_be_missing_or_misspelled(syntax: Syntax, text: str) -> None:
    calls, rest = read_syntax(syntax, text)
    assert isinstance(calls, Calls)
    assert calls.calls[0].name.removeprefix("functions.") == "cook"
    assert (calls.calls[0].arguments, calls.closed, rest) == (CALL.arguments, True, "")


PING = '>>>ping\n{"host": "a"}'
FUNCTIONARY_CALL = WrittenCall("ping", {"host": "a"})


def test_a_name_and_an_object_follow_the_mark() -> None:
    assert read_syntax(FUNCTIONARY, PING) == (Calls((FUNCTIONARY_CALL,)), "")
    assert read_syntax(FUNCTIONARY, f"{PING}\n{PING} x") == (
        Calls((FUNCTIONARY_CALL, FUNCTIONARY_CALL)),
        "x",
    )


def test_missing_closing_brackets_leave_the_call_open() -> None:
    assert read_syntax(FUNCTIONARY, PING[:-1])[0] == Calls((FUNCTIONARY_CALL,), closed=False)


@pytest.mark.parametrize(
    ("syntax", "text", "reason"),
    [
        # Kimi
        (KIMI, "<|tool_call_begin|>", Reason.NOT_A_CALL),
        (KIMI, "<|tool_call_begin|>cook", Reason.NOT_A_CALL),
        (KIMI, "<|tool_call_begin|>cook<|tool_call_argument_begin|>soup", Reason.NOT_A_CALL),
        (KIMI, "<|tool_call_begin|>cook<|tool_call_argument_begin|>{soup}", Reason.BROKEN),
        # Functionary
        (FUNCTIONARY, ">>> ping()", Reason.NOT_A_CALL),
        (FUNCTIONARY, ">>>ping()", Reason.NOT_A_CALL),
        (FUNCTIONARY, ">>>all\nThe answer.", Reason.NOT_A_CALL),
        (FUNCTIONARY, ">>>", Reason.NOT_A_CALL),
        (FUNCTIONARY, '>>>ping\n{"host": "a', Reason.BROKEN),
        (FUNCTIONARY, f"{PING}>>>all\nThere.", Reason.NOT_A_CALL),
    ],
)
def test_other_text_is_no_call(syntax: Syntax, text: str, reason: Reason) -> None:
    assert read_syntax(syntax, text)[0] == NoCall(reason)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        (f"{PING}{PING}", 2),
        (f"Let me look.\n{PING}", 1),
        (f"Let me look.{PING}", 0),
        (f"{PING}\nis how it is written.", 0),
        (f"So:\n{PING}\n\nThat is all.", 0),
        (PING.replace("ping", "pong"), 0),
    ],
)
def test_it_counts_for_offered_tools_on_separate_lines_at_the_end(text: str, count: int) -> None:
    findings = find_calls(text, (FUNCTIONARY, FUNCTIONARY_IN_TEXT), ("ping",))
    assert sum(len(finding.calls) for finding in calls_found(findings)) == count


def test_a_trailing_bracket_of_a_chunk_is_not_held_back() -> None:
    scanner = Scanner((FUNCTIONARY, FUNCTIONARY_IN_TEXT), ("ping",))
    assert scanner.feed("a ->") == [Prose("a ->")]


@pytest.mark.parametrize("before", ["<|recipient|>", "<|from|>assistant\n<|recipient|>"])
def test_version_2_addressed_messages_to_tools(before: str) -> None:
    text = f'{before}look\n<|content|>{{"at": "x"}}'
    expected = Calls((WrittenCall("look", {"at": "x"}),))
    assert read_syntax(FUNCTIONARY_HEADER, f"{text}<|stop|>") == (expected, "<|stop|>")


@pytest.mark.parametrize("text", ["all\n<|content|>{}", "look {}", "look\n<|content|>Hi", "\n"])
def test_a_message_to_all_or_without_an_object_is_no_call(text: str) -> None:
    calls = read_syntax(FUNCTIONARY_HEADER, f"<|recipient|>{text}")[0]
    assert calls == NoCall(Reason.NOT_A_CALL)
