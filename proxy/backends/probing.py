"""Probes for the fields that an engine honors: many engines accept a field and ignore it.

    prompt        Call the tool pick with the code "hello". No other code will do.
    constraint    {"code": {"enum": ["zq7", "xk4"]}}
    honored       the call has one of these codes

A probe is a small request whose prompt contradicts its constraint. A model that only follows its
prompt violates the constraint, so an answer that satisfies the constraint proves that the engine
enforces the constraint.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.dialects.lenient_json import as_integer, as_list, as_text, member, parse_object

_CODES = ("zq7", "xk4")  # no model writes them unconstrained
_ARGUMENTS: JsonObject = {
    "type": "object",
    "properties": {"code": {"type": "string", "enum": [*_CODES]}},
    "required": ["code"],
    "additionalProperties": False,
}
_ONE_CALL: JsonObject = {
    "type": "object",
    "properties": {"name": {"const": "pick"}, "arguments": _ARGUMENTS},
    "required": ["name", "arguments"],
    "additionalProperties": False,
}
_GRAMMAR = 'root ::= "zq7" | "xk4"'  # texts that a model writes only if it is constrained
# prompts for an answer that the constraint of the probe forbids
_HELLO = "Say hello in one short sentence."
_WRONG_CODE = 'Call the tool pick with the code "hello". No other code will do.'
_MOST_TOKENS = 48  # enough tokens for a call; an unconstrained model might not stop
STRUCTURAL_TAG = "structural_tag"
_LONGEST_ROW_OF_BLANKS = 16  # a longer row shows that white space is not limited


@dataclass(frozen=True, slots=True)
class Probe:
    """A probe: `body` is its request without the model, `description` its text in the log.

    `shows` returns whether the response proves the feature. Its argument has one document for
    a response that is not streamed, or one per event of a stream.
    """

    description: str
    body: JsonObject
    shows: Callable[[Sequence[JsonObject]], bool]
    path: str = "/v1/chat/completions"


def _tool(name: str, **fields: JsonValue) -> JsonObject:
    about: JsonObject = {"name": name, "description": "Pick a code.", "parameters": _ARGUMENTS}
    return {"type": "function", "function": {**about, **fields}}


def _response_format(schema: JsonObject) -> JsonObject:
    named: JsonObject = {"name": "answer", "schema": schema, "strict": True}
    return {"type": "json_schema", "json_schema": named}


def structural_tag_fields(schema: JsonObject) -> JsonObject:
    """Return vLLM's fields that constrain text to a schema, without runs of white space.

    vLLM's router refuses the same tag as a `response_format` (seen in 0.1.17).
    """
    bound: JsonObject = {"type": "json_schema", "json_schema": schema, "max_whitespace_cnt": 1}
    tag = json.dump_text({"type": STRUCTURAL_TAG, "format": bound})
    return {"structured_outputs": {STRUCTURAL_TAG: tag}}


def _request(prompt: str, **fields: JsonValue) -> JsonObject:
    messages: list[JsonValue] = [{"role": "user", "content": prompt}]
    return {"messages": messages, "max_tokens": _MOST_TOKENS, "temperature": 0, **fields}


def _choice(documents: Sequence[JsonObject], *path: str | int) -> JsonValue:
    return member([*documents], 0, "choices", 0, *path)


def _call(documents: Sequence[JsonObject], name: str) -> JsonValue:
    return _choice(documents, "message", "tool_calls", 0, "function", name)


def _calls_pick(documents: Sequence[JsonObject]) -> bool:
    return _call(documents, "name") == "pick"


def _binds_arguments(documents: Sequence[JsonObject]) -> bool:
    arguments = parse_object(as_text(_call(documents, "arguments"))) or {}
    return arguments.get("code") in _CODES


def _text(documents: Sequence[JsonObject]) -> str:
    return as_text(_choice(documents, "message", "content"))


def _has_code(documents: Sequence[JsonObject]) -> bool:
    """Return whether the text begins as JSON and contains a code.

    The JSON may be incomplete, because white space may have used up the token limit.
    """
    text = _text(documents).strip()
    return text.startswith("{") and any(f'"{code}"' in text for code in _CODES)


def _has_few_blanks(documents: Sequence[JsonObject]) -> bool:
    text = "".join(" " if letter.isspace() else letter for letter in _text(documents))
    return _has_code(documents) and " " * _LONGEST_ROW_OF_BLANKS not in text


_PICK: list[JsonValue] = [_tool("pick")]
_STRICT: list[JsonValue] = [_tool("pick", strict=True)]
_NAMED: JsonObject = {"type": "function", "function": {"name": "pick"}}

PROBES: Mapping[str, Probe] = {
    "required": Probe(
        "tool_choice 'required' results in a call",
        _request(_HELLO, tools=_PICK, tool_choice="required"),
        _calls_pick,
    ),
    "named": Probe(
        "a named tool_choice results in a call of that tool",
        _request("Call the tool other.", tools=[_tool("other"), *_PICK], tool_choice=_NAMED),
        _calls_pick,
    ),
    "required_arguments": Probe(
        "'required' constrains arguments to the tool's schema",
        _request(_WRONG_CODE, tools=_PICK, tool_choice="required"),
        _binds_arguments,
    ),
    "strict": Probe(
        "'required' constrains arguments of strict tools",
        _request(_WRONG_CODE, tools=_STRICT, tool_choice="required"),
        _binds_arguments,
    ),
    "schema_beside_tools": Probe(
        "response_format constrains text in requests with tools",
        _request(
            _WRONG_CODE,
            tools=_PICK,
            tool_choice="none",
            response_format=_response_format(_ONE_CALL),
        ),
        _has_code,
    ),
    "schema": Probe(
        "response_format constrains text",
        _request(_HELLO, response_format=_response_format(_ARGUMENTS)),
        _has_code,
    ),
    "white_space": Probe(
        "a schema limits white space",
        _request(_HELLO, response_format=_response_format(_ARGUMENTS)),
        _has_few_blanks,
    ),
    STRUCTURAL_TAG: Probe(
        "a structural tag constrains text and limits white space",
        _request(_HELLO, **structural_tag_fields(_ARGUMENTS)),
        _has_few_blanks,
    ),
    "grammar": Probe(
        "a grammar constrains text (grammar or structured_outputs.grammar)",
        _request(_HELLO, grammar=_GRAMMAR, structured_outputs={"grammar": _GRAMMAR}),
        lambda documents: _text(documents).strip() in _CODES,
    ),
    "logprobs": Probe(
        "logprobs are returned",
        _request(_HELLO, logprobs=True, max_tokens=2),
        lambda documents: bool(_choice(documents, "logprobs")),
    ),
    "n": Probe(
        "n choices are returned",
        _request(_HELLO, n=2, temperature=1, max_tokens=2),
        lambda documents: len(as_list(member([*documents], 0, "choices"))) == 2,
    ),
    "usage": Probe(
        "streams end with a usage chunk",
        _request(_HELLO, stream=True, stream_options={"include_usage": True}, max_tokens=2),
        lambda documents: any(
            as_integer(member(item, "usage", "prompt_tokens")) for item in documents
        ),
    ),
    "counting": Probe(
        "/tokenize counts the tokens of a chat",
        _request(_HELLO),
        lambda documents: bool(as_integer(member([*documents], 0, "count"))),
        "/tokenize",
    ),
}


def documents_in(body: bytes) -> list[JsonObject]:
    """Return the JSON objects of a response: its body, or the data of each event of a stream."""
    if (whole := parse_object(body)) is not None:
        return [whole]
    lines = (line.removeprefix(b"data:") for line in body.splitlines() if line[:5] == b"data:")
    return [document for line in lines if (document := parse_object(line)) is not None]


def write_probe(probe: Probe, model: str) -> bytes:
    return json.dump({"model": model, **probe.body})
