"""Writer of upstream requests for Ollama: the body of `POST /api/chat`.

    {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 9}
    -> {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "stream": true,
        "truncate": false, "shift": false, "options": {"num_predict": 9}}

Requests are always streamed. Ollama must not truncate them: with `truncate` or `shift`, it silently
drops the oldest messages or half of the prompt. These two fields and `num_ctx` are the same in
every request, because Ollama reloads the model when they change.
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

# The most references that are replaced in one tool; without a limit, nested references multiply
# (F80).
_MOST_INLINED = 256
# Ollama shows only these keywords of a parameter's schema to the model. It refuses a request if the
# value of a keyword has another type than listed here. It drops all other keywords, so Temper
# appends them to the description. Temper always validates replies against the client's own schema.
_KEYWORDS: dict[str, tuple[type, ...]] = {
    "type": (str, list),
    "description": (str,),
    "enum": (list,),
    "items": (dict, list, bool),
    "properties": (dict,),
    "required": (list,),
    "anyOf": (list,),
}
_STRUCTURE = frozenset((*_KEYWORDS, "$ref", "$defs", "definitions", "oneOf", "allOf", "const"))
_NAMES = frozenset(("type", "required"))  # Ollama accepts lists of strings for these two keywords
_AS_IN = "as in "
# keywords that are of no use to a model
_DROPPED_KEYWORDS = frozenset(("$schema", "$id", "$comment", "title", "strict"))


def encode_tool(tool: Tool) -> JsonValue:
    """Write a tool; the result depends only on its source."""
    return json.parse(_encode(tool.source))


@DocumentCache
def _encode(source: bytes) -> bytes:
    function = as_object(as_object(json.parse(source)).get("function"))
    encoded: JsonObject = {"name": function.get("name")}
    if function.get("description"):
        encoded["description"] = function["description"]
    encoded["parameters"] = _encode_parameters(as_object(function.get("parameters")))
    return json.dump({"type": "function", "function": encoded})


def _encode_parameters(schema: JsonObject) -> JsonObject:
    """Write the schema of the parameters, for which Ollama requires an object."""
    simplified = _Simplifier(schema).simplify(schema, frozenset())
    alternatives = simplified.pop("anyOf", None)
    if isinstance(alternatives, list):
        simplified = _merge_alternatives(simplified, alternatives)
    simplified["type"] = "object"
    simplified.setdefault("properties", {})
    if "$defs" in schema and f'"{_AS_IN}' in json.dump_text(simplified):
        simplified["$defs"] = schema["$defs"]
    return simplified


def _merge_alternatives(simplified: JsonObject, alternatives: list[JsonValue]) -> JsonObject:
    """Merge the properties of all alternatives, as Ollama has no `anyOf` at the top level."""
    properties: JsonObject = {}
    for schema in alternatives:
        properties |= as_object(as_object(schema).get("properties"))
    properties |= as_object(simplified.get("properties"))
    words = f"One of these forms: {json.dump_text(alternatives)}"
    return {**_add_words(simplified, words), "properties": properties}


class _Simplifier:
    """Rewrites the subschemas of a document, and replaces references by the referenced schemas.

    `ancestors` are the references that were followed to reach a schema. A reference is not replaced
    within the schema to which it refers, because the replacement would never end.
    """

    def __init__(self, document: JsonObject) -> None:
        self._document = document
        self._inlined = 0

    def simplify(self, schema: JsonValue, ancestors: frozenset[str]) -> JsonObject:
        if not isinstance(schema, dict):
            return {"description": "No value is valid here."} if schema is False else {}
        resolved, ancestors = self._resolve(schema, ancestors)
        simplified: JsonObject = {}
        for name, kinds in _KEYWORDS.items():
            if isinstance(value := resolved.get(name), kinds):
                simplified[name] = self._keyword(name, value, ancestors)
        if isinstance(resolved.get("oneOf"), list):
            simplified.setdefault("anyOf", self._keyword("anyOf", resolved["oneOf"], ancestors))
        if "const" in resolved:
            simplified.setdefault("enum", [resolved["const"]])
        other_keywords = {
            name: value
            for name, value in resolved.items()
            if name not in _STRUCTURE and name not in _DROPPED_KEYWORDS
        }
        # the model does not need this keyword, because Temper rejects additional properties
        if other_keywords.get("additionalProperties") is False:
            del other_keywords["additionalProperties"]
        words = "; ".join(
            f"{name}: {json.dump_text(value)}" for name, value in other_keywords.items()
        )
        return _add_words(simplified, words) if words else simplified

    def _keyword(self, name: str, value: JsonValue, ancestors: frozenset[str]) -> JsonValue:
        match value:
            case dict() if name == "properties":
                return {key: self.simplify(schema, ancestors) for key, schema in value.items()}
            case list() if name == "anyOf":
                return [self.simplify(schema, ancestors) for schema in value]
            case dict() if name == "items":
                return self.simplify(value, ancestors)
            case list() if name in _NAMES:
                return [schema for schema in value if isinstance(schema, str)]
            case _:
                return value

    def _resolve(
        self, schema: JsonObject, ancestors: frozenset[str]
    ) -> tuple[JsonObject, frozenset[str]]:
        """Merge the target of `$ref` and the parts of `allOf` into one schema."""
        resolved = {name: value for name, value in schema.items() if name not in {"$ref", "allOf"}}
        reference = schema.get("$ref")
        if isinstance(reference, str):
            target = None if reference in ancestors else self._find(reference)
            if target is None:
                return _add_words(resolved, f"{_AS_IN}{reference}"), ancestors
            target, ancestors = self._resolve(target, ancestors | {reference})
            resolved = {**target, **resolved}
        for part in as_list(schema.get("allOf")):
            if isinstance(part, dict):
                part_schema, ancestors = self._resolve(part, ancestors)
                _merge(resolved, part_schema)
        return resolved, ancestors

    def _find(self, reference: str) -> JsonObject | None:
        self._inlined += 1
        can_inline = reference.startswith("#") and self._inlined <= _MOST_INLINED
        value: JsonValue = self._document if can_inline else None
        for step in reference.removeprefix("#").split("/")[1:]:
            name = step.replace("~1", "/").replace("~0", "~")
            value = value.get(name) if isinstance(value, dict) else None
        return value if isinstance(value, dict) else None


def _merge(target: JsonObject, part: JsonObject) -> None:
    for name, value in part.items():
        existing = target.get(name)
        if isinstance(existing, dict) and isinstance(value, dict):
            target[name] = {**value, **existing}
        elif name == "required" and isinstance(existing, list) and isinstance(value, list):
            target[name] = [*existing, *(schema for schema in value if schema not in existing)]
        else:
            target.setdefault(name, value)


def _add_words(schema: JsonObject, words: str) -> JsonObject:
    description = schema.get("description")
    if isinstance(description, str):
        words = f"{description} ({words})"
    return {**schema, "description": words}


def encode_request(upstream_request: UpstreamRequest, settings: ModelSettings) -> bytes:
    """Write the request body; raises InvalidRequest for fields that Ollama does not have."""
    body: JsonObject = {
        "model": settings.model,
        "messages": encode_messages(upstream_request.messages),
    }
    # Ollama has no `tool_choice`. If calls are forbidden, Ollama would still parse calls from the
    # text, so the tools are dropped, although this invalidates the prompt cache.
    if upstream_request.tools and upstream_request.tool_choice is not ToolUse.NONE:
        body["tools"] = [encode_tool(tool) for tool in upstream_request.tools]
    body |= {"stream": True, "truncate": False, "shift": False}
    return json.dump(body | body_fields(upstream_request, settings))


_ROLES = {"developer": "system", "function": "tool"}


def encode_messages(messages: Iterable[Message]) -> list[JsonValue]:
    """Write messages; raises InvalidRequest for content that Ollama does not accept."""
    names: dict[str, str] = {}
    encoded: list[JsonValue] = []
    for index, message in enumerate(messages):
        names.update((call.id, call.name) for call in message.calls)
        encoded.append(_message(message, f"messages.{index}", names))
    return encoded


def _message(message: Message, param: str, names: dict[str, str]) -> JsonValue:
    parts, is_assistant = message.parts, message.role == "assistant"
    attachment = next((part for part in parts if isinstance(part, Attachment)), None)
    if attachment is not None:
        problem = f"Ollama accepts text and images, not {attachment.kind!r}. Remove it."
        raise InvalidRequest(problem, f"{param}.{attachment.path}")
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
            _call(index, call, param) for index, call in enumerate(message.calls)
        ]
    if encoded["role"] == "tool":
        encoded |= _origin(message, names)
    return encoded


def _call(index: int, call: ToolCall, param: str) -> JsonValue:
    arguments = parse_object(call.arguments) if call.arguments.strip() else {}
    if arguments is None:
        problem = "Ollama accepts arguments only as a JSON object."
        raise InvalidRequest(problem, f"{param}.tool_calls.{index}.function.arguments")
    function: JsonObject = {"index": index, "name": call.name, "arguments": arguments}
    return {"id": call.id, "function": function} if call.id else {"function": function}


def _origin(message: Message, names: dict[str, str]) -> JsonObject:
    """Identify the call of a result: by the tool's name and, for newer templates, by its id."""
    origin: JsonObject = {}
    if name := names.get(message.tool_call_id or "") or message.name:
        origin["tool_name"] = name
    if message.tool_call_id:
        origin["tool_call_id"] = message.tool_call_id
    return origin
