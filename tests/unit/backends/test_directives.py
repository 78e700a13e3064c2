import pytest
from msgspec.structs import replace

from proxy.backends.directives import directives
from proxy.conversation.json import JsonObject
from proxy.conversation.requests import Parsing, Question
from proxy.conversation.tools import NamedTool, ToolUse
from tests.fakes.questions import question

SCHEMA: JsonObject = {"type": "object", "required": ["name"]}


@pytest.mark.parametrize(
    ("asked", "fields"),
    [
        (question(), {}),
        (question(tool_choice=ToolUse.REQUIRED), {}),
        (question(tool_choice=NamedTool("get_weather")), {}),
        (question(tool_choice=ToolUse.NONE), {"tool_choice": "none"}),
        (question(schema=SCHEMA, parsing=Parsing.OURS), {"tool_choice": "required"}),
        (
            question(tool_choice=ToolUse.REQUIRED, parsing=Parsing.OURS),
            {"tool_choice": "none"},
        ),
    ],
)
def test_an_unknown_engine_is_constrained_by_the_tool_choice_alone(
    asked: Question, fields: JsonObject
) -> None:
    assert directives(asked) == fields


@pytest.mark.parametrize(
    "asked", [question(has_tools=False), question(has_tools=False, parsing=Parsing.OURS)]
)
def test_without_tools_there_is_nothing_to_constrain(asked: Question) -> None:
    assert directives(asked) == {}


def test_where_tools_are_described_in_the_prompt_a_schema_has_to_do() -> None:
    assert directives(question(has_tools=False, schema=SCHEMA)) == {
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "tool_call", "schema": SCHEMA, "strict": True},
        }
    }


@pytest.mark.parametrize("tool_choice", [ToolUse.AUTO, ToolUse.NONE])
def test_a_model_that_calls_singly_is_asked_to_unless_the_client_decided(
    tool_choice: ToolUse,
) -> None:
    single = replace(question(tool_choice=tool_choice), calls_singly=True)
    assert directives(single)["parallel_tool_calls"] is False
    decided = {**single.request.fields, "parallel_tool_calls": b"true"}
    own = replace(single, request=replace(single.request, fields=decided))
    assert "parallel_tool_calls" not in directives(own)
