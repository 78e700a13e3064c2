"""The fields that constrain what an engine writes, for one of which nothing more is known."""

from proxy.conversation.json import JsonObject
from proxy.conversation.requests import Parsing, Question
from proxy.conversation.tools import ToolUse


def directives(question: Question) -> JsonObject:
    """Return the fields that constrain an unknown engine's output.

    `required` is the only constraint that every engine knows; where tools are described in the
    prompt, a schema has to do.
    """
    if not question.tools:
        return answer_form(question)
    fields: JsonObject = {}
    if question.calls_singly and "parallel_tool_calls" not in question.request.fields:
        fields["parallel_tool_calls"] = False
    if question.schema is not None:
        return {**fields, "tool_choice": "required"}
    is_raw = question.parsing is Parsing.OURS or question.tool_choice is ToolUse.NONE
    return {**fields, "tool_choice": "none"} if is_raw else fields


def answer_form(question: Question) -> JsonObject:
    """Return the field that makes the whole output satisfy a question's schema, if it has one."""
    if question.schema is None:
        return {}
    schema: JsonObject = {"name": "tool_call", "schema": question.schema, "strict": True}
    return {"response_format": {"type": "json_schema", "json_schema": schema}}
