from proxy.conversation.replies import (
    TextDelta,
    ToolCallArgumentsDelta,
    ToolCalled,
)
from proxy.conversation.tools import ToolCall
from proxy.guardrails.schemas.arguments import Members
from proxy.inference.call_gate import ArgumentsGate
from proxy.inference.sent_answer import SentAnswer
from tests.fakes.playbook import WEATHER_SCHEMA

PARIS = ToolCall("a", "get_weather", '{"city": "Paris"}')
ROME = ToolCall("b", "get_weather", '{"city": "Rome"}')


def answer_with_open_call(arguments: str = '{"city": "Pa') -> SentAnswer:
    shown = SentAnswer()
    gate = ArgumentsGate(Members(WEATHER_SCHEMA))
    shown.start_call("a", "get_weather", gate.shown)
    gate.feed(arguments)
    return shown


def test_an_answer_has_begun_after_text_or_the_beginning_of_a_call() -> None:
    shown = SentAnswer()
    assert shown.show_text("") == []
    assert [shown.is_begun, bool(shown.show_text("Hi")), shown.is_begun] == [False, True, True]
    assert shown.show_text(".") == [TextDelta(".")]
    assert answer_with_open_call("").is_begun


def test_an_open_call_is_completed_by_arguments_that_begin_with_the_shown_text() -> None:
    shown = answer_with_open_call()
    assert shown.close_call(ROME.arguments) is None
    assert shown.close_call(PARIS.arguments) == [ToolCallArgumentsDelta(0, 'ris"}')]
    assert shown.open_call is None
    assert shown.calls == [PARIS]
    assert shown.close_call(PARIS.arguments) is None


def test_an_open_call_is_not_completed_by_a_call_that_was_shown_before() -> None:
    shown = SentAnswer()
    shown.complete_calls([PARIS])
    gate = ArgumentsGate(Members(WEATHER_SCHEMA))
    shown.start_call("b", "get_weather", gate.shown)
    assert not shown.admits([PARIS])
    assert shown.admits([PARIS, PARIS])


def test_of_two_matching_calls_the_call_with_the_same_id_completes_the_open_call() -> None:
    other = ToolCall("c", "get_weather", '{"city": "Palermo"}')
    shown = answer_with_open_call()
    assert shown.complete_calls((other, PARIS)) == [
        ToolCallArgumentsDelta(0, 'ris"}'),
        ToolCalled(1, other),
    ]


def test_calls_that_were_shown_are_not_repeated() -> None:
    shown = SentAnswer()
    assert shown.complete_calls([PARIS]) == [ToolCalled(0, PARIS)]
    assert shown.complete_calls([PARIS]) == []
    again = ToolCall("z", "get_weather", '{"city":"Paris"}')
    assert shown.complete_calls([again, ROME]) == [ToolCalled(1, ROME)]
    assert shown.complete_calls([again, again]) == [ToolCalled(2, again)]
