from collections.abc import Sequence

import pytest
from pydantic import TypeAdapter

from proxy.agents.joined import JoinedTools
from proxy.agents.model import Model
from proxy.agents.results import RunEvent
from proxy.agents.running import Task
from proxy.conversation import json
from proxy.conversation.messages import Message, assistant_message, tool_result, user_message
from proxy.conversation.tools import ToolUse
from proxy.conversation.workflows import Workflow
from proxy.errors import InvalidRequest
from proxy.tool_rounds.transcript import Conversation
from tests.fakes.playbook import CLOCK
from tests.fakes.rounds import called
from tests.fakes.turns import ScriptedTools

HISTORY = (
    user_message("Hi"),
    assistant_message("", (called(1),)),
    tool_result("call_1", "gone", failed=True),
)


async def ignore(_: RunEvent) -> None:
    pass


def task_of(messages: Sequence[Message] = (), **changed: object) -> Task[object]:
    return Task(
        model=Model("http://127.0.0.1:9", name="tiny"),
        tools=JoinedTools([ScriptedTools((CLOCK,), [])]),
        said=user_message("And now?"),
        conversation=Conversation(messages),
        emit=ignore,
        **changed,  # type: ignore[arg-type]
    )


def test_what_was_said_before_is_sent_with_all_that_is_known_of_it() -> None:
    request = task_of(HISTORY, instructions="Be brief.").request()
    system, *rest = request.messages
    assert (system.role, system.text) == ("system", "Be brief.")
    assert tuple(rest) == (*HISTORY, user_message("And now?"))
    assert "messages" not in request.fields


def test_a_request_says_what_the_agent_says() -> None:
    rules = Workflow(terminal_tools=("get_time",))
    more = {"temperature": 0.5, "tool_choice": "required"}
    request = task_of(workflow=rules, parameters=more).request()
    assert (request.model, request.workflow) == ("tiny", rules)
    assert [tool.name for tool in request.tools] == ["get_time"]
    assert json.split_array(request.fields["tools"]) == [CLOCK.source]
    assert (request.tool_choice, request.fields["temperature"]) == (ToolUse.REQUIRED, b"0.5")
    assert request.answer_schema is None


def test_an_output_is_the_schema_of_the_answer() -> None:
    request = task_of(output=TypeAdapter(list[int])).request()
    assert request.answer_schema == {"items": {"type": "integer"}, "type": "array"}


def test_parameters_that_are_none_of_a_request_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="max_tokens"):
        task_of(parameters={"max_tokens": "many"}).request()
