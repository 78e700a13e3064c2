"""Ollama's API as a dialect: `POST /api/chat` and `/api/generate`.

    {"model": "qwen3:latest", "messages": [{"role": "user", "content": "Hi"}],
     "options": {"num_predict": 9}}
    -> {"model": "qwen3", "messages": [{"role": "user", "content": "Hi"}],
        "max_tokens": 9, "stream": true}

A later message never changes an earlier message, so the engine can reuse its prompt cache. Calls
without an id get the ids `call_1`, `call_2` and so on. A result without an id belongs to the first
call of its tool that has no result yet.
"""

import base64
import binascii
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from msgspec.structs import replace

from proxy.conversation import json
from proxy.conversation.json import JsonObject
from proxy.conversation.messages import Message
from proxy.conversation.requests import LoadOptions, Request, ThinkingOptions
from proxy.conversation.tools import Tool
from proxy.dialects.dialect import (
    Client,
    Decoded,
    ErrorReply,
    IdentifiedAnswering,
    IdsAndClock,
    Problem,
    Schemas,
)
from proxy.dialects.foreign_history import (
    HistoryCall,
    HistoryEntry,
    Medium,
    Part,
    write_answer_format,
    write_arguments,
    write_fields,
    write_picture,
    write_tool,
)
from proxy.dialects.lenient_json import ESTIMATED, as_object
from proxy.dialects.ollama_chat.downstream import encode
from proxy.dialects.ollama_chat.downstream.schema import (
    FIELDS,
    OPTIONS,
    OllamaChatRequest,
    OllamaGenerateRequest,
    Options,
    ollama_schemas,
)
from proxy.dialects.ollama_chat.fields import FIELDS as UPSTREAM
from proxy.dialects.ollama_chat.fields import OPTIONS as KNOWN_OPTIONS
from proxy.dialects.raw_json import JsonText, Members, Node, nodes_in, own_text, read_object
from proxy.dialects.wire_schema import NO_PARAMETERS, check, check_name, check_new, workflow_in
from proxy.errors import InvalidRequest
from proxy.facts import Omitted

_NO_IMAGES = "This model does not accept images. Choose one that does."
_GROUP = "options."
# each of Ollama's options -> its name in chat completions, from the table for upstream requests
_SAMPLING = {
    row.target.removeprefix(_GROUP): name
    for name, row in UPSTREAM.items()
    if row.target.startswith(_GROUP)
}
_WRITTEN_HERE = ("num_predict", "stop")  # options that `_request` and `_fields` translate
# all other options; Ollama applies them, for example `num_ctx`, when it loads the model
_LOADING = KNOWN_OPTIONS - {*_SAMPLING, *_WRITTEN_HERE}
_COPIED = ("logprobs", "top_logprobs", "temper")
_PLAIN = frozenset(("role", "content"))  # the members of a message that needs no conversion

_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_STEP = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h)")
_DURATION = re.compile(rf"[+-]?(?:(?:{_STEP.pattern})+|\d+(?:\.\d+)?)")
# the first bytes of each format, in base64
_PICTURES = {"iVBOR": "png", "/9j/": "jpeg", "R0lGOD": "gif", "UklGR": "webp"}


@dataclass(frozen=True, slots=True)
class OllamaDialect:
    """The dialect of `/api/chat`, or of `/api/generate` if it `is_text`."""

    stamp: IdsAndClock
    is_text: bool = False
    name: str = "ollama"
    id_header: str = "x-request-id"
    stream_type: str = "application/x-ndjson"

    def schemas(self) -> Schemas:
        return ollama_schemas(OllamaGenerateRequest if self.is_text else OllamaChatRequest)

    def decode(self, body: bytes, client: Client) -> Decoded:
        del client
        value = read_object(body)
        nodes, reader = nodes_in(value, body), _HistoryReader()
        checked: OllamaChatRequest | OllamaGenerateRequest
        if self.is_text:
            checked = check(OllamaGenerateRequest, value)
            messages = reader.read_prompt(nodes) if checked.prompt or checked.images else ()
        else:
            checked = check(OllamaChatRequest, value)
            messages = tuple(map(reader.read, nodes.elements("messages")))
        for name, node in nodes.items():
            if node.value:
                FIELDS.check(name, node.value)
        if not checked.model:
            raise InvalidRequest("model is required")  # the message of Ollama's own error
        stamp, options = self.stamp, nodes.inner("options")
        request = _request(checked, messages, _tools(nodes.elements("tools")), options)
        answer_options = encode.AnswerOptions(
            checked.model, self.is_text, stamp, stamp.now(), stamp.call_id
        )
        is_end = request.load.seconds == 0
        return Decoded(
            replace(request, fields=_fields(request, nodes, options)),
            IdentifiedAnswering(
                lambda _: answer_options, encode.OllamaStream, encode.OllamaBuilder, stamp.call_id
            ),
            tuple(map(Omitted, dict.fromkeys(_omissions(nodes, options)))),
            image_error=_NO_IMAGES if reader.has_pictures else "",
            load_status=b""
            if messages
            else answer_options.load_status("unload" if is_end else "load"),
        )

    def decode_count(self, body: bytes, client: Client) -> Decoded:
        return self.decode(body, client)

    def encode_count(self, tokens: int, *, is_estimated: bool) -> bytes:
        return json.dump({"prompt_eval_count": tokens, **(ESTIMATED if is_estimated else {})})

    def error(self, problem: Problem, request_id: str) -> ErrorReply:
        del request_id
        return ErrorReply(problem.status, problem.headers, encode.error_object(problem))

    def is_complete(self, end: bytes) -> bool:
        return encode.DONE in end


