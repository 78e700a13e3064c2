"""To Ollama's chat language: a question as the body of `/api/chat`.

Always streamed, never cut: with `truncate` or `shift` Ollama would drop the oldest messages or half
of the prompt in silence. Both, and the window, are the same in every question, because a change of
either makes Ollama load the model again.
"""

from collections.abc import Iterable

from proxy.conversation import json
from proxy.conversation.document_cache import DocumentCache
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.messages import Message
from proxy.conversation.parts import Attachment, Image, Reasoning, Text
from proxy.conversation.requests import UpstreamRequest
from proxy.conversation.tools import Tool, ToolCall, ToolUse
from proxy.dialects.engine_language import read_picture
from proxy.dialects.lenient_json import as_list, as_object, parse_object
from proxy.dialects.ollama_chat.fields import ModelSettings, body_fields
from proxy.errors import InvalidRequest

_MOST_INLINED = 256  # references of one tool: nested ones multiply
# Of a parameter Ollama keeps these, and would drop every other keyword before the model sees it:
# what cannot be put in them is told in the description. Each has to be of this kind: Ollama refuses
# the request for any other. Replies are checked against the caller's own schema anyway.
_KEPT: dict[str, tuple[type, ...]] = {
    "type": (str, list),
    "description": (str,),
    "enum": (list,),
    "items": (dict, list, bool),
    "properties": (dict,),
    "required": (list,),
    "anyOf": (list,),
}
_STRUCTURE = frozenset((*_KEPT, "$ref", "$defs", "definitions", "oneOf", "allOf", "const"))
_NAMES = frozenset(("type", "required"))
_AS_IN = "as in "
_OF_NO_USE = frozenset(("$schema", "$id", "$comment", "title", "strict"))


def encode_tool(tool: Tool) -> JsonValue:
    """Write a tool; the same source always gives the same bytes."""
    return json.parse(_encode(tool.source))


@DocumentCache
def _encode(source: bytes) -> bytes:
    function = as_object(as_object(json.parse(source)).get("function"))
    encoded: JsonObject = {"name": function.get("name")}
    if function.get("description"):
        encoded["description"] = function["description"]
    encoded["parameters"] = _root(as_object(function.get("parameters")))
    return json.dump({"type": "function", "function": encoded})


def _root(schema: JsonObject) -> JsonObject:
    """Write the schema of all parameters, which has to be an object with properties."""
    simple = _Simplifier(schema).simplify(schema, frozenset())
    alternatives = simple.pop("anyOf", None)
    if isinstance(alternatives, list):
        simple = _union(simple, alternatives)
    simple["type"] = "object"
    simple.setdefault("properties", {})
    if "$defs" in schema and f'"{_AS_IN}' in json.dump_text(simple):
        simple["$defs"] = schema["$defs"]
    return simple


def _union(simple: JsonObject, alternatives: list[JsonValue]) -> JsonObject:
    """Offer the parameters of all alternatives, for there are none at the top of a schema."""
    properties: JsonObject = {}
    for one in alternatives:
        properties |= as_object(as_object(one).get("properties"))
    properties |= as_object(simple.get("properties"))
    told = f"One of these forms: {json.dump_text(alternatives)}"
    return {**_add_words(simple, told), "properties": properties}


class _Simplifier:
    """Rewrites the sub-schemas of one document.

    What a reference means is put in its place, but never within itself and not without an end:
    `within` are the references on the way to a schema.
    """

    def __init__(self, document: JsonObject) -> None:
        self._document = document
        self._inlined = 0

    def simplify(self, schema: JsonValue, within: frozenset[str]) -> JsonObject:
        if not isinstance(schema, dict):
            return {"description": "No value is valid here."} if schema is False else {}
        whole, within = self._resolve(schema, within)
        simple: JsonObject = {}
        for name, kinds in _KEPT.items():
            if isinstance(value := whole.get(name), kinds):
                simple[name] = self._keyword(name, value, within)
        if isinstance(whole.get("oneOf"), list):
            simple.setdefault("anyOf", self._keyword("anyOf", whole["oneOf"], within))
        if "const" in whole:
            simple.setdefault("enum", [whole["const"]])
        rest = {
            name: value
            for name, value in whole.items()
            if name not in _STRUCTURE and name not in _OF_NO_USE
        }
        # an additional property is refused by the check, and no model ever thinks of one
        if rest.get("additionalProperties") is False:
            del rest["additionalProperties"]
        words = "; ".join(f"{name}: {json.dump_text(value)}" for name, value in rest.items())
        return _add_words(simple, words) if words else simple

    def _keyword(self, name: str, value: JsonValue, within: frozenset[str]) -> JsonValue:
        match value:
            case dict() if name == "properties":
                return {key: self.simplify(one, within) for key, one in value.items()}
            case list() if name == "anyOf":
                return [self.simplify(one, within) for one in value]
            case dict() if name == "items":
                return self.simplify(value, within)
            case list() if name in _NAMES:
                return [one for one in value if isinstance(one, str)]
            case _:
                return value

    def _resolve(
        self, schema: JsonObject, within: frozenset[str]
    ) -> tuple[JsonObject, frozenset[str]]:
        """Put into one schema what it refers to and what it is made of."""
        whole = {name: value for name, value in schema.items() if name not in {"$ref", "allOf"}}
        reference = schema.get("$ref")
        if isinstance(reference, str):
            target = None if reference in within else self._find(reference)
            if target is None:
                return _add_words(whole, f"{_AS_IN}{reference}"), within
            target, within = self._resolve(target, within | {reference})
            whole = {**target, **whole}
        for part in as_list(schema.get("allOf")):
            if isinstance(part, dict):
                more, within = self._resolve(part, within)
                _merge(whole, more)
        return whole, within

    def _find(self, reference: str) -> JsonObject | None:
        self._inlined += 1
        is_here = reference.startswith("#") and self._inlined <= _MOST_INLINED
        found: JsonValue = self._document if is_here else None
        for step in reference.removeprefix("#").split("/")[1:]:
            name = step.replace("~1", "/").replace("~0", "~")
            found = found.get(name) if isinstance(found, dict) else None
        return found if isinstance(found, dict) else None


