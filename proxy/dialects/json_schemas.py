"""JSON schemas for the OpenAPI document, as every language needs them."""

from pydantic import BaseModel

from proxy.conversation.json import JsonObject

TEXT: JsonObject = {"type": "string"}


def object_schema(**members: JsonObject) -> JsonObject:
    """Describe an object that has at least these members."""
    return {"type": "object", "properties": {**members}, "required": [*members]}


def request_schema(model: type[BaseModel], prefix: str = "") -> JsonObject:
    """Describe what `model` checks; a `prefix` tells its parts from those of other languages."""
    reference = f"#/components/schemas/{prefix}{{model}}"
    described: JsonObject = model.model_json_schema(ref_template=reference)
    parts = described["$defs"]
    assert isinstance(parts, dict)  # noqa: S101 - requests have parts
    return {**described, "$defs": {f"{prefix}{name}": part for name, part in parts.items()}}
