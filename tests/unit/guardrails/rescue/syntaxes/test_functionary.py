import pytest

from proxy.conversation.tools import WrittenCall
from proxy.guardrails.rescue.findings import Found, Prose
from proxy.guardrails.rescue.scanner import Scanner, find_calls
from proxy.guardrails.rescue.syntax import Calls, NotACall, Reason
from proxy.guardrails.rescue.syntaxes.functionary import (
    Functionary,
    FunctionaryHeader,
    FunctionaryInText,
)
from tests.fakes.arrivals import read_syntax

PING = '>>>ping\n{"host": "a"}'
CALL = WrittenCall("ping", {"host": "a"})


def test_a_name_and_an_object_stand_behind_the_mark() -> None:
    assert read_syntax(Functionary(), PING) == (Calls((CALL,)), "")
    assert read_syntax(Functionary(), f"{PING}\n{PING} x") == (Calls((CALL, CALL)), "x")


def test_brackets_missing_at_the_end_leave_the_call_open() -> None:
    assert read_syntax(Functionary(), PING[:-1])[0] == Calls((CALL,), closed=False)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (">>> ping()", Reason.NOT_A_CALL),
        (">>>ping()", Reason.NOT_A_CALL),
        (">>>all\nThe answer.", Reason.NOT_A_CALL),
        (">>>", Reason.NOT_A_CALL),
        ('>>>ping\n{"host": "a', Reason.BROKEN),
        (f"{PING}>>>all\nThere.", Reason.NOT_A_CALL),
    ],
)
def test_anything_else_is_no_call(text: str, reason: Reason) -> None:
    assert read_syntax(Functionary(), text)[0] == NotACall(reason)


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
def test_it_counts_for_offered_tools_on_lines_of_its_own_at_the_end(text: str, count: int) -> None:
    found = find_calls(text, (Functionary(), FunctionaryInText()), ("ping",))
    assert sum(len(one.calls) for one in found if isinstance(one, Found)) == count


def test_a_bracket_at_the_end_of_what_has_arrived_is_not_held_back() -> None:
    scanner = Scanner((Functionary(), FunctionaryInText()), ("ping",))
    assert scanner.feed("a ->") == [Prose("a ->")]


@pytest.mark.parametrize("before", ["<|recipient|>", "<|from|>assistant\n<|recipient|>"])
def test_version_2_addressed_messages_to_tools(before: str) -> None:
    text = f'{before}look\n<|content|>{{"at": "x"}}'
    found = Calls((WrittenCall("look", {"at": "x"}),))
    assert read_syntax(FunctionaryHeader(), f"{text}<|stop|>") == (found, "<|stop|>")


@pytest.mark.parametrize("text", ["all\n<|content|>{}", "look {}", "look\n<|content|>Hi", "\n"])
def test_a_message_to_all_or_without_an_object_is_no_call(text: str) -> None:
    found = read_syntax(FunctionaryHeader(), f"<|recipient|>{text}")[0]
    assert found == NotACall(Reason.NOT_A_CALL)
