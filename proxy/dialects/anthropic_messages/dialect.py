"""Anthropic's Messages API as a dialect: `POST /v1/messages` and `/v1/messages/count_tokens`.

    {"model": "m", "max_tokens": 9, "system": "Be brief.",
     "messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}]}
    -> {"model": "m", "messages": [{"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi"}], "max_tokens": 9}

Members are written in a fixed order, and their values are copied byte for byte from the request.
Members without effect on the reply, such as `cache_control`, are dropped. So a conversation gives
the same bytes in every request.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from msgspec.structs import replace

from proxy.conversation import json
from proxy.conversation.json import JsonSchema, JsonValue
from proxy.conversation.messages import Message
from proxy.conversation.replies import ReplyStarted
from proxy.conversation.requests import Request, RoundReports, ThinkingOptions
from proxy.conversation.tools import Tool
from proxy.dialects import sse
from proxy.dialects.anthropic_messages.encode import (
    MESSAGE_STOP,
    MessageBuilder,
    MessageOptions,
    MessageStream,
    error_reply,
)
from proxy.dialects.anthropic_messages.history import read_history
from proxy.dialects.anthropic_messages.schema import MessagesRequest, messages_schemas
from proxy.dialects.anthropic_messages.table import FIELDS
from proxy.dialects.anthropic_messages.tools import ToolSet, choice_in
from proxy.dialects.dialect import (
    Answering,
    Client,
    Decoded,
    ErrorReply,
    IdentifiedAnswering,
    IdsAndClock,
    Problem,
    Schemas,
)
from proxy.dialects.foreign_history import PICTURE, write_answer_format, write_fields
from proxy.dialects.lenient_json import ESTIMATED, as_text, parse_object
from proxy.dialects.raw_json import Members, nodes_in, read_object
from proxy.dialects.wire_schema import check, schema_or_any, workflow_in
from proxy.errors import InvalidRequest

# The largest `max_tokens` for which the window reserves space. Clients send higher values only as
# an upper limit; if they were reserved, no room would be left for the conversation.
_SHORT = 1_024
_USUAL_SHARE = 0  # an `answer_reserve` of 0 reserves the usual share of the window

_SWITCHES = {"enabled": True, "disabled": False}
_COPIED = ("temperature", "top_p", "top_k", "temper")

# If CLAUDE_CODE_GATEWAY_HINT_HEADERS is set, Claude Code sends the purpose of a request here.
_CLASS_HEADER = "x-claude-code-request-class"
_COMPACTION = "compaction"
# Claude Code replaces the picture by a text and continues after this error.
_NO_IMAGES = "capability_rejected: image_block (the model does not accept images)"


@dataclass(frozen=True, slots=True)
class MessagesDialect:
    """The dialect of `POST /v1/messages`."""

    stamp: IdsAndClock
    name: str = "messages"
    id_header: str = "request-id"
    stream_type: str = sse.MEDIA_TYPE

    def schemas(self) -> Schemas:
        return messages_schemas()

    def decode(self, body: bytes, client: Client) -> Decoded:
        return self._decode(body, client)

    def decode_count(self, body: bytes, client: Client) -> Decoded:
        return self._decode(body, client, is_count=True)

    def encode_count(self, tokens: int, *, is_estimated: bool) -> bytes:
        """Write the token count of a prompt, including cached tokens."""
        return json.dump({"input_tokens": tokens, **(ESTIMATED if is_estimated else {})})

    def error(self, problem: Problem, request_id: str) -> ErrorReply:
        return error_reply(problem, request_id)

    def is_complete(self, end: bytes) -> bool:
        return end.endswith(MESSAGE_STOP)

    def _decode(self, body: bytes, client: Client, *, is_count: bool = False) -> Decoded:
        value = read_object(body)
        checked, nodes = check(MessagesRequest, value), nodes_in(value, body)
        for name, member in value.items():
            if member:  # null, false and empty values request nothing
                FIELDS.check(name, member)
        if checked.max_tokens is None and not is_count:  # the API requires it, but not for a count
            raise InvalidRequest("Field required", "max_tokens")
        offered = ToolSet(nodes.elements("tools"))
        messages, facts = read_history(nodes.get("system"), nodes["messages"], offered)
        facts = (*offered.facts, *facts)
        request = _request(checked, messages, offered.offered)
        request = replace(request, fields=_fields(request, nodes))
        # summaries and requests without tools are answered in prose
        is_summary = client.headers.get(_CLASS_HEADER) == _COMPACTION
        # no JSON string can contain the bytes of `PICTURE`, because quotes in strings are escaped
        has_pictures = PICTURE in request.fields["messages"]
        return Decoded(
            request,
            self._answering(checked, client.request_id),
            facts,
            accepts_prose=is_summary or not request.tools,
            image_error=_NO_IMAGES if has_pictures else "",
        )

    def _answering(self, checked: MessagesRequest, request_id: str) -> Answering:
        stamp, new_call_id = self.stamp, partial(self.stamp.call_id, "toolu_")

        def identify(started: ReplyStarted) -> MessageOptions:
            return MessageOptions(
                f"msg_{stamp.token()}",
                checked.model or started.model or "",
                request_id,
                new_call_id,
                # with `max_tokens` 0, the client only wants to fill the prompt cache
                shows_nothing=checked.max_tokens == 0,
                reports_edits=checked.context_management is not None,
            )

        return IdentifiedAnswering(
            identify, MessageStream, MessageBuilder, new_call_id, reports_prompt_size=True
        )


def _request(
    checked: MessagesRequest, messages: tuple[Message, ...], tools: tuple[Tool, ...]
) -> Request:
    limit, choice = checked.max_tokens, checked.tool_choice
    has_reports = checked.temper is not None and bool(checked.temper.tool_rounds)
    return Request(
        model=checked.model or "",
        messages=messages,
        fields={},
        tools=tools,
        tool_choice=choice_in(checked, tools),
        parallel_tool_calls=not (choice and choice.disable_parallel_tool_use),
        stream=bool(checked.stream),
        max_tokens=None if limit is None else max(1, limit),  # engines reject 0
        stop_strings=any(checked.stop_sequences or ()),
        wants_stop=any(checked.stop_sequences or ()),
        round_reports=RoundReports.AS_MADE if has_reports else RoundReports.NONE,
        answer_schema=_answer_schema(checked),
        workflow=workflow_in(checked.temper, messages, tools),
        answer_reserve=None if limit is None or limit <= _SHORT else _USUAL_SHARE,
        session=_session_in(checked.metadata),
        thinking=_thinking(checked),
    )


def _session_in(metadata: Mapping[str, JsonValue] | None) -> str:
    """Return the session that Claude Code writes into `user_id`; "" for any other client.

    The `user_id` of another client may identify a person, so it is not used. The session routes a
    conversation to the server of a pool that has the conversation in its cache.
    """
    user_id = parse_object(as_text((metadata or {}).get("user_id")))
    return as_text((user_id or {}).get("session_id"))


def _thinking(checked: MessagesRequest) -> ThinkingOptions:
    """Read `thinking` and `effort`; `adaptive` leaves the decision to the model."""
    thinking, config = checked.thinking, checked.output_config
    effort = (None if config is None else config.effort) or ""
    if thinking is None or thinking.type not in _SWITCHES:
        return ThinkingOptions(effort=effort)
    is_on = _SWITCHES[thinking.type]
    return ThinkingOptions(is_on, effort, thinking.budget_tokens if is_on else None)


def _answer_schema(checked: MessagesRequest) -> JsonSchema | None:
    config = checked.output_config
    # `output_format` is the older name of `output_config.format`
    form = checked.output_format if config is None or config.format is None else config.format
    return None if form is None else schema_or_any(form.schema_)


def _fields(request: Request, nodes: Members) -> dict[str, bytes]:
    fields = write_fields(request, nodes, _COPIED)
    if request.stop_strings:
        fields["stop"] = nodes["stop_sequences"].source
    if request.answer_schema is not None:
        form = (nodes.inner("output_config").get("format") or nodes["output_format"]).members()
        schema = {"schema": form["schema"].source} if "schema" in form else {}
        fields["response_format"] = write_answer_format({"name": b'"answer"', **schema})
    return fields
