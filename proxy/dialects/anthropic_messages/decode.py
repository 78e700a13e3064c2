"""From the Messages language: a request, written in the language of backends.

The order of what is written is fixed, and values go as they were written. What nobody may lean on,
such as marks for the cache, leaves no trace: the same conversation always gives the same bytes.
"""

from collections.abc import Mapping
from typing import NamedTuple

from msgspec.structs import replace

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonSchema
from proxy.conversation.requests import Request, ThinkingOptions
from proxy.conversation.tools import ToolUse
from proxy.dialects.anthropic_messages.history import read_history
from proxy.dialects.anthropic_messages.schema import AnswerFormat, MessagesRequest
from proxy.dialects.anthropic_messages.table import FIELDS
from proxy.dialects.anthropic_messages.tools import ToolSet, choice_in, write_choice
from proxy.dialects.raw_json import Node, nodes_in, read_object
from proxy.dialects.temper_options import workflow_in
from proxy.dialects.wire_schema import check
from proxy.errors import InvalidRequest
from proxy.facts import Fact, Omitted

# An answer that may be this long is given the room that it asks for; what is longer is a ceiling.
_SHORT = 1_024
_USUAL_SHARE = 0

_ANY_OBJECT: JsonObject = {"type": "object"}
_SWITCHES = {"enabled": True, "disabled": False}
_COPIED = ("temperature", "top_p", "top_k", "temper")


class DecodedMessages(NamedTuple):
    """A request, what of it was left out, and what its answer has to heed.

    With `shows_nothing` the client only wants the prompt to be read; `asks_for_edits` reports that
    it wants to hear how its context was edited.
    """

    request: Request
    facts: tuple[Fact, ...]
    shows_nothing: bool
    asks_for_edits: bool


def decode_request(body: bytes, *, is_count: bool = False) -> DecodedMessages:
    """Read a request, or one whose tokens are to be counted; raises `InvalidRequest`."""
    value = read_object(body)
    checked = check(MessagesRequest, value)
    nodes = nodes_in(value, body)
    _refuse(value)
    if checked.max_tokens is None and not is_count:
        raise InvalidRequest("Field required", "max_tokens")
    offered = ToolSet(nodes["tools"].elements() if "tools" in nodes else ())
    messages, facts = read_history(nodes.get("system"), nodes["messages"], offered)
    if offered.has_search:
        facts = (Omitted("tool_search"), *facts)
    tools = offered.offered
    choice = choice_in(checked, tools)
    is_parallel = not (checked.tool_choice and checked.tool_choice.disable_parallel_tool_use)
    limit = checked.max_tokens
    request = Request(
        model=checked.model or "",
        messages=messages,
        fields={},
        tools=tools,
        tool_choice=choice,
        parallel_tool_calls=is_parallel,
        stream=bool(checked.stream),
        max_tokens=None if limit is None else max(1, limit),
        stop_strings=any(checked.stop_sequences or ()),
        answer_schema=_answer_schema(checked),
        workflow=workflow_in(checked.temper, messages, tools),
        answer_reserve=None if limit is None or limit <= _SHORT else _USUAL_SHARE,
        session=_session_in(checked.metadata),
        thinking=_thinking(checked),
    )
    return DecodedMessages(
        replace(request, fields=_fields(request, checked, nodes)),
        facts,
        shows_nothing=limit == 0,
        asks_for_edits=checked.context_management is not None,
    )


def _session_in(metadata: Mapping[str, object] | None) -> str:
    """Return what Claude Code writes into the id of the user; any other id may be a person's."""
    user_id = (metadata or {}).get("user_id")
    if not isinstance(user_id, str):
        return ""
    try:
        told = json.parse(user_id)
    except ValueError:
        return ""
    session = told.get("session_id") if isinstance(told, dict) else None
    return session if isinstance(session, str) else ""


def _refuse(body: JsonObject) -> None:
    for name, value in body.items():
        if value:
            FIELDS.check(name, value)


def _thinking(checked: MessagesRequest) -> ThinkingOptions:
    """Read what is said of thoughts; what is `adaptive` is left to the model."""
    said, config = checked.thinking, checked.output_config
    effort = (None if config is None else config.effort) or ""
    if said is None or said.type not in _SWITCHES:
        return ThinkingOptions(effort=effort)
    is_on = _SWITCHES[said.type]
    return ThinkingOptions(is_on, effort, said.budget_tokens if is_on else None)


def _format(checked: MessagesRequest) -> AnswerFormat | None:
    config = checked.output_config
    return checked.output_format if config is None or config.format is None else config.format


def _answer_schema(checked: MessagesRequest) -> JsonSchema | None:
    wanted = _format(checked)
    if wanted is None:
        return None
    return _ANY_OBJECT if wanted.schema_ is None else wanted.schema_


def _fields(
    request: Request, checked: MessagesRequest, nodes: Mapping[str, Node]
) -> dict[str, bytes]:
    """Write the members of the request, in an order that is always the same."""
    fields = {"model": nodes["model"].source} if "model" in nodes else {}
    fields["messages"] = json.join_array([message.source for message in request.messages])
    fields |= _tool_fields(request)
    if request.max_tokens is not None:
        fields["max_tokens"] = json.dump(request.max_tokens)
    if request.stop_strings:
        fields["stop"] = nodes["stop_sequences"].source
    fields |= {name: nodes[name].source for name in _COPIED if name in nodes}
    if request.answer_schema is not None:
        fields["response_format"] = _response_format(nodes)
    if request.stream:
        fields["stream"] = b"true"
    return fields


def _tool_fields(request: Request) -> dict[str, bytes]:
    fields: dict[str, bytes] = {}
    if request.tools:
        fields["tools"] = json.join_array([tool.source for tool in request.tools])
    if request.tool_choice is not ToolUse.AUTO:
        fields["tool_choice"] = write_choice(request.tool_choice)
    if not request.parallel_tool_calls:
        fields["parallel_tool_calls"] = b"false"
    return fields


def _response_format(nodes: Mapping[str, Node]) -> bytes:
    config = nodes["output_config"].members() if "output_config" in nodes else {}
    wanted = (config.get("format") or nodes["output_format"]).members()
    described = {"name": b'"answer"'}
    if "schema" in wanted:
        described["schema"] = wanted["schema"].source
    return json.join_object({"type": b'"json_schema"', "json_schema": json.join_object(described)})
