"""Valid structured calls arrive unaltered, in any spelling and in any pieces.

A case is a JSON document. It contains the tools, the calls as the engine writes them, the pieces in
which they arrive, and the API dialect of the client. Temper does not judge which calls are valid:
Python's JSON parser and `jsonschema` do. An object with a duplicate name is not valid, because
parsers disagree on its meaning (docs/decisions/0026-provenance.md).
"""

import json as python_json
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple, cast

import jsonschema
import msgspec
from hypothesis import strategies as st

from proxy.backends.llama_server import LlamaServer
from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.guardrails.rescue.swallowed import find_leak
from tests.fakes.asgi import HandMadeClient
from tests.fuzz.targets import Target
from tests.fuzz.wire import Pieces, ask, cut

PATHS = ("/v1/chat/completions", "/v1/messages", "/v1/responses")
NAMES = ("edit", "get_weather", "mcp__a-b__c.d", "x" * 64)
SPACES = ("", "", "", " ", "\n", "\t", "\r\n  ")


class Written(NamedTuple):
    """A value, written as JSON in one of several ways, and a schema that it satisfies."""

    schema: JsonValue
    text: str


# spellings of JSON

_ESCAPES = [
    '\\"',
    "\\\\",
    "\\/",
    "\\b",
    "\\f",
    "\\n",
    "\\r",
    "\\t",
    "\\u0000",
    "\\u0041",
    "\\u00e9",
]
_ESCAPES += ["\\u2028", "\\uFFFF", "\\uffFe", "\\uD83D\\uDE00", "\\udbff\\udfff", "\\u007f"]
_MARKS = ["</tool_call>", "<tool_call>", "```", "{{", "}}", "${x}", "\\\\u0041", "\u2028", "\ufeff"]
_MARKS += [
    "\x7f",
    "\U0001f600",
    "\U0010ffff",
    "e\u0301",
    "\ufffd",
    "data: [DONE]",
    "&quot;",
    "\\\\_",
]
_PLAIN = st.text(
    st.characters(exclude_categories=["Cs", "Cc"], exclude_characters='"\\'), max_size=6
)
INSIDE = st.lists(_PLAIN | st.sampled_from(_ESCAPES) | st.sampled_from(_MARKS), max_size=4)
STRINGS = INSIDE.map(lambda parts: '"' + "".join(parts) + '"')
INTEGERS = st.integers().map(str) | st.sampled_from(
    ["0", "-0", "-1", *(str(2**n + d) for n in (31, 53, 63, 64, 200) for d in (-1, 0, 1))]
)
WHOLE = st.sampled_from(["1.0", "-0.0", "1e5", "1E+2", "10e-1", "0e0", "1.50e1", "9.0E15", "1e22"])
FLOATS = st.floats(allow_nan=False, allow_infinity=False).map(repr) | st.sampled_from(
    [
        *("0.1e1", "1E-5", "5e-324", "1e-400", "1.7976931348623157e308", "0.30000000000000004"),
        *("3.14159265358979323846264338327950288", "-0.0", "1.10", "123456789012345678.5", "2.50"),
    ]
)
LITERALS = st.sampled_from(["true", "false", "null"])


def spaced(*parts: str) -> st.SearchStrategy[str]:
    """Join tokens with white space of any kind between them."""
    gaps = st.lists(st.sampled_from(SPACES), min_size=len(parts), max_size=len(parts))
    return gaps.map(lambda gaps: "".join(map("".join, zip(gaps, parts, strict=True))))


def _listed(items: list[str], marks: str) -> st.SearchStrategy[str]:
    tokens = [token for item in items for token in (",", item)][1:]
    return spaced(marks[0], *tokens, marks[1])


def _member(key: str, value: str) -> st.SearchStrategy[str]:
    return spaced(key, ":", value)


