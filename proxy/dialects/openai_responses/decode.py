"""From a request for a response to the one that backends get, and the terms of its answer."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonSchema, JsonValue
from proxy.conversation.messages import Message
from proxy.conversation.requests import Request, ThinkingOptions
from proxy.conversation.tools import ToolUse
from proxy.dialects.front import Sender
from proxy.dialects.openai_responses.items import ItemReader
from proxy.dialects.openai_responses.response import AnswerTerms, echo_of
from proxy.dialects.openai_responses.schema import ResponseRequest, TextFormat, validate
from proxy.dialects.openai_responses.store import ResponseStore
from proxy.dialects.openai_responses.table import FIELDS
from proxy.dialects.openai_responses.tools import ToolTable, ToolUseChoice, read_choice
from proxy.dialects.raw_json import Node, nodes_in, read_object
from proxy.dialects.temper_options import workflow_in
from proxy.errors import InvalidRequest, PreviousResponseUnknown
from proxy.facts import Fact

_UNKNOWN_ITEM = (
    "The item {id!r} is not stored. Send the item itself, and `store: false` if your client sends "
    "references by default."
)
_NOTHING = "Send a string, or an array of items."


class Inputs(NamedTuple):
    """All items in their order, and those that the request itself has brought, as JSON."""

    items: list[Node]
    own: list[bytes]


def read_inputs(fields: Mapping[str, Node], store: ResponseStore | None, owner: str) -> Inputs:
    """Read the items; raises `InvalidRequest` where there are none, or one cannot be found."""
    own = [_resolve(node, store, owner) for node in _own_items(fields.get("input"))]
    earlier = _earlier_items(fields.get("previous_response_id"), store, owner)
    if not own and not earlier and "instructions" not in fields:
        raise InvalidRequest(_NOTHING, "input")
    return Inputs([*earlier, *own], [node.source for node in own])


def add_ids(items: Sequence[bytes], response_id: str) -> list[bytes]:
    """Give each item of a request an id by which it can be referred to, unless it has one."""
    token = response_id.removeprefix("resp_")
    return [_with_id(item, f"item_{token}_{place}") for place, item in enumerate(items)]


def _with_id(item: bytes, item_id: str) -> bytes:
    members = json.split_object(item)
    if members.get("id", b"null") != b"null":
        return item
    return json.join_object({**members, "id": json.dump(item_id)})


def _own_items(given: Node | None) -> list[Node]:
    if given is None:
        return []
    if not given.is_text:
        return given.elements()
    message = {"type": b'"message"', "role": b'"user"', "content": given.source}
    value: JsonValue = {"type": "message", "role": "user", "content": given.value}
    return [Node(value, json.join_object(message), given.path)]


def _resolve(node: Node, store: ResponseStore | None, owner: str) -> Node:
    """Replace a reference to an item by the item."""
    if not isinstance(node.value, dict) or node.value.get("type") != "item_reference":
        return node
    told = node.value.get("id")
    item_id = told if isinstance(told, str) else ""
    found = None if store is None else store.item(owner, item_id)
    if found is None:
        raise InvalidRequest(_UNKNOWN_ITEM.format(id=item_id), f"{node.path}.id")
    return Node(json.parse(found), found, node.path)


def _earlier_items(named: Node | None, store: ResponseStore | None, owner: str) -> list[Node]:
    if named is None:
        return []
    response_id = named.text().text
    earlier = None if store is None else store.history(owner, response_id)
    if earlier is None:
        raise PreviousResponseUnknown(response_id)
    return [
        Node(json.parse(source), source, f"{named.path}.{position}")
        for position, source in enumerate(earlier)
    ]


_ENCRYPTED, _LOGPROBS = "reasoning.encrypted_content", "message.output_text.logprobs"
_TURN_METADATA = "x-codex-turn-metadata"
_NO_TOOLS = ToolUseChoice(ToolUse.AUTO, b'"auto"')
_ANY_OBJECT: JsonObject = {"type": "object"}
# To local models, the least effort is not to think at all.
_NO_EFFORT = ("none", "minimal")
_CARRIED = ("temperature", "top_p", "prompt_cache_key", "temper")


class DecodedRequest(NamedTuple):
    """A request as it was read; `inputs` are the items that it has brought itself."""

    request: Request
    terms: AnswerTerms
    inputs: list[bytes]
    facts: tuple[Fact, ...]
    compaction: bool | None
    accepts_prose: bool


class _PromptParts(NamedTuple):
    """What goes into the prompt."""

    messages: tuple[Message, ...]
    table: ToolTable
    inputs: list[bytes]


def decode_request(body: bytes, sender: Sender, store: ResponseStore | None) -> DecodedRequest:
    """Read a request; raises `InvalidRequest`."""
    value = read_object(body)
    checked, fields = validate(value), nodes_in(value, body)
    _refuse(fields)
    facts: list[Fact] = []
    said = _conversation(fields, sender, store, facts)
    choice = read_choice(fields.get("tool_choice"), said.table)
    request = _request(checked, fields, said, choice or _NO_TOOLS)
    include = checked.include or []
    thoughts = checked.reasoning
    terms = AnswerTerms(
        request.model,
        echo_of({name: node.source for name, node in fields.items()}),
        said.table.origins,
        is_stored=store is not None and checked.store is not False,
        summarizes=thoughts is not None and bool(thoughts.summary or thoughts.generate_summary),
        signs=_ENCRYPTED in include,
    )
    return DecodedRequest(
        request,
        terms,
        said.inputs,
        tuple(facts),
        None if checked.truncation is None else checked.truncation == "auto",
        not request.tools or _is_compaction(sender),
    )


def _refuse(fields: Mapping[str, Node]) -> None:
    for name, node in fields.items():
        if node.value is not False:
            FIELDS.check(name, node.value)


def _conversation(
    fields: Mapping[str, Node], sender: Sender, store: ResponseStore | None, facts: list[Fact]
) -> _PromptParts:
    inputs = read_inputs(fields, store, sender.owner)
    table = ToolTable(facts)
    table.offer(fields.get("tools"))
    reader = ItemReader(table, facts)
    if "instructions" in fields:
        reader.instruct(fields["instructions"].text())
    for node in inputs.items:
        reader.read(node)
    table.check()
    messages = reader.messages()
    if not messages:
        raise InvalidRequest("Nothing in it is for the model to read.", "input")
    return _PromptParts(messages, table, inputs.own)


def _request(
    checked: ResponseRequest, fields: Mapping[str, Node], said: _PromptParts, choice: ToolUseChoice
) -> Request:
    messages, tools = said.messages, said.table.tools
    written = {"model": fields["model"].source} if "model" in fields else {}
    written["messages"] = json.join_array([message.source for message in messages])
    if tools:
        written["tools"] = json.join_array([tool.source for tool in tools])
        if "tool_choice" in fields:
            written["tool_choice"] = choice.source
        if "parallel_tool_calls" in fields:
            written["parallel_tool_calls"] = fields["parallel_tool_calls"].source
    written |= _options(checked, fields)
    return Request(
        model=checked.model or "",
        messages=messages,
        fields=written,
        tools=tools,
        tool_choice=choice.use,
        parallel_tool_calls=checked.parallel_tool_calls is not False,
        stream=bool(checked.stream),
        max_tokens=checked.max_output_tokens,
        answer_schema=_answer_schema(_format(checked)),
        workflow=workflow_in(checked.temper, messages, tools),
        allowed_tools=choice.allowed,
        thinking=_thinking(checked),
    )


def _options(checked: ResponseRequest, fields: Mapping[str, Node]) -> dict[str, bytes]:
    """Write what else a backend is told."""
    written = {name: fields[name].source for name in _CARRIED if name in fields}
    if "stream" in fields:
        written["stream"] = fields["stream"].source
    if "max_output_tokens" in fields:
        written["max_tokens"] = fields["max_output_tokens"].source
    if checked.top_logprobs or _LOGPROBS in (checked.include or []):
        written["logprobs"] = b"true"
        written["top_logprobs"] = json.dump(checked.top_logprobs or 0)
    if (form := _format(checked)) is not None:
        written["response_format"] = _response_format(form, fields["text"].members()["format"])
    return written


def _thinking(checked: ResponseRequest) -> ThinkingOptions:
    effort = None if checked.reasoning is None else checked.reasoning.effort
    return (
        ThinkingOptions(is_on=False)
        if effort in _NO_EFFORT
        else ThinkingOptions(effort=effort or "")
    )


def _format(checked: ResponseRequest) -> TextFormat | None:
    """Return the form that an answer must have; None where any text will do."""
    form = None if checked.text is None else checked.text.format
    return None if form is None or form.type == "text" else form


def _answer_schema(form: TextFormat | None) -> JsonSchema | None:
    if form is None:
        return None
    return _ANY_OBJECT if form.schema_ is None else form.schema_


def _response_format(form: TextFormat, node: Node) -> bytes:
    if form.type == "json_object":
        return b'{"type":"json_object"}'
    members = node.members()
    names = ("name", "description", "schema", "strict")
    described = {name: members[name].source for name in names if name in members}
    return json.join_object({"type": b'"json_schema"', "json_schema": json.join_object(described)})


def _is_compaction(sender: Sender) -> bool:
    """Return whether Codex wants a summary, for which it says so in a header."""
    try:
        told = json.parse(sender.headers.get(_TURN_METADATA, "null"))
    except ValueError:
        return False
    return isinstance(told, dict) and told.get("request_kind") == "compaction"
