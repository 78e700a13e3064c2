"""The items of a request: its own, and before them those of the response it goes on from."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from proxy.conversation import json
from proxy.conversation.json import JsonValue
from proxy.dialects.openai_responses.store import ResponseStore
from proxy.dialects.raw_json import Node
from proxy.errors import InvalidRequest, PreviousResponseUnknown

_UNKNOWN_ITEM = (
    "The item {id!r} is not stored. Send the item itself, and `store: false` if your client sends "
    "references by default."
)
_NOTHING = "Send a string, or an array of items."


class Inputs(NamedTuple):
    """All items in their order, and those that the request itself has brought, as JSON."""

    items: list[Node]
    own: list[bytes]


def read_inputs(fields: Mapping[str, Node], store: ResponseStore | None, owner: str) -> Inputs:
    """Read the items; raises `InvalidRequest` where there are none, or one cannot be found."""
    own = [_resolved(node, store, owner) for node in _own_items(fields.get("input"))]
    earlier = _earlier_items(fields.get("previous_response_id"), store, owner)
    if not own and not earlier and "instructions" not in fields:
        raise InvalidRequest(_NOTHING, "input")
    return Inputs([*earlier, *own], [node.source for node in own])


def identified(items: Sequence[bytes], response_id: str) -> list[bytes]:
    """Give each item of a request an id by which it can be referred to, unless it has one."""
    token = response_id.removeprefix("resp_")
    return [_with_id(item, f"item_{token}_{place}") for place, item in enumerate(items)]


def _with_id(item: bytes, item_id: str) -> bytes:
    members = json.split_object(item)
    if members.get("id", b"null") != b"null":
        return item
    return json.join_object({**members, "id": json.dump(item_id)})


def _own_items(given: Node | None) -> list[Node]:
    if given is None:
        return []
    if not given.is_text:
        return given.elements()
    message = {"type": b'"message"', "role": b'"user"', "content": given.source}
    value: JsonValue = {"type": "message", "role": "user", "content": given.value}
    return [Node(value, json.join_object(message), given.path)]


def _resolved(node: Node, store: ResponseStore | None, owner: str) -> Node:
    """Replace a reference to an item by the item."""
    if not isinstance(node.value, dict) or node.value.get("type") != "item_reference":
        return node
    told = node.value.get("id")
    item_id = told if isinstance(told, str) else ""
    found = None if store is None else store.item(owner, item_id)
    if found is None:
        raise InvalidRequest(_UNKNOWN_ITEM.format(id=item_id), f"{node.path}.id")
    return Node(json.parse(found), found, node.path)


def _earlier_items(named: Node | None, store: ResponseStore | None, owner: str) -> list[Node]:
    if named is None:
        return []
    response_id = named.text().text
    earlier = None if store is None else store.history(owner, response_id)
    if earlier is None:
        raise PreviousResponseUnknown(response_id)
    return [
        Node(json.parse(source), source, f"{named.path}.{position}")
        for position, source in enumerate(earlier)
    ]
