import pytest

from proxy.conversation import json
from proxy.conversation.json import JsonValue
from proxy.conversation.tools import Tool
from proxy.facts import Healed
from proxy.guardrails.history_repair.tools import heal_tools


def tool(function: JsonValue) -> Tool:
    return Tool("f", True, json.dump({"type": "function", "function": function}))


def test_a_description_of_null_is_dropped() -> None:
    (healed,), facts = heal_tools((tool({"name": "f", "description": None, "strict": None}),))
    assert json.parse(healed.source) == {
        "type": "function",
        "function": {"name": "f", "strict": None},
    }
    assert facts == (Healed("description"),)


@pytest.mark.parametrize("function", [{"name": "f"}, {"name": "f", "parameters": None}, None])
def test_other_tools_stay_as_they_are(function: JsonValue) -> None:
    given = tool(function)
    (healed,), facts = heal_tools((given,))
    assert healed is given
    assert facts == ()
