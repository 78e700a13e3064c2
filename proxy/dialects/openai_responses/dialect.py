"""OpenAI's Responses API as a dialect: `POST /v1/responses`, with stored responses.

    {"model": "m", "instructions": "Be brief.", "input": "Hi", "max_output_tokens": 9}
    -> {"model": "m", "messages": [{"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi"}], "max_tokens": 9}

A request with `previous_response_id` is expanded to the whole conversation. Its prompt then has the
same bytes as if the client had sent the whole conversation (decision 0022).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec
from msgspec import structs

from proxy import bounds
from proxy.conversation import json
from proxy.conversation.json import JsonValue
from proxy.conversation.messages import Message
from proxy.conversation.replies import ReplyStarted
from proxy.conversation.requests import Request, RoundReports, ThinkingOptions
from proxy.conversation.tools import ToolUse
from proxy.dialects.dialect import (
    Answering,
    Client,
    Decoded,
    IdentifiedAnswering,
    IdsAndClock,
    Schemas,
)
from proxy.dialects.foreign_history import write_answer_format, write_fields
from proxy.dialects.lenient_json import as_text, parse_object
from proxy.dialects.openai_chat.dialect import OpenAIDialect
from proxy.dialects.openai_responses.encode import AnswerInProgress, ResponseEncoder
from proxy.dialects.openai_responses.items import ItemReader
from proxy.dialects.openai_responses.response import AnswerOptions, ResponseState, echo_of
from proxy.dialects.openai_responses.schema import (
    FIELDS,
    ResponseRequest,
    TextFormat,
    responses_schemas,
)
from proxy.dialects.openai_responses.store import ResponseStore, StoredResponse
from proxy.dialects.openai_responses.tools import ToolTable, read_choice
from proxy.dialects.raw_json import Members, Node, nodes_in, read_object
from proxy.dialects.wire_schema import check, schema_or_any, workflow_in
from proxy.errors import InvalidRequest, PreviousResponseUnknown
from proxy.facts import Fact

_ENDS = (b"\nevent: response.completed\n", b"\nevent: response.incomplete\n")
_UNKNOWN_ITEM = (
    "The item {id!r} is not stored. Send the item itself, and `store: false` if your client sends "
    "references by default."
)
_NO_INPUT = "Send a string, or an array of items."
_ENCRYPTED, _LOGPROBS = "reasoning.encrypted_content", "message.output_text.logprobs"
_TURN_METADATA = "x-codex-turn-metadata"
# Local models have no minimal reasoning, so the effort `minimal` disables reasoning.
_NO_EFFORT = ("none", "minimal")
_CARRIED = ("temperature", "top_p", "prompt_cache_key", "temper")
_MOST_FACTS = 256  # an input of 1 MB may have thousands of unknown items, each with a fact (F80)


@dataclass(frozen=True, slots=True)
class ResponsesDialect(OpenAIDialect):
    """The dialect of `POST /v1/responses`; without a `store`, clients must send whole histories."""

    stamp: IdsAndClock
    store: ResponseStore | None = None
    name: str = "responses"

    def schemas(self) -> Schemas:
        return responses_schemas()

    def decode(self, body: bytes, client: Client) -> Decoded:
        value, store = read_object(body), self.store
        checked, fields = check(ResponseRequest, value), nodes_in(value, body)
        for name, node in fields.items():
            if node.value is not False:  # `false` only switches a feature off, so it is accepted
                FIELDS.check(name, node.value)
        facts: list[Fact] = []
        table = ToolTable(facts)
        inputs = read_inputs(fields, store, client.owner)
        messages = _read_messages(inputs.items, fields, table, facts)
        compacts = bool(inputs.items) and _is_trigger(inputs.items[-1])
        request = _request(checked, fields, messages, table, forbids_calls=compacts)
        thoughts = checked.reasoning
        options = AnswerOptions(
            echo_of({name: node.source for name, node in fields.items()}),
            table.origins,
            is_stored=_is_stored(checked, inputs, store),
            summarizes=thoughts is not None and bool(thoughts.summary or thoughts.generate_summary),
            signs=_ENCRYPTED in (checked.include or []),
            compacts=compacts,
        )
        # this header shows that Codex 0.169.0 requests a summary
        codex = parse_object(client.headers.get(_TURN_METADATA, "")) or {}
        return Decoded(
            request,
            self._answering(options, request.model, inputs.sent, client.owner),
            tuple(facts[:_MOST_FACTS]),
            accepts_prose=compacts
            or not request.tools
            or codex.get("request_kind") == "compaction",
            # `truncation: "auto"` allows the server to drop items of a long conversation
            compaction=None if checked.truncation is None else checked.truncation == "auto",
        )

    def is_complete(self, end: bytes) -> bool:
        # no JSON string can contain these marks, because line ends in strings are escaped
        return any(mark in b"\n" + end for mark in _ENDS)

    def _answering(
        self, options: AnswerOptions, model: str, inputs: Sequence[bytes], owner: str
    ) -> Answering:
        store, stamp = self.store, self.stamp

        def identify(started: ReplyStarted) -> ResponseState:
            model_name = model or started.model or ""
            return ResponseState(f"resp_{stamp.token()}", int(stamp.now()), model_name)

        def begin_answer(state: ResponseState) -> AnswerInProgress:
            def store_answer(output: Sequence[bytes], answer: bytes) -> None:
                if store is not None and options.is_stored:
                    items = add_ids(inputs, state.id)
                    stored = StoredResponse(state.id, items, output, answer, options.previous_id)
                    store.keep(owner, stored)

            return AnswerInProgress(options, state, stamp, store_answer)

        return IdentifiedAnswering(
            identify,
            lambda state: ResponseEncoder(begin_answer(state)),
            begin_answer,
            stamp.call_id,
        )


class Inputs(NamedTuple):
    """All items of the conversation in order, and the JSON of the items in this request."""

    items: list[Node]
    sent: list[bytes]


def read_inputs(fields: Members, store: ResponseStore | None, owner: str) -> Inputs:
    """Read the items; raises `InvalidRequest` if there are none or if a reference is unknown."""
    sent = [_resolve(node, store, owner) for node in _items_of_request(fields.get("input"))]
    earlier = _earlier_items(fields.get("previous_response_id"), store, owner)
    if not sent and not earlier and "instructions" not in fields:
        raise InvalidRequest(_NO_INPUT, "input")
    return Inputs([*earlier, *sent], [node.source for node in sent])


def add_ids(items: Sequence[bytes], response_id: str) -> list[bytes]:
    """Give an id to each item that has none, so that later requests can refer to the item."""
    token = response_id.removeprefix("resp_")
    with_ids: list[bytes] = []
    for index, item in enumerate(items):
        members = json.raw_members(item)
        if bytes(members.get("id", b"null")) == b"null":
            with_ids.append(msgspec.json.encode({**members, "id": f"item_{token}_{index}"}))
        else:
            with_ids.append(item)
    return with_ids


def _items_of_request(value_node: Node | None) -> list[Node]:
    if value_node is None:
        return []
    if isinstance(value_node.value, list):
        return value_node.elements()
    if not value_node.is_text:
        raise InvalidRequest(_NO_INPUT, value_node.path)
    message = {"type": b'"message"', "role": b'"user"', "content": value_node.source}
    value: JsonValue = {"type": "message", "role": "user", "content": value_node.value}
    return [Node(value, json.join_object(message), value_node.path)]


def _resolve(node: Node, store: ResponseStore | None, owner: str) -> Node:
    """Replace a reference to an item by the item."""
    if not isinstance(node.value, dict) or node.value.get("type") != "item_reference":
        return node
    item_id = as_text(node.value.get("id"))
    stored = None if store is None else store.item(owner, item_id)
    if stored is None:
        raise InvalidRequest(_UNKNOWN_ITEM.format(id=item_id), f"{node.path}.id")
    return Node(json.parse(stored), stored, node.path)


def _earlier_items(reference: Node | None, store: ResponseStore | None, owner: str) -> list[Node]:
    if reference is None:
        return []
    response_id = reference.text().text
    earlier = None if store is None else store.history(owner, response_id)
    if earlier is None:
        raise PreviousResponseUnknown(response_id)
    return [
        Node(json.parse(source), source, f"{reference.path}.{position}")
        for position, source in enumerate(earlier)
    ]


def _is_stored(checked: ResponseRequest, inputs: Inputs, store: ResponseStore | None) -> bool:
    is_wanted = store is not None and checked.store is not False  # true by default, as in the API
    return is_wanted and len(inputs.sent) <= bounds.STORED_ITEMS


def _read_messages(
    items: list[Node], fields: Members, table: ToolTable, facts: list[Fact]
) -> tuple[Message, ...]:
    table.offer(fields.get("tools"))
    reader = ItemReader(table, facts)
    if "instructions" in fields:
        reader.instruct(fields["instructions"].text())
    for node in items:
        reader.read(node)
    table.check()
    if not (messages := reader.messages()):
        raise InvalidRequest("The input contains nothing for the model to read.", "input")
    return messages


def _is_trigger(item: Node) -> bool:
    """Return whether an item requests a summary instead of an answer."""
    return isinstance(item.value, dict) and item.value.get("type") == "compaction_trigger"


def _request(
    checked: ResponseRequest,
    fields: Members,
    messages: tuple[Message, ...],
    table: ToolTable,
    *,
    forbids_calls: bool,
) -> Request:
    tools = table.tools
    choice, allowed = read_choice(fields.get("tool_choice"), table)
    if forbids_calls:
        choice, allowed = ToolUse.NONE, None  # the tools stay in the prompt, to reuse its cache
    form = None if checked.text is None else checked.text.format
    if form is not None and form.type == "text":
        form = None
    effort = None if checked.reasoning is None else checked.reasoning.effort
    thinking = ThinkingOptions(effort=effort or "")
    if effort in _NO_EFFORT:
        thinking = ThinkingOptions(is_on=False)
    request = Request(
        model=checked.model or "",
        messages=messages,
        fields={},
        tools=tools,
        tool_choice=choice,
        parallel_tool_calls=checked.parallel_tool_calls is not False,
        stream=bool(checked.stream),
        max_tokens=checked.max_output_tokens,
        answer_schema=None if form is None else schema_or_any(form.schema_),
        workflow=workflow_in(checked.temper, messages, tools),
        allowed_tools=allowed,
        thinking=thinking,
        # because the API has an item for a call that the server ran (`mcp_call`)
        round_reports=RoundReports.AS_MADE,
    )
    # sent even if it has the API's default value, because engines have different defaults
    parallel = ("parallel_tool_calls",) if tools else ()
    written_fields = write_fields(request, fields, (*_CARRIED, *parallel))
    return structs.replace(request, fields=written_fields | _options(checked, fields, form))


def _options(
    checked: ResponseRequest, fields: Members, form: TextFormat | None
) -> dict[str, bytes]:
    written_fields: dict[str, bytes] = {}
    if checked.top_logprobs or _LOGPROBS in (checked.include or []):
        written_fields["logprobs"] = b"true"
        written_fields["top_logprobs"] = json.dump(checked.top_logprobs or 0)
    if form is not None and form.type == "json_object":
        written_fields["response_format"] = b'{"type":"json_object"}'
    elif form is not None:
        members = fields["text"].members().inner("format")
        names = ("name", "description", "schema", "strict")
        described = {name: members[name].source for name in names if name in members}
        written_fields["response_format"] = write_answer_format(described)
    return written_fields