def _merge(into: JsonObject, part: JsonObject) -> None:
    for name, value in part.items():
        present = into.get(name)
        if isinstance(present, dict) and isinstance(value, dict):
            into[name] = {**value, **present}
        elif name == "required" and isinstance(present, list) and isinstance(value, list):
            into[name] = [*present, *(one for one in value if one not in present)]
        else:
            into.setdefault(name, value)


def _add_words(schema: JsonObject, words: str) -> JsonObject:
    said = schema.get("description")
    return {**schema, "description": f"{said} ({words})" if isinstance(said, str) else words}


def encode_question(upstream_request: UpstreamRequest, terms: ModelSettings) -> bytes:
    """Write the request body; raises InvalidRequest for what Ollama cannot do."""
    body: JsonObject = {
        "model": terms.model,
        "messages": encode_messages(upstream_request.messages),
    }
    # Ollama cannot be told to leave calls alone: it would parse one out of the text although the
    # client forbade it. So the model is not told of the tools, which costs the cached prompt.
    if upstream_request.tools and upstream_request.tool_choice is not ToolUse.NONE:
        body["tools"] = [encode_tool(tool) for tool in upstream_request.tools]
    body |= {"stream": True, "truncate": False, "shift": False}
    return json.dump(body | body_fields(upstream_request, terms))


_ROLES = {"developer": "system", "function": "tool"}


def encode_messages(messages: Iterable[Message]) -> list[JsonValue]:
    """Write messages; raises InvalidRequest for content that Ollama does not take."""
    names: dict[str, str] = {}
    encoded: list[JsonValue] = []
    for place, message in enumerate(messages):
        names.update((call.id, call.name) for call in message.calls)
        encoded.append(_message(message, f"messages.{place}", names))
    return encoded


def _message(message: Message, param: str, names: dict[str, str]) -> JsonValue:
    parts, is_assistant = message.parts, message.role == "assistant"
    refused = next((part for part in parts if isinstance(part, Attachment)), None)
    if refused is not None:
        problem = f"Ollama takes text and pictures, and no {refused.kind!r}. Leave it out."
        raise InvalidRequest(problem, f"{param}.{refused.path}")
    texts = "\n".join(part.text for part in parts if isinstance(part, Text))
    encoded: JsonObject = {"role": _ROLES.get(message.role, message.role), "content": texts}
    images = [read_picture(part, param).data for part in parts if isinstance(part, Image)]
    if images:
        encoded["images"] = [*images]
    thoughts = (part.text for part in parts if isinstance(part, Reasoning) and not part.signed)
    if is_assistant and (thinking := next(filter(None, thoughts), "")):
        encoded["thinking"] = thinking
    if message.calls:
        encoded["tool_calls"] = [
            _call(place, call, param) for place, call in enumerate(message.calls)
        ]
    if encoded["role"] == "tool":
        encoded |= _origin(message, names)
    return encoded


def _call(place: int, call: ToolCall, param: str) -> JsonValue:
    arguments = parse_object(call.arguments) if call.arguments.strip() else {}
    if arguments is None:
        problem = "Ollama takes arguments only if they are a JSON object."
        raise InvalidRequest(problem, f"{param}.tool_calls.{place}.function.arguments")
    function: JsonObject = {"index": place, "name": call.name, "arguments": arguments}
    return {"id": call.id, "function": function} if call.id else {"function": function}


def _origin(message: Message, names: dict[str, str]) -> JsonObject:
    """Name the call of a result: templates want the tool, newer ones the id of the call."""
    origin: JsonObject = {}
    if name := names.get(message.tool_call_id or "") or message.name:
        origin["tool_name"] = name
    if message.tool_call_id:
        origin["tool_call_id"] = message.tool_call_id
    return origin
