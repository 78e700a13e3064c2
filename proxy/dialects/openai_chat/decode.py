"""Reader of chat completion requests.

    {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 9}
    -> Request("m", (Message("user", "Hi", b'{"role": "user", ...}'),), {...}, max_tokens=9)

For an invalid request, the error is a sentence about the first wrong field.
"""

from collections.abc import Collection
from typing import TypeAlias

from msgspec.structs import replace

from proxy.conversation import json
from proxy.conversation.document_cache import LruCache
from proxy.conversation.json import JsonSchema, JsonValue
from proxy.conversation.messages import Message
from proxy.conversation.requests import Request, RoundReports
from proxy.conversation.tools import NamedTool, Tool, ToolCall, ToolChoice, ToolUse
from proxy.dialects.openai_chat import schema
from proxy.dialects.openai_chat.thinking import thinking_in
from proxy.dialects.openai_chat.tool_rounds import MEMBER, expand
from proxy.dialects.raw_json import read_object
from proxy.dialects.wire_schema import (
    NO_PARAMETERS,
    check,
    check_name,
    check_new,
    check_offered,
    schema_or_any,
    workflow_in,
)
from proxy.errors import InvalidRequest

# cached, because clients send the same tools with every request
_known_tools: LruCache[tuple[Tool, ...]] = LruCache()


def decode_request(body: bytes) -> Request:
    """Read a client's request; raises InvalidRequest."""
    document, failed = read_object(body), dict[int, bool]()
    if has_rounds(document.get("messages")):
        body, failed = expand(body)
        document = read_object(body)  # read again, because the client's rounds need validation, too
    fields = json.split_object(body)
    raw_tools = fields.get("tools", b"null")
    tools = _known_tools.find(raw_tools)
    if tools is not None:
        document.pop("tools", None)  # cached tools are known to be valid, and validation is slow
    checked = check(schema.ChatCompletionRequest, document)
    if tools is None:
        tools = _tools(checked.tools or [], raw_tools)
        _known_tools.keep(raw_tools, tools)
    choice, allowed = read_choice(checked.tool_choice, tools)
    # Temper itself enforces a list of allowed tools, because few engines support such a list
    if allowed is not None:
        fields["tool_choice"] = b'"required"' if choice is ToolUse.REQUIRED else b'"auto"'
    messages = tuple(map(_message, checked.messages, json.split_array(fields["messages"])))
    if failed:
        messages = tuple(
            replace(message, failed=failed.get(index)) for index, message in enumerate(messages)
        )
    limit = checked.max_completion_tokens
    has_reports = checked.temper is not None and bool(checked.temper.tool_rounds)
    return Request(
        model=checked.model or "",
        messages=messages,
        fields=fields,
        tools=tools,
        tool_choice=choice,
        parallel_tool_calls=checked.parallel_tool_calls is not False,
        stream=bool(checked.stream),
        # `max_completion_tokens` is OpenAI's newer name
        max_tokens=limit if limit is not None else checked.max_tokens,
        stop_strings=any(checked.stop or ()),
        answer_schema=_answer_schema(checked.response_format),
        workflow=workflow_in(checked.temper, messages, tools),
        allowed_tools=allowed,
        thinking=thinking_in(fields),
        round_reports=RoundReports.AT_END if has_reports else RoundReports.NONE,
    )


def has_rounds(messages: JsonValue) -> bool:
    # a list, because `any` with a generator is half as fast, and this runs for every message
    known = messages if isinstance(messages, list) else []
    return bool([entry for entry in known if isinstance(entry, dict) and MEMBER in entry])


def decode_messages(sources: list[bytes]) -> tuple[Message, ...]:
    """Read messages, each a JSON document; raises InvalidRequest."""
    if not sources:
        return ()
    body = json.join_object({"messages": json.join_array(sources)})
    return tuple(
        map(_message, check(schema.ChatCompletionRequest, read_object(body)).messages, sources)
    )


def _message(checked: schema.ChatMessage, source: bytes) -> Message:
    calls = tuple(map(_call, checked.tool_calls)) if checked.tool_calls else ()
    text = checked.content or ""
    if not isinstance(text, str):
        text = "\n".join(part.text for part in text if part.text is not None)
    return Message(checked.role, text, source, calls, checked.tool_call_id)


def _call(call: schema.MadeCall) -> ToolCall:
    arguments = call.function.arguments
    text = json.dump_text(arguments) if isinstance(arguments, dict) else arguments or ""
    return ToolCall(call.id or "", call.function.name, text)


def _tools(offered: list[schema.OfferedTool], raw_tools: bytes) -> tuple[Tool, ...]:
    if not offered:
        return ()
    tools: dict[str, Tool] = {}
    for position, source in enumerate(json.split_array(raw_tools)):
        function = offered[position].function
        param = f"tools.{position}.function.name"
        check_name(function.name, param)
        check_new(function.name, tools, param)
        parameters = NO_PARAMETERS if function.parameters is None else function.parameters
        tools[function.name] = Tool(function.name, parameters, source)
    return tuple(tools.values())


def _answer_schema(answer_format: schema.ResponseFormat | None) -> JsonSchema | None:
    """Return the JSON schema of the answer; None for free text."""
    if answer_format is None or answer_format.type == "text":
        return None
    # with the type `json_object`, llama-server accepts a schema in the object itself
    holder = answer_format if answer_format.json_schema is None else answer_format.json_schema
    return schema_or_any(holder.schema_)


_PARAM = "tool_choice"

# The tool choice, and the names of the allowed tools; None allows all tools.
ReadChoice: TypeAlias = tuple[ToolChoice, frozenset[str] | None]


def read_choice(choice: schema.Choice | None, tools: tuple[Tool, ...]) -> ReadChoice:
    """Read `tool_choice`; raises `InvalidRequest` if these tools do not allow it."""
    if choice is None or choice == "auto":  # the most common case
        return ToolUse.AUTO, None
    if not tools and choice != "none":
        raise InvalidRequest("A tool call is required, but `tools` is empty.", _PARAM)
    names = [tool.name for tool in tools]
    match choice:
        case schema.ChosenTool():
            return NamedTool(_name_in(choice, names, _PARAM)), None
        case schema.SeveralTools(allowed_tools=subset):
            param = f"{_PARAM}.allowed_tools.tools"
            known = dict.fromkeys(names)
            allowed = [
                _name_in(tool, known, f"{param}.{index}") for index, tool in enumerate(subset.tools)
            ]
            return ToolUse(subset.mode), frozenset(allowed)
        case _:
            return ToolUse(choice), None


def _name_in(choice: schema.ChosenTool, offered: Collection[str], param: str) -> str:
    name = choice.function.name
    check_offered(name, offered, f"{param}.function.name")
    return name