def _request(
    checked: OllamaChatRequest | OllamaGenerateRequest,
    messages: tuple[Message, ...],
    tools: tuple[Tool, ...],
    sent_options: Members,
) -> Request:
    options = checked.options or Options()
    limit = options.num_predict
    return Request(
        model=(checked.model or "").removesuffix(":latest"),  # clients add the default tag
        messages=messages,
        fields={},
        tools=tools,
        stream=checked.stream is not False,  # in Ollama's API, the default is a stream
        # in Ollama's API, -1 means no limit, and -2 means to fill the window
        max_tokens=limit if limit is not None and limit > 0 else None,
        stop_strings=any(options.stop or ()),
        answer_schema={"type": "object"} if checked.format == "json" else checked.format or None,
        workflow=workflow_in(checked.temper, messages, tools),
        thinking=_thinking(checked.think),
        load=_load_options(options, sent_options, checked.keep_alive),
    )


def _omissions(nodes: Members, options: Members) -> Iterator[str]:
    yield from (name for name, node in nodes.items() if node.value and FIELDS.drops(name))
    yield from ("ollama_option" for name in options if OPTIONS.drops(name))


def _thinking(think: bool | str | None) -> ThinkingOptions:  # noqa: FBT001 - as clients send it
    if isinstance(think, str):
        return ThinkingOptions(is_on=True, effort=think)
    return ThinkingOptions(is_on=think)


def _load_options(
    options: Options, names: Iterable[str], keep_alive: str | float | None
) -> LoadOptions:
    # The values are those after validation, which converts 8192.0 to an integer: Home Assistant
    # writes a token count in this way.
    # `num_ctx` has an effect only if neither the operator nor an earlier request has set a window
    # (decision 0028).
    values: JsonObject = {name: getattr(options, name) for name in names if name in _LOADING}
    seconds = read_duration(keep_alive) if isinstance(keep_alive, str) else keep_alive
    return LoadOptions(values, keep_alive, seconds)


def read_duration(text: str) -> float | None:
    """Return the seconds of a duration in Go's format, such as "1h30m"; None for "".

    A negative duration means that the model stays loaded. Raises `InvalidRequest` for a wrong
    format.
    """
    if not text:
        return None
    if not _DURATION.fullmatch(text):
        raise InvalidRequest(f'Expected a duration like "5m", got {text[:40]!r}.', "keep_alive")
    steps = _STEP.findall(text)
    if not steps:
        return float(text)
    seconds = sum(float(number) * _UNITS[unit] for number, unit in steps)
    return -seconds if text.startswith("-") else seconds


def _tools(described: list[Node]) -> tuple[Tool, ...]:
    tools: dict[str, Tool] = {}
    for node in described:
        value = node.object()
        function = as_object(value["function"])
        name, schema = f"{function['name']}", function.get("parameters")
        param = f"{node.path}.function.name"
        check_name(name, param)
        check_new(name, tools, param)
        source = node.source
        # A complete tool keeps its bytes. Tools are at the beginning of the prompt, and clients
        # repeat them in every request, so the engine can reuse its prompt cache.
        if value.get("type") is None or schema is None:
            source, schema = _complete(node), NO_PARAMETERS if schema is None else schema
        assert isinstance(schema, dict | bool)  # noqa: S101 - as it was checked
        tools[name] = Tool(name, schema, source)
    return tuple(tools.values())


