import asyncio

import pytest

from proxy.agents.joined import JoinedTools
from proxy.rounds.executor import RoundContext
from tests.fakes.playbook import make_tool
from tests.fakes.rounds import called
from tests.fakes.turns import ScriptedTools

FIRST = (make_tool("add", {}), make_tool("show", {}))
SECOND = (make_tool("open_file", {}),)


def test_each_call_goes_to_whoever_offers_its_tool_and_results_come_in_their_order() -> None:
    one, other = ScriptedTools(FIRST, ["one"]), ScriptedTools(SECOND, ["other"])
    joined = JoinedTools([one, other])
    assert joined.specs() == (*FIRST, *SECOND)
    calls = [called(1), called(2, "open_file"), called(3, "show")]
    outcomes = asyncio.run(joined.execute(calls, RoundContext(7)))
    assert [outcome.call for outcome in outcomes] == calls
    assert [outcome.text for outcome in outcomes] == ["one", "other", "one"]
    assert one.contexts == other.contexts == [RoundContext(7)]


def test_calls_for_one_are_executed_together() -> None:
    one = ScriptedTools(FIRST, ["one"])
    outcomes = asyncio.run(
        JoinedTools([one]).execute([called(1), called(2, "show")], RoundContext())
    )
    assert len(outcomes) == 2
    assert len(one.contexts) == 1


def test_a_name_that_two_offer_is_refused() -> None:
    with pytest.raises(ValueError, match="'add'"):
        JoinedTools([ScriptedTools(FIRST, []), ScriptedTools(FIRST, [])])
