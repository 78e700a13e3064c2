import pytest
from msgspec.structs import replace

from proxy.conversation.replies import ReplyEvent, ToolCallArgumentsDelta, ToolCallStarted
from proxy.conversation.tools import NamedTool
from proxy.conversation.workflows import Prerequisite, Workflow
from proxy.guardrails.offer import OfferedTools, TextPolicy
from proxy.guardrails.respond import respond_tool
from proxy.guardrails.transcript import Loop
from proxy.inference.sent_answer import ShownAnswer
from proxy.inference.stream_gate.calls import CallsRelease
from tests.fakes.playbook import CLOCK, WEATHER

OFFER = OfferedTools((WEATHER, CLOCK), TextPolicy.AUTO, (), respond_tool(()))
PARIS = '{"city": "Paris"}'


def taken(release: CallsRelease, index: int, name: str, arguments: str) -> list[ReplyEvent]:
    shown = release.take(ToolCallStarted(index, f"id_{index}", name))
    for at in range(0, len(arguments), 4):
        shown += release.take(ToolCallArgumentsDelta(index, arguments[at : at + 4]))
    return shown


def make(offer: OfferedTools = OFFER) -> CallsRelease:
    return CallsRelease(offer, ShownAnswer())


def text_of(events: list[ReplyEvent], index: int) -> str:
    return "".join(
        event.text
        for event in events
        if isinstance(event, ToolCallArgumentsDelta) and event.index == index
    )


def test_a_call_is_shown_under_the_name_of_the_offered_tool() -> None:
    shown = taken(make(), 0, "functions.get-weather", PARIS)
    assert shown[0] == ToolCallStarted(0, "id_0", "get_weather")
    assert text_of(shown, 0) == '{"city": "Paris'


def test_an_alias_is_a_name_too() -> None:
    offer = replace(OFFER, aliases={"clock": "get_time"})
    assert taken(make(offer), 0, "clock", "") == [ToolCallStarted(0, "id_0", "get_time")]


@pytest.mark.parametrize(
    "offer",
    [
        replace(OFFER, tools=(CLOCK,)),
        replace(OFFER, choice=NamedTool("get_time")),
        replace(OFFER, allowed=frozenset(("get_time",))),
        replace(OFFER, loop=Loop("get_weather", {}, 3)),
        replace(OFFER, workflow=Workflow((), (Prerequisite("get_weather", "get_time"),))),
        replace(OFFER, workflow=Workflow(("get_time",), (), ("get_weather",))),
    ],
)
def test_a_name_waits_that_more_than_its_arguments_can_be_wrong_with(offer: OfferedTools) -> None:
    release = make(offer)
    assert taken(release, 0, "get_weather", PARIS) == []
    assert taken(release, 1, "get_time", "{}") == []  # and so does all that follows


def test_the_call_before_is_settled_before_the_next_is_shown() -> None:
    release = make()
    shown = taken(release, 0, "get_weather", PARIS)
    shown += taken(release, 1, "get_time", "{ }")
    assert text_of(shown, 0) == PARIS
    assert ToolCallStarted(1, "id_1", "get_time") in shown
    assert text_of(shown, 1) == "{"


@pytest.mark.parametrize(
    "arguments", ['{"city": "Par', '{"city": 3, "unit": "x"}', "{}", '{"city": "a", "city": "b"}']
)
def test_behind_a_call_that_is_not_right_everything_waits(arguments: str) -> None:
    release = make()
    taken(release, 0, "get_weather", arguments)
    assert taken(release, 1, "get_time", "{}") == []
    assert taken(release, 2, "get_time", "{}") == []


def test_behind_a_good_call_one_of_an_unknown_tool_waits() -> None:
    release = make()
    shown = taken(release, 0, "get_weather", PARIS) + taken(release, 1, "launch", "{}")
    assert text_of(shown, 0) == PARIS
    assert text_of(shown, 1) == ""


def test_where_one_call_is_wanted_only_the_first_is_shown() -> None:
    release = make(replace(OFFER, parallel=False))
    shown = taken(release, 0, "get_weather", PARIS) + taken(release, 1, "get_time", "{}")
    assert text_of(shown, 0) == PARIS
    assert text_of(shown, 1) == ""


def test_an_answer_by_the_synthetic_tool_is_no_call() -> None:
    release = make()
    assert taken(release, 0, "respond", '{"message": "Hi"}') == []
    assert taken(release, 1, "get_time", "")[0] == ToolCallStarted(0, "id_1", "get_time")


def test_fragments_of_a_call_that_is_not_shown_are_left_out() -> None:
    release = make()
    assert release.take(ToolCallArgumentsDelta(0, "{")) == []
    taken(release, 0, "get_time", "")
    assert release.take(ToolCallArgumentsDelta(3, "{")) == []