def _complete(tool: Node) -> bytes:
    """Write a tool with `type` and `parameters`, which engines other than Ollama require."""
    function = tool.members().inner("function")
    parameters = function.get("parameters")
    return write_tool(
        function["name"].text(),
        description=function.text("description"),
        parameters=json.dump(NO_PARAMETERS) if parameters is None else parameters.source,
    )


def _fields(request: Request, nodes: Members, options: Members) -> Mapping[str, bytes]:
    fields = {**write_fields(request, nodes, _COPIED), "model": json.dump(request.model)}
    if request.stop_strings:
        fields["stop"] = options["stop"].source
    sampling = {field: name for name, field in _SAMPLING.items() if name in options}
    fields |= {field: options[name].source for field, name in sampling.items()}
    if nodes.value("format") == "json":
        fields["response_format"] = b'{"type":"json_object"}'
    elif request.answer_schema is not None:
        schema = {"name": b'"answer"', "schema": nodes["format"].source}
        fields["response_format"] = write_answer_format(schema)
    return fields


class _HistoryReader:
    """Reads messages in order, and assigns results to calls."""

    def __init__(self) -> None:
        self.has_pictures = False
        self._pending_calls: list[tuple[JsonText, str]] = []  # (id, tool) of calls without a result
        self._count = 0

    def read(self, node: Node) -> Message:
        value = node.object()
        role, content = f"{value['role']}", value.get("content")
        if isinstance(content, str) and role != "tool" and value.keys() <= _PLAIN:
            return Message(role, content, node.source)  # the same format as in chat completions
        members = node.members()
        texts: list[Part] = [members["content"].text()] if members.word("content") else []
        pictures = [*map(_picture, members.elements("images"))]
        self.has_pictures = self.has_pictures or bool(pictures)
        thought = members.text("thinking")
        calls = tuple(map(self._call, members.elements("tool_calls")))
        return HistoryEntry(
            role,
            [*texts, *pictures],
            [thought] if thought is not None and thought.text else (),
            calls,
            self._origin(members) if role == "tool" else None,
        ).message

    def read_prompt(self, members: Members) -> tuple[Message, ...]:
        """Read a prompt as a message of the user, after the system message if there is one."""
        texts: list[Part] = [members["prompt"].text()] if members.word("prompt") else []
        pictures = [*map(_picture, members.elements("images"))]
        self.has_pictures = bool(pictures)
        user = HistoryEntry("user", [*texts, *pictures]).message
        if not members.word("system"):
            return (user,)
        return HistoryEntry("system", [members["system"].text()]).message, user

    def _call(self, node: Node) -> HistoryCall:
        members = node.members()
        function = members.inner("function")
        arguments = function.get("arguments")
        is_text = arguments is not None and arguments.is_text
        text = function["arguments"].text() if is_text else write_arguments(arguments)
        call_id = members.text("id") or self._new_id()
        self._pending_calls.append((call_id, function.word("name")))
        return HistoryCall(call_id, function["name"].text(), text)

    def _origin(self, members: Members) -> JsonText:
        """Return the id of the call to which a result belongs."""
        sent_id, name = members.text("tool_call_id"), members.word("tool_name")
        for call in self._pending_calls:
            call_id, function_name = call
            has_name = function_name == name or not name
            if has_name if sent_id is None else call_id.text == sent_id.text:
                self._pending_calls.remove(call)
                return call_id
        return sent_id or self._new_id()

    def _new_id(self) -> JsonText:
        self._count += 1
        return own_text(f"call_{self._count}")


def _picture(node: Node) -> Medium:
    """Read a picture: base64, or a `data:` URL, as some clients send it.

    Chat completions require the media type. Like Ollama, Temper detects it from the first bytes.
    """
    head, comma, data = node.text().text.rpartition(",")
    try:
        is_valid = bool(base64.b64decode(data, validate=True))
    except (binascii.Error, ValueError):
        is_valid = False
    if not is_valid or (comma and not head.startswith("data:")):
        raise InvalidRequest("Expected an image in base64.", node.path)
    if not comma:
        image_type = next(
            (subtype for prefix, subtype in _PICTURES.items() if data.startswith(prefix)),
            "png",
        )
        head = f"data:image/{image_type};base64"
    return write_picture(json.dump(f"{head},{data}"))
