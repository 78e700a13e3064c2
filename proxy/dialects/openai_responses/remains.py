"""What is kept of the work of tools that another server has run: what they say in the open."""

from collections.abc import Mapping

from proxy.conversation.json import JsonObject, JsonValue
from proxy.dialects.raw_json import Node, Text, own_text


def remains_of(kind: str, members: Mapping[str, Node]) -> Text | None:
    """Return the texts of such an item as one, None where it has none."""
    values: JsonObject = {name: node.value for name, node in members.items()}
    match kind:
        case "file_search_call":
            texts = [_found(one) for one in _objects(values.get("results"))]
        case "code_interpreter_call":
            printed = [_string(one, "logs") for one in _objects(values.get("outputs"))]
            texts = [_string(values, "code"), *printed]
        case "mcp_call":
            texts = [_string(values, "output")]
        case _:
            texts = []
    text = "\n".join(text for text in texts if text)
    return own_text(f"[{kind}]\n{text}") if text else None


def _found(result: JsonObject) -> str:
    return "\n".join(filter(None, (_string(result, "filename"), _string(result, "text"))))


def _objects(value: JsonValue) -> list[JsonObject]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _string(members: JsonObject, name: str) -> str:
    value = members.get(name)
    return value if isinstance(value, str) else ""
