from msgspec.structs import replace

from proxy.conversation.tools import NamedTool
from proxy.conversation.workflows import Prerequisite, Workflow
from proxy.guardrails.offer import OfferedTools, TextPolicy
from proxy.guardrails.rescue.registry import order_syntaxes
from proxy.guardrails.transcript import CompletedCall, Loop
from tests.fakes.playbook import CLOCK, WEATHER, make_tool

OWN = make_tool("respond", {})
OFFER = OfferedTools((WEATHER, CLOCK), TextPolicy.RESPOND, order_syntaxes(()), OWN)


def test_the_respond_tool_is_offered_after_the_client_tools() -> None:
    assert OFFER.everything == (WEATHER, CLOCK, OWN)
    assert OFFER.callable_names == ("get_weather", "get_time", "respond")
    assert OFFER.is_respond("respond")


def test_only_client_tools_are_offered_if_there_is_no_respond_tool() -> None:
    offer = replace(OFFER, respond=None)
    assert offer.everything == (WEATHER, CLOCK)
    assert not offer.is_respond("respond")


def test_only_the_tool_that_the_tool_choice_names_is_offered() -> None:
    assert replace(OFFER, choice=NamedTool("get_time")).callable_names == ("get_time",)


def test_only_allowed_tools_and_the_respond_tool_may_be_called_and_are_due() -> None:
    offer = replace(OFFER, allowed=frozenset(("get_time",)))
    assert offer.due == (CLOCK, OWN)
    assert offer.everything == (WEATHER, CLOCK, OWN)
    assert [offer.may_call(tool.name) for tool in offer.everything] == [False, True, True]


def test_the_respond_tool_is_not_due_if_a_step_is_missing_or_the_choice_names_a_tool() -> None:
    assert replace(OFFER, choice=NamedTool("get_time")).due == (CLOCK,)
    workflow = Workflow(("get_time",), (), ("get_weather",))
    assert replace(OFFER, workflow=workflow).due == (CLOCK,)


def test_only_marked_syntaxes_are_read_if_the_answer_is_json() -> None:
    assert OFFER.readable_syntaxes == OFFER.syntaxes
    marked = replace(OFFER, answer_schema=True).readable_syntaxes
    assert marked
    assert all(syntax.is_marked for syntax in marked)


def test_an_answer_is_allowed_unless_a_call_is_required_or_a_step_is_missing() -> None:
    assert OFFER.may_answer
    assert not replace(OFFER, text_policy=TextPolicy.REQUIRE).may_answer
    assert not replace(OFFER, workflow=Workflow(("get_time",))).may_answer


def test_a_tool_is_free_if_no_workflow_or_loop_can_reject_its_calls() -> None:
    rules = Workflow(("read",), (Prerequisite("edit", "read"),), ("done",))
    offer = replace(OFFER, workflow=rules, loop=Loop("look", {}, 3))
    names = ("read", "edit", "done", "look", "go")
    assert [name for name in names if offer.is_free(name)] == ["read", "go"]
    read = CompletedCall("read", {}, "", has_failed=False)
    assert replace(offer, completed=(read,)).is_free("done")
