"""Wire tables: rows of input and output bytes for every dialect and every engine format.

A table is a text file in `wire/`. A line `# ...` names the behavior that the rows below it test.
A row is an input, ` => ` and its output. An output on a line of its own begins with `=> `. The
output of a refused input begins with `! `:

    # a forced call needs a tool
    "tool_choice":"required" => ! tool_choice: A tool call is required, but `tools` is empty.

JSON objects are shortened. An input shows only the members in which it differs from the plain
request of the dialect (`PLAIN`); an output shows only those in which it differs from the output for
the plain request. `-name` means that the member is missing. ` | ` separates the parts of an input.
A reply has one event per line. After an intended change,
`python -m tests.unit.dialects.wire_tables` rewrites all outputs; the diff shows each changed byte.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from json import JSONDecoder
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from proxy.conversation import json, replies
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.messages import Message
from proxy.conversation.requests import LoadOptions, Request, ThinkingOptions, UpstreamRequest
from proxy.dialects.anthropic_messages.dialect import MessagesDialect
from proxy.dialects.anthropic_messages.upstream import decode as messages_replies
from proxy.dialects.anthropic_messages.upstream import encode as messages_upstream
from proxy.dialects.anthropic_messages.upstream.fields import ModelLimits
from proxy.dialects.dialect import Client, Decoded, Dialect, IdsAndClock, Problem
from proxy.dialects.ollama_chat import decode as ollama_replies
from proxy.dialects.ollama_chat import encode as ollama_upstream
from proxy.dialects.ollama_chat.downstream.dialect import OllamaDialect
from proxy.dialects.ollama_chat.fields import ModelSettings
from proxy.dialects.openai_chat import encode as chat_upstream
from proxy.dialects.openai_chat import replies as chat_replies
from proxy.dialects.openai_chat.decode import decode_messages, decode_request
from proxy.dialects.openai_chat.dialect import ChatDialect
from proxy.dialects.openai_chat.replies import ReplyPart, StreamedError
from proxy.dialects.openai_chat.thinking import SWITCHES, thinking_fields
from proxy.dialects.openai_responses.dialect import ResponsesDialect
from proxy.dialects.sse import Event
from proxy.errors import InvalidRequest

DIRECTORY = Path(__file__).parent / "wire"
STAMP = IdsAndClock(now=lambda: 7.0, token=lambda: "abc")
ARROW, REFUSED, NOTHING, SAME, LONGEST = "=> ", "! ", "(nothing)", "(same)", 240

DIALECTS: dict[str, Dialect] = {
    "chat": ChatDialect(STAMP),
    "messages": MessagesDialect(STAMP),
    "ollama": OllamaDialect(STAMP),
    "ollama_text": OllamaDialect(STAMP, is_text=True),
    "responses": ResponsesDialect(STAMP),
}
PLAIN = {
    "chat": b'{"model":"m","messages":[{"role":"user","content":"Hi"}]}',
    "messages": b'{"model":"m","max_tokens":100,"messages":[{"role":"user","content":"Hi"}]}',
    "ollama": b'{"model":"m","messages":[{"role":"user","content":"Hi"}]}',
    "ollama_text": b'{"model":"m","prompt":"Hi"}',
    "responses": b'{"model":"m","input":"Hi"}',
}
Changed = TypeVar("Changed", bound=msgspec.Struct)


class Row(NamedTuple):
    """One row of a table and its behavior."""

    behavior: str
    sent: str
    result: str


def read_table(name: str) -> Iterator[Row]:
    behavior, sent = "", list[str]()
    for line in (DIRECTORY / f"{name}.txt").read_text(encoding="utf-8").split("\n"):
        first, arrow, result = line.partition(ARROW)
        if line.startswith("# "):
            behavior = line.removeprefix("# ")
        elif arrow and (not first or first.endswith(" ")):
            yield Row(behavior, "\n".join([*sent, first.rstrip(" ")] if first else sent), result)
            sent = []
        elif line:
            sent.append(line)


def write_table(name: str, rows: Iterable[Row]) -> None:
    lines: list[str] = []
    behavior = ""
    for row in rows:
        if row.behavior != behavior:
            behavior = row.behavior
            lines.append(f"# {behavior}")
        line = f"{row.sent} {ARROW}{row.result}"
        is_short = len(line) <= LONGEST and "\n" not in row.sent
        lines += [line] if is_short else [row.sent, ARROW + row.result]
    (DIRECTORY / f"{name}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def complete_body(plain: bytes, sent: str) -> bytes:
    """Return `sent` if it is a whole body, else the plain body with the members `sent`."""
    if sent.startswith("{"):
        return sent.encode()
    changed = json.split_object(b"{%b}" % sent.encode())
    return json.join_object({**json.split_object(plain), **changed})


def difference(document: bytes, plain: bytes) -> str:
    known, members = json.split_object(plain), json.split_object(document)
    changed = {name: raw for name, raw in members.items() if known.get(name) != raw}
    missing = [f"-{name}" for name in known if name not in members]
    return " ".join([json.join_object(changed).decode()[1:-1], *missing]).strip()


def builtin(value: object) -> JsonValue:
    """Convert a value to JSON; a struct becomes its attributes that differ from the defaults."""
    if isinstance(value, msgspec.Struct):
        fields = msgspec.structs.fields(value)
        members = {field.name: (getattr(value, field.name), field.default) for field in fields}
        return {name: builtin(new) for name, (new, usual) in members.items() if new != usual}
    if isinstance(value, frozenset):
        return [*sorted(value)]
    plain: JsonValue = msgspec.to_builtins(value)
    return plain


def as_object(value: JsonValue) -> JsonObject:
    assert isinstance(value, dict)
    return value


def changes(value: msgspec.Struct, known: msgspec.Struct, *skipped: str) -> JsonObject:
    return {
        name: builtin(getattr(value, name))
        for name in value.__struct_fields__
        if name not in skipped and getattr(value, name) != getattr(known, name)
    }


def view(message: Message) -> JsonValue:
    """Return the attributes of a message except its bytes, without trailing empty attributes."""
    calls: list[JsonValue] = [[call.id, call.name, call.arguments] for call in message.calls]
    parts: list[JsonValue] = [message.role, message.text, calls]
    parts += [message.tool_call_id, message.failed]
    while parts[-1] in ([], None):
        parts.pop()
    return parts


def request_row(name: str, sent: str) -> str:
    """Show a request as a chat completion, and the attributes that a chat completion lacks.

    The input is `members | headers`. For the dialect "chat" all changed attributes are shown.
    """
    dialect, plain = DIALECTS[name], PLAIN[name]
    members, _, headers = sent.partition(" | ")
    client = Client(headers=msgspec.json.decode(headers or "{}", type=dict[str, str]))
    decoded, usual = (
        dialect.decode(complete_body(plain, members), client),
        dialect.decode(plain, Client()),
    )
    body, usual_body = (json.join_object({**each.request.fields}) for each in (decoded, usual))
    more, usual_more = (
        facts_of(name, decoded, usual, body),
        facts_of(name, usual, usual, usual_body),
    )
    more = {key: value for key, value in more.items() if usual_more.get(key) != value}
    body_members = difference(body, usual_body)
    if body_members == members and members:
        body_members = SAME
    shown = [body_members, json.dump_text(more) if more else ""]
    return " | ".join(shown).removesuffix(" | ") or NOTHING


def facts_of(name: str, decoded: Decoded, usual: Decoded, body: bytes) -> JsonObject:
    request = decoded.request
    known = usual.request if name == "chat" else as_chat(body)
    more = changes(decoded, usual, "request", "answering", "facts")
    more |= changes(request, known, "fields", "messages", "tools")
    views = [*map(view, request.messages)]
    if views != [*map(view, known.messages)]:
        more["messages"] = views
    if request.tools != known.tools:
        more["tools"] = [[tool.name, tool.parameters] for tool in request.tools]
    if decoded.facts:
        more["facts"] = [[type(fact).__name__, builtin(fact)] for fact in decoded.facts]
    return more


def as_chat(body: bytes) -> Request:
    try:
        return decode_request(body)
    except InvalidRequest:  # e.g. a request without messages, which only loads the model
        return Request("", (), {})


def upstream_request(members: str, changed: JsonObject) -> UpstreamRequest:
    """Return the upstream request of a chat completion, with the attributes in `changed`."""
    request = replaced(
        decode_request(complete_body(PLAIN["chat"], members)), changed.pop("request", {})
    )
    messages, tools = request.messages, request.tools
    if isinstance(sources := changed.pop("messages", None), list):
        messages = decode_messages([f"{source}".encode() for source in sources])
    if isinstance(sources := changed.pop("tools", None), list):
        raw = json.join_array([f"{source}".encode() for source in sources])
        tools = decode_request(b'{"messages":[{"role":"user"}],"tools":%b}' % raw).tools
    return replaced(UpstreamRequest(request, messages, tools, request.tool_choice), changed)


def replaced(value: Changed, attributes: JsonValue) -> Changed:
    types = {field.name: field.type for field in msgspec.structs.fields(value)}
    return replace(
        value, **{name: made(types[name], raw) for name, raw in as_object(attributes).items()}
    )


def made(kind: type, raw: object) -> object:
    if isinstance(raw, dict) and kind in (ThinkingOptions, LoadOptions):
        return kind(**raw)
    try:
        return msgspec.convert(raw, kind)
    except TypeError:  # msgspec cannot convert to the recursive type of any JSON
        return tuple(raw) if isinstance(raw, list) else raw


Write = Callable[[UpstreamRequest, JsonObject], bytes]


def model_settings(settings: JsonObject) -> ModelSettings:
    return msgspec.convert({"model": "m", **settings}, ModelSettings)


def model_limits(settings: JsonObject) -> ModelLimits:
    return msgspec.convert({"model": "m", **settings}, ModelLimits)


def write_thinking(request: UpstreamRequest, settings: JsonObject) -> bytes:
    names = msgspec.convert(settings.get("variables", [*SWITCHES]), tuple[str, ...])
    takes_budget = settings.get("takes_budget") is True
    return json.dump(thinking_fields(request.request, names, takes_budget=takes_budget))


WRITERS: dict[str, Write] = {
    "chat": chat_upstream.encode_request,
    "ollama": lambda request, more: ollama_upstream.encode_request(request, model_settings(more)),
    "messages": lambda request, more: messages_upstream.encode_request(request, model_limits(more)),
    "messages_count": lambda request, more: messages_upstream.encode_count(
        request, model_limits(more)
    ),
    "thinking": write_thinking,
}


def upstream_row(engine: str, sent: str) -> str:
    """Show the body for an engine: `members | attributes of the request | settings`."""
    write, parts = WRITERS[engine], [*sent.split(" | "), "", ""]
    attributes, settings = (as_object(json.parse(part or "{}")) for part in parts[1:3])
    body = write(upstream_request(parts[0], attributes), settings)
    return difference(body, write(upstream_request("", {}), {})) or NOTHING


def reply_row(engine: str, sent: str) -> str:
    """Show the parts of a reply: its events, one per line, and `(end)`; or `error ` and a body."""
    if sent.startswith("error "):
        error = {
            "chat": chat_replies.decode_error,
            "ollama": ollama_replies.decode_error,
            "messages": messages_replies.decode_error,
        }[engine]
        return json.dump_text(error(sent.removeprefix("error ").encode()))
    return "; ".join(map(show_part, read_reply(engine, sent.split("\n"))))


def read_reply(engine: str, lines: list[str]) -> list[ReplyPart]:
    chunks, ndjson = chat_replies.ChunkDecoder(), ollama_replies.LineReader()
    events = messages_replies.EventReader()
    parts: list[ReplyPart] = []
    for line in lines:
        match engine:
            case "chat":
                parts += chunks.finish() if line == "(end)" else chunks.feed(line)
            case "ollama":
                parts += ndjson.finish() if line == "(end)" else ndjson.feed(line.encode())
            case _:
                parts += events.finish() if line == "(end)" else events.feed(Event(line))
    return parts


def show_part(part: ReplyPart) -> str:
    """Show a part as its type and its values, without trailing empty values."""
    values = [part.error] if isinstance(part, StreamedError) else [
        builtin(getattr(part, name)) for name in part.__struct_fields__
    ]  # fmt: skip
    while values and values[-1] in (None, ""):
        values.pop()
    return " ".join([type(part).__name__, *map(json.dump_text, values)])


def events_of(script: str) -> list[replies.ReplyEvent]:
    """Parse events in the format of `show_part`, separated by semicolons."""
    events: list[replies.ReplyEvent] = []
    while script:
        name, _, script = script.partition(" ")
        kind, values = getattr(replies, name.rstrip(";")), list[object]()
        while script and not name.endswith(";") and not script.startswith(";"):
            value, end = JSONDecoder().raw_decode(script)
            values.append(value)
            script = script[end:].removeprefix(" ")
        script = script.removeprefix(";").lstrip()
        types = [field.type for field in msgspec.structs.fields(kind)]
        events.append(kind(*[made(types[n], value) for n, value in enumerate(values)]))
    return events


def answer_row(name: str, sent: str) -> str:
    """Show how the answer to `members | events` differs from an empty answer."""
    members, _, script = sent.partition(" | ")
    body = complete_body(PLAIN[name], members)
    return (
        difference(answer_of(name, body, events_of(script)), answer_of(name, body, [])) or NOTHING
    )


def answer_of(name: str, body: bytes, events: list[replies.ReplyEvent]) -> bytes:
    builder = DIALECTS[name].decode(body, Client()).answering.builder(None)
    for event in events:
        builder.add(event)
    return builder.build()


def stream_row(name: str, sent: str) -> str:
    """Show the stream for `members | events`; check that it is the same for a single batch."""
    members, _, script = sent.partition(" | ")
    answering = DIALECTS[name].decode(complete_body(PLAIN[name], members), Client()).answering
    events, alone, together = events_of(script), answering.begin(None), answering.begin(None)
    # the first events are one batch, because they contain the size of the prompt
    stream = alone.encode_all(events[:2])
    stream += b"".join(alone.encode_all([event]) for event in events[2:]) + alone.end()
    assert together.encode_all(events) + together.end() == stream
    return json.dump_text(RESPONSE.sub(short_response, stream).decode())[1:-1].replace('\\"', '"')


RESPONSE = re.compile(rb'(?<="response":)\{.*(?=\}$)', re.MULTILINE)


def short_response(response: re.Match[bytes]) -> bytes:
    """Remove the fields of the Responses API that repeat the request."""
    usual = answer_of("responses", PLAIN["responses"], [])
    return b"{%b}" % difference(response[0], usual).encode()


def error_row(name: str, sent: str) -> str:
    """Show a problem as a reply, and as the end of a stream."""
    problem = Problem(**JSONDecoder().decode(sent))
    dialect = DIALECTS[name]
    reply = dialect.error(problem, "req_1")
    encoder = dialect.decode(PLAIN[name], Client()).answering.begin(None)
    encoder.encode_all([replies.TextDelta("Hi")])
    end = encoder.fail(problem).decode().strip().replace("\n", " ")
    body = reply.body.decode()
    end = RESPONSE.sub(short_response, end.encode()).decode()
    shown = f"{reply.status} {json.dump_text({**reply.headers})} {body}"
    return shown if body in end else f"{shown} {end}"


def refusing(row: Callable[[str], str], sent: str) -> str:
    try:
        return row(sent)
    except (InvalidRequest, ValueError) as refused:
        return REFUSED + f"{refused}"


TABLES: dict[str, Callable[[str], str]] = {
    **{f"request_{name}": partial(request_row, name) for name in DIALECTS},
    **{f"upstream_{name}": partial(upstream_row, name) for name in WRITERS},
    **{f"answer_{name}": partial(answer_row, name) for name in DIALECTS},
    **{f"stream_{name}": partial(stream_row, name) for name in DIALECTS},
    **{f"error_{name}": partial(error_row, name) for name in DIALECTS},
    **{f"reply_{name}": partial(reply_row, name) for name in ("chat", "ollama", "messages")},
}


def result_of(table: str, sent: str) -> str:
    return refusing(TABLES[table], sent)


if __name__ == "__main__":
    for table in TABLES:
        write_table(
            table, [row._replace(result=result_of(table, row.sent)) for row in read_table(table)]
        )
