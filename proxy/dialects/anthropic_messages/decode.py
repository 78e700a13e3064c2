"""From the Messages language: a request, written in the language of backends.

The order of what is written is fixed, and values go as they were written. What nobody may lean on,
such as marks for the cache, leaves no trace: the same conversation always gives the same bytes.
"""

from collections.abc import Mapping
from typing import NamedTuple

from msgspec.structs import replace

from proxy.conversation.json import JsonSchema, JsonValue
from proxy.conversation.requests import Request, ThinkingOptions
from proxy.dialects.anthropic_messages.history import read_history
from proxy.dialects.anthropic_messages.schema import MessagesRequest
from proxy.dialects.anthropic_messages.table import FIELDS
from proxy.dialects.anthropic_messages.tools import ToolSet, choice_in
from proxy.dialects.foreign_history import write_answer_format, write_fields
from proxy.dialects.lenient_json import as_text, parse_object
from proxy.dialects.raw_json import Members, nodes_in, read_object
from proxy.dialects.temper_options import workflow_in
from proxy.dialects.wire_schema import check, schema_or_any
from proxy.errors import InvalidRequest
from proxy.facts import Fact, Omitted

# An answer that may be this long is given the room that it asks for; what is longer is a ceiling.
_SHORT = 1_024
_USUAL_SHARE = 0

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
    for name, member in value.items():
        if member:
            FIELDS.check(name, member)
    if checked.max_tokens is None and not is_count:
        raise InvalidRequest("Field required", "max_tokens")
    offered = ToolSet(nodes.elements("tools"))
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
        wants_stop=any(checked.stop_sequences or ()),
        shows_rounds=bool(checked.temper and checked.temper.tool_rounds),
        answer_schema=_answer_schema(checked),
        workflow=workflow_in(checked.temper, messages, tools),
        answer_reserve=None if limit is None or limit <= _SHORT else _USUAL_SHARE,
        session=_session_in(checked.metadata),
        thinking=_thinking(checked),
    )
    return DecodedMessages(
        replace(request, fields=_fields(request, nodes)),
        facts,
        shows_nothing=limit == 0,
        asks_for_edits=checked.context_management is not None,
    )


def _session_in(metadata: Mapping[str, JsonValue] | None) -> str:
    """Return what Claude Code writes into the id of the user; any other id may be a person's."""
    told = parse_object(as_text((metadata or {}).get("user_id")))
    return as_text((told or {}).get("session_id"))


def _thinking(checked: MessagesRequest) -> ThinkingOptions:
    """Read what is said of thoughts; what is `adaptive` is left to the model."""
    said, config = checked.thinking, checked.output_config
    effort = (None if config is None else config.effort) or ""
    if said is None or said.type not in _SWITCHES:
        return ThinkingOptions(effort=effort)
    is_on = _SWITCHES[said.type]
    return ThinkingOptions(is_on, effort, said.budget_tokens if is_on else None)


def _answer_schema(checked: MessagesRequest) -> JsonSchema | None:
    config = checked.output_config
    wanted = checked.output_format if config is None or config.format is None else config.format
    return None if wanted is None else schema_or_any(wanted.schema_)


def _fields(request: Request, nodes: Members) -> dict[str, bytes]:
    fields = write_fields(request, nodes, _COPIED)
    if request.stop_strings:
        fields["stop"] = nodes["stop_sequences"].source
    if request.answer_schema is not None:
        wanted = (nodes.inner("output_config").get("format") or nodes["output_format"]).members()
        described = {"schema": wanted["schema"].source} if "schema" in wanted else {}
        fields["response_format"] = write_answer_format({"name": b'"answer"', **described})
    return fields