def _unique(pairs: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Keep one pair of those whose keys are equal after their escapes are decoded."""
    return [*{python_json.loads(key): (key, value) for key, value in pairs}.values()]


@st.composite
def _objects(draw: st.DrawFn, inner: st.SearchStrategy[str]) -> str:
    pairs = _unique(draw(st.lists(st.tuples(STRINGS, inner), max_size=3)))
    return draw(_listed([draw(_member(*pair)) for pair in pairs], "{}"))


ANY: st.SearchStrategy[str] = st.recursive(
    STRINGS | INTEGERS | WHOLE | FLOATS | LITERALS,
    lambda inner: (
        st.lists(inner, max_size=3).flatmap(lambda items: _listed(items, "[]")) | _objects(inner)
    ),
    max_leaves=8,
)
DEEP = st.tuples(st.integers(1, 60), st.sampled_from(["[]", "{}"]), STRINGS | INTEGERS).map(
    lambda made: ("[" if made[1] == "[]" else '{"a":') * made[0] + made[2] + made[1][1] * made[0]
)


def _of(schema: JsonValue, texts: st.SearchStrategy[str]) -> st.SearchStrategy[Written]:
    return texts.map(lambda text: Written(schema, text))


def _typed(name: str) -> JsonObject:
    return {"type": name}


@st.composite
def _choice(draw: st.DrawFn) -> Written:
    """A value of an enumeration, written differently from how the schema writes it."""
    text = draw(STRINGS | INTEGERS | LITERALS)
    others: list[JsonValue] = ["a", "A", 1, None]
    value: JsonValue = python_json.loads(text)
    return Written({"enum": [*others, value]} if draw(st.booleans()) else {"const": value}, text)


VALUES = st.one_of(
    _of(_typed("string"), STRINGS),
    _of({"type": ["string", "null"], "description": "d"}, STRINGS | st.just("null")),
    _of({"anyOf": [_typed("string"), _typed("integer")]}, STRINGS | INTEGERS | WHOLE),
    _of(_typed("integer"), INTEGERS | WHOLE),
    _of(_typed("number"), INTEGERS | WHOLE | FLOATS),
    _of(_typed("boolean"), st.sampled_from(["true", "false"])),
    _of(_typed("null"), st.just("null")),
    _of(_typed("array"), st.lists(ANY, max_size=3).flatmap(lambda items: _listed(items, "[]"))),
    _of({"type": "array", "items": _typed("number")}, st.just("[1, -0, 1e5 ,2.50]")),
    _of(_typed("object"), _objects(ANY)),
    _of({}, ANY | DEEP),
    _of(True, ANY | DEEP),
    _choice(),
)
PARAMETERS = ["city", "a_b", "", "a.b", "arguments", "parameters", "input", "é", "\U0001f600"]
PARAMETERS += ["$ref", "type", "a b", "__proto__", "name"]


_EXTRAS: list[bool | JsonObject | None] = [None, False, True, {}]


def _spelled(name: str, style: int) -> str:
    """Write a key plainly, in ASCII, or with every character escaped."""
    if style == 0:
        return python_json.dumps(name, ensure_ascii=False)
    if style == 1:
        return python_json.dumps(name)
    units = name.encode("utf-16-be")
    pairs = [units[at : at + 2].hex() for at in range(0, len(units), 2)]
    return '"' + "".join(f"\\u{pair}" for pair in pairs) + '"'


@st.composite
def written_calls(draw: st.DrawFn) -> tuple[JsonObject, str]:
    """The schema of a tool, and arguments that satisfy it."""
    names = draw(st.lists(st.sampled_from(PARAMETERS), unique=True, max_size=4))
    members = [(name, draw(VALUES)) for name in names]
    properties = {name: member.schema for name, member in members}
    schema: JsonObject = {"type": "object", "properties": properties}
    required = [name for name in names if draw(st.booleans())]
    if required:
        schema["required"] = [*required]
    extra = draw(st.sampled_from(_EXTRAS))
    if extra is not None:
        schema["additionalProperties"] = extra
    if draw(st.integers(0, 4)) == 0:  # this keyword judges all members together
        schema["maxProperties"] = 9
    given = [member for member in members if member[0] in required or draw(st.booleans())]
    pairs = [(_spelled(name, draw(st.integers(0, 2))), member.text) for name, member in given]
    if extra not in (None, False):
        pairs += draw(st.lists(st.tuples(STRINGS, ANY), max_size=2))
    members_written = [draw(_member(*pair)) for pair in draw(st.permutations(_unique(pairs)))]
    text = draw(_listed(members_written, "{}"))
    return schema, text + draw(st.sampled_from(SPACES))


@st.composite
def cases(draw: st.DrawFn) -> bytes:
    calls: list[JsonValue] = []
    for name in draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=2, unique=True)):
        schema, text = draw(written_calls())
        pieces = draw(st.lists(st.integers(0, 200), max_size=6))
        calls.append({"name": name, "schema": schema, "arguments": text, "pieces": [*pieces]})
    places: list[JsonValue] = [*draw(st.lists(st.integers(0, 4000), max_size=30))]
    return json.dump(
        {
            "path": draw(st.integers(0, len(PATHS) - 1)),
            "stream": draw(st.booleans()),
            "whole": draw(st.booleans()),  # the engine answers with one body
            "ascii": draw(st.booleans()),
            "text": draw(st.sampled_from(["", "I look."])),
            "calls": calls,
            "network": [1] if draw(st.booleans()) else places,
        }
    )


# decoding a case, and whether Temper must leave it unchanged


class Call(msgspec.Struct, frozen=True):
    """A call of the engine; in a stream, its arguments are split at the offsets `pieces`."""

    name: str
    schema: msgspec.Raw
    arguments: str
    pieces: tuple[int, ...] = ()


class Case(msgspec.Struct, frozen=True):
    """A request of a client, and the reply of the engine.

    The request goes to the path with the number `path`, and may ask for a `stream`. The engine
    replies with one body (`whole`) or with a stream, which arrives split at the offsets `network`.
    """

    path: int
    stream: bool
    whole: bool
    ascii: bool
    text: str
    calls: tuple[Call, ...]
    network: tuple[int, ...] = ()


_WHOLE_FLOAT = re.compile(r"\d(?:\.0+|\.?\d*[eE][+-]?\d+)(?=\s*[,\]}])")
_LONGEST_NUMBER = re.compile(r"\d{300}")
_MOST_LEVELS = 90


def is_healthy(case: Case) -> bool:
    names = [call.name for call in case.calls]
    is_named = bool(names) and set(names) <= {*NAMES} and len(set(names)) == len(names)
    return is_named and all(_is_valid(bytes(call.schema), call.arguments) for call in case.calls)


@lru_cache(maxsize=16)  # a test splits the same call at each position in turn
def _is_valid(schema_text: bytes, arguments: str) -> bool:
    """Return whether arguments satisfy a schema, judged by `jsonschema` instead of Temper."""
    try:
        arguments.encode()
        schema = python_json.loads(schema_text)
        value = python_json.loads(
            arguments, object_pairs_hook=_unequivocal, parse_constant=_unequivocal
        )
        python_json.dumps(value, ensure_ascii=False).encode()  # fails for half a surrogate pair
        jsonschema.Draft202012Validator.check_schema(schema)
        is_right = jsonschema.Draft202012Validator(schema).is_valid(value)
    except (ValueError, RecursionError, jsonschema.SchemaError):
        return False
    is_plain = not _LONGEST_NUMBER.search(arguments) and _levels(value) < _MOST_LEVELS
    is_object = isinstance(schema, dict) and isinstance(value, dict)
    if not (is_right and is_plain and is_object) or _is_wrapped(schema, value):
        return False
    # a value that ends with a mark causes a retry, because the engine may have parsed too much
    return find_leak(value) is None


def _unequivocal(pairs: list[tuple[str, object]] | str) -> dict[str, object]:
    members = dict(pairs) if isinstance(pairs, list) else {}
    if len(members) != len(pairs):
        raise ValueError("a duplicate name, or a constant such as NaN, which is not JSON")
    return members


def _levels(value: object) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + max(map(_levels, inner), default=0)


def _is_wrapped(schema: Mapping[str, object], value: Mapping[str, object]) -> bool:
    """Return whether all arguments are wrapped in a member that the schema does not define.

    The schema allows such a member, because it has no `additionalProperties`. But Temper takes the
    member for a mistake of the model, and unwraps the arguments.
    """
    known = cast("dict[str, object]", schema.get("properties") or {})
    inner = [member for name, member in value.items() if name not in known]
    return (
        len(value) == len(inner) == 1
        and "additionalProperties" not in schema
        and isinstance(inner[0], dict)
        and inner[0].keys() <= known.keys()
    )


# the engine's response


def _dump(value: JsonValue, *, is_ascii: bool) -> bytes:
    return python_json.dumps(value, ensure_ascii=is_ascii, separators=(",", ":")).encode()


def _event(case: Case, delta: JsonObject, reason: str | None = None) -> bytes:
    choice: JsonObject = {"index": 0, "delta": delta, "finish_reason": reason}
    chunk: JsonObject = {"id": "c", "object": "chat.completion.chunk", "choices": [choice]}
    return b"data: " + _dump(chunk, is_ascii=case.ascii) + b"\n\n"


def _cut_text(text: str, places: tuple[int, ...]) -> list[str]:
    ends = sorted({position % (len(text) + 1) for position in places} | {0, len(text)})
    return [text[start:end] for start, end in pairwise(ends)]


def sent(case: Case) -> bytes:
    """Return the engine's response: one body, or a stream."""
    calls: list[JsonValue] = [
        {
            "id": f"call_{number}",
            "type": "function",
            "function": {"name": call.name, "arguments": call.arguments},
        }
        for number, call in enumerate(case.calls)
    ]
    if case.whole:
        message: JsonObject = {"role": "assistant", "content": case.text, "tool_calls": calls}
        choice: JsonObject = {"index": 0, "message": message, "finish_reason": "tool_calls"}
        return _dump({"id": "c", "choices": [choice]}, is_ascii=case.ascii)
    events = [_event(case, {"role": "assistant", "content": case.text or None})]
    for number, call in enumerate(case.calls):
        head: JsonObject = {"name": call.name, "arguments": ""}
        first: JsonObject = {"index": number, "id": f"call_{number}", "type": "function"}
        events.append(_event(case, {"tool_calls": [{**first, "function": head}]}))
        for piece in _cut_text(call.arguments, call.pieces):
            more: JsonObject = {"index": number, "function": {"arguments": piece}}
            events.append(_event(case, {"tool_calls": [more]}))
    events.append(_event(case, {}, "tool_calls"))
    return b"".join(events) + b"data: [DONE]\n\n"


def pieces_of(case: Case) -> Pieces:
    """Split the engine's response as the network may, also within a character."""
    kind = b"application/json" if case.whole else b"text/event-stream"
    head = b"HTTP/1.1 200 OK\r\ncontent-type: " + kind + b"\r\n\r\n"
    body = sent(case)
    places = range(len(body)) if case.network == (1,) else case.network
    return [head, *cut(body, places)]


# the client's request and response


def body_of(path: str, tools: Mapping[str, JsonObject], *, stream: bool) -> bytes:
    """Return a client's request with these tools by name, in the dialect of a path."""
    user: list[JsonValue] = [{"role": "user", "content": "Look."}]
    body: JsonObject = {"model": "m", "stream": stream}
    offered: list[JsonValue]
    match path:
        case "/v1/chat/completions":
            functions: list[JsonObject] = [
                {"name": name, "parameters": schema} for name, schema in tools.items()
            ]
            offered = [{"type": "function", "function": function} for function in functions]
            body |= {"messages": user}
        case "/v1/messages":
            offered = [{"name": name, "input_schema": schema} for name, schema in tools.items()]
            body |= {"messages": user, "max_tokens": 99}
        case _:
            offered = [
                {"type": "function", "name": name, "parameters": schema, "strict": False}
                for name, schema in tools.items()
            ]
            body |= {"input": "Look."}
    return json.dump({**body, "tools": offered})


_SPACE = " \t\r\n"

Received = list[tuple[str, str]]  # names of calls and their arguments as text


def _events(body: bytes) -> list[JsonObject]:
    lines = (line[6:] for line in body.split(b"\n") if line.startswith(b"data: {"))
    return [cast("JsonObject", json.parse(line)) for line in lines]


def _objects_in(value: JsonValue) -> list[JsonObject]:
    return cast("list[JsonObject]", value or [])


def _chat(body: bytes) -> Received:
    (choice,) = _objects_in(cast("JsonObject", json.parse(body))["choices"])
    assert choice["finish_reason"] == "tool_calls"
    message = cast("JsonObject", choice["message"])
    functions = [
        cast("JsonObject", call["function"]) for call in _objects_in(message["tool_calls"])
    ]
    return [(str(function["name"]), str(function["arguments"])) for function in functions]


def _chat_stream(body: bytes) -> Received:
    calls: Received = []
    reasons: list[JsonValue] = []
    for chunk in _events(body):
        for choice in _objects_in(chunk["choices"]):
            reasons.append(choice["finish_reason"])
            for piece in _objects_in(cast("JsonObject", choice["delta"]).get("tool_calls")):
                function = cast("JsonObject", piece["function"])
                if "name" in function:
                    calls.append((str(function["name"]), ""))
                assert piece["index"] == len(calls) - 1
                name, before = calls[-1]
                calls[-1] = (name, before + str(function.get("arguments", "")))
    assert [reason for reason in reasons if reason] == ["tool_calls"]
    return calls


def _messages(body: bytes) -> Received:
    whole = json.split_object(body)
    assert whole["stop_reason"] == b'"tool_use"'
    calls: Received = []
    for block in map(json.split_object, json.split_array(whole["content"])):
        if block["type"] == b'"tool_use"':
            calls.append((str(json.parse(block["name"])), block["input"].decode().strip(_SPACE)))
    return calls


def _messages_stream(body: bytes) -> Received:
    calls: Received = []
    reason: JsonValue = None
    for event in _events(body):
        block = cast("JsonObject", event.get("content_block") or {})
        delta = cast("JsonObject", event.get("delta") or {})
        reason = delta.get("stop_reason", reason)
        if block.get("type") == "tool_use":
            calls.append((str(block["name"]), ""))
        elif delta.get("type") == "input_json_delta":
            name, before = calls[-1]
            calls[-1] = (name, before + str(delta["partial_json"]))
    assert reason == "tool_use"
    return calls


def _response(response: JsonValue) -> Received:
    whole = cast("JsonObject", response)
    assert whole["status"] == "completed"
    items = [item for item in _objects_in(whole["output"]) if item["type"] == "function_call"]
    return [(str(item["name"]), str(item["arguments"])) for item in items]


def _responses(body: bytes) -> Received:
    return _response(json.parse(body))


def _responses_stream(body: bytes) -> Received:
    pieces: dict[JsonValue, str] = {}
    whole: dict[JsonValue, JsonValue] = {}
    calls: Received = []
    for event in _events(body):
        index = event.get("output_index")
        if event["type"] == "response.function_call_arguments.delta":
            pieces[index] = pieces.get(index, "") + str(event["delta"])
        elif event["type"] == "response.function_call_arguments.done":
            whole[index] = event["arguments"]
        elif event["type"] == "response.completed":
            calls = _response(event["response"])
    assert [*pieces.values()] == [text for _, text in calls]
    assert [*whole.values()] == [text for _, text in calls]
    return calls


READERS: Mapping[tuple[str, bool], Callable[[bytes], Received]] = {
    ("/v1/chat/completions", False): _chat,
    ("/v1/chat/completions", True): _chat_stream,
    ("/v1/messages", False): _messages,
    ("/v1/messages", True): _messages_stream,
    ("/v1/responses", False): _responses,
    ("/v1/responses", True): _responses_stream,
}


def ask_for(case: Case) -> tuple[HandMadeClient, list[bytes]]:
    """Send the request of a case; return it with the upstream request."""
    path = PATHS[case.path % len(PATHS)]
    tools = {call.name: cast("JsonObject", json.parse(bytes(call.schema))) for call in case.calls}
    client = HandMadeClient(body_of(path, tools, stream=case.stream), "POST", path)
    wire = ask(LlamaServer, client, pieces_of(case))
    assert client.status == 200, client.answer
    return client, wire.upstream_requests


def _report(client: HandMadeClient, *, stream: bool) -> dict[str, str]:
    """Return Temper's report about the response."""
    if not stream:
        headers = client.answer_headers.items()
        return {name: value for name, value in headers if name.startswith("x-temper-")}
    (comment,) = re.findall(r"^: x-temper (.*)$", client.answer.decode(), re.MULTILINE)
    facts = dict(fact.split("=", 1) for fact in comment.split("; "))
    return {f"x-temper-{name}": value for name, value in facts.items()}


def judge(data: bytes) -> None:
    """Send the request of a case, and check the response; a case that is not valid is skipped."""
    try:
        case = msgspec.json.decode(data, type=Case)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return
    if not is_healthy(case):
        return
    client, questions = ask_for(case)
    got = READERS[client.path, case.stream](client.answer)
    made = [(call.name, call.arguments) for call in case.calls]
    if client.path == "/v1/messages" and not case.stream:  # its arguments are a JSON object
        made = [(name, arguments.strip(_SPACE)) for name, arguments in made]
    if got != made and any(_WHOLE_FLOAT.search(arguments) for _, arguments in made):
        # Temper writes 1.0 as 1 where the schema requires an integer
        assert [(name, json.parse(text)) for name, text in got] == [
            (name, json.parse(text)) for name, text in made
        ]
        return
    assert got == made, got
    assert len(questions) == 1
    report = _report(client, stream=case.stream)
    assert report["x-temper-outcome"] == "clean", report
    assert report["x-temper-attempts"] == "1", report
    assert "x-temper-repairs" not in report, report


TARGETS = (Target("structured calls", cases(), judge),)
