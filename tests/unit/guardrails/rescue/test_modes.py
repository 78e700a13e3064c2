from collections.abc import Sequence

from proxy.conversation.tools import WrittenCall
from proxy.guardrails.formats.hermes import HERMES
from proxy.guardrails.rescue.findings import ArgumentsStarted, ArgumentsText
from proxy.guardrails.rescue.modes import Beginning, OpeningAttempt
from proxy.guardrails.rescue.syntax import Calls, NoCall, Reason, Syntax
from proxy.guardrails.rescue.syntaxes.plain_json import BARE_JSON
from proxy.guardrails.rescue.syntaxes.xml_tags import QWEN_CODER
from proxy.guardrails.rescue.values.cursor import Cursor

BOTH: Sequence[tuple[str, Syntax]] = (("<tool_call>", HERMES), ("<tool_call>", QWEN_CODER))


def test_the_first_candidate_that_finds_a_call_counts() -> None:
    cursor = Cursor("<tool_call>\n<function=now></function></tool_call> rest")
    attempt = OpeningAttempt(cursor, BOTH, ())
    assert attempt.resume() == Calls((WrittenCall("now", {}),))
    assert attempt.syntax.name == "qwen_coder"
    assert cursor.source() == "<tool_call>\n<function=now></function></tool_call>"


def test_a_candidate_gets_the_text_that_another_has_passed() -> None:
    cursor = Cursor("<tool_call>")
    attempt = OpeningAttempt(cursor, BOTH, ())
    for piece in ("\n ", "<func", "tion=now>", "</function></tool_call"):
        assert attempt.resume() is None
        cursor.feed(piece)
    cursor.feed(">")
    assert attempt.resume() == Calls((WrittenCall("now", {}),))


def test_if_none_finds_a_call_the_one_that_came_furthest_tells_why() -> None:
    cursor = Cursor('<tool_call> {"name": no')
    attempt = OpeningAttempt(cursor, BOTH, ())
    assert attempt.resume() is None
    cursor.feed("!")
    assert attempt.resume() == NoCall(Reason.BROKEN)
    assert cursor.source() == '<tool_call> {"name": no'
    assert attempt.is_marked


def test_arguments_are_announced_as_they_arrive() -> None:
    cursor = Cursor('<tool_call>{"name": "f", "arguments": {"a')
    attempt = OpeningAttempt(cursor, BOTH, ())
    assert attempt.resume() is None
    assert attempt.take_heard() == [ArgumentsStarted("f", is_marked=True), ArgumentsText('{"a')]
    cursor.feed("")
    assert attempt.resume() is None
    assert attempt.take_heard() == []
    cursor.feed('": 1}}</tool_call>')
    assert isinstance(attempt.resume(), Calls)
    assert attempt.take_heard() == [ArgumentsText('": 1}')]


def test_an_unmarked_call_to_a_tool_that_is_not_offered_is_not_announced() -> None:
    text = '{"name": "f", "arguments": {}}'
    for offered, count in (((), 0), (("f",), 2)):
        attempt = OpeningAttempt(Cursor(text, is_finished=True), [("{", BARE_JSON)], offered)
        assert isinstance(attempt.resume(), Calls)
        assert len(attempt.take_heard()) == count
        assert not attempt.is_marked


def test_the_words_before_a_call_say_what_it_is() -> None:
    assert Beginning(words="For example: ").is_example
    assert Beginning(words="You could send\n").is_account
    plain = Beginning(words="Let me look.\n")
    assert (plain.is_example, plain.is_account) == (False, False)
