"""The contract of a store of responses, and the endpoints that read and delete responses.

    {"previous_response_id": "resp_1", "input": "And then?"}    continues a stored response
    GET /v1/responses/resp_1, GET .../input_items, DELETE ...

Each stored response has only its own items and the id of its predecessor. When a response is used,
all responses before it also count as used. The least recently used response is evicted first. So an
evicted response is never in the middle of a conversation that is still in use.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeAlias

import msgspec

from proxy.conversation import json
from proxy.conversation.json import JsonObject
from proxy.dialects.dialect import Problem

_OVERHEAD = 2**10  # bytes of a response's objects, without its items


class StoredResponse(msgspec.Struct, frozen=True):
    """A complete response.

    `inputs` are the items of its request, and `output` the items of its answer, each as JSON.
    `whole` is the JSON of the response object, as the client received it.
    """

    id: str
    inputs: Sequence[bytes]
    output: Sequence[bytes]
    whole: bytes
    previous_id: str | None = None

    @property
    def items(self) -> list[bytes]:
        return [*self.inputs, *self.output]

    @property
    def size(self) -> int:
        return _OVERHEAD + len(self.whole) + sum(map(len, self.items))


class ResponseStore(Protocol):
    """Stores responses by the owner of the key.

    An answer must not fail because of the store. If a response cannot be written, it is lost, and a
    response that cannot be read counts as absent. Only `forget` may raise an exception: a client
    that deletes a response must be able to rely on the deletion (F84).
    """

    def keep(self, owner: str, response: StoredResponse) -> None:
        """Store a response if it is new; evict the least recently used responses if necessary."""

    def chain(self, owner: str, response_id: str) -> Sequence[StoredResponse]:
        """Return a response and its known predecessors, latest first, and mark them as used."""

    def find(self, owner: str, response_id: str) -> StoredResponse | None:
        """Return a response, and mark it and all its predecessors as used."""
        return next(iter(self.chain(owner, response_id)), None)

    def history(self, owner: str, response_id: str) -> list[bytes] | None:
        """Return all items of a conversation up to a response; None if any of them is missing."""
        chain = self.chain(owner, response_id)
        if not chain or chain[-1].previous_id is not None:
            return None
        return [item for response in reversed(chain) for item in response.items]

    def inputs(self, owner: str, response_id: str) -> list[bytes] | None:
        """Return the stored input items of a response; None if the response is not stored."""
        chain = self.chain(owner, response_id)
        if not chain:
            return None
        latest, *earlier = chain
        items = [item for response in reversed(earlier) for item in response.items]
        return [*items, *latest.inputs]

    def item(self, owner: str, item_id: str) -> bytes | None:
        """Return an item of any response by its id."""

    def forget(self, owner: str, response_id: str) -> bool:
        """Delete a response; return whether it existed."""


class _WithId(msgspec.Struct):
    id: str = ""


_item = msgspec.json.Decoder(_WithId)


def id_of(item: bytes) -> str:
    """Return the id of an item, "" if it has none."""
    try:
        return _item.decode(item).id
    except msgspec.ValidationError:  # the item is not an object, or its id is not a string
        return ""


# Handles a request of an owner for a stored response; returns the body, or a `Problem` as an error.
LookUp: TypeAlias = Callable[[ResponseStore | None, str, str, Mapping[str, str]], bytes | Problem]

_KIND = "invalid_request_error"
_MOST_ITEMS, _USUAL_ITEMS = 100, 20


def retrieve(
    store: ResponseStore | None, owner: str, response_id: str, query: Mapping[str, str]
) -> bytes | Problem:
    """Return a whole response; a request to stream it is refused."""
    if query.get("stream", "false").lower() == "true":
        return _refuse("A stored response cannot be streamed. Remove `stream`.", "stream")
    response = None if store is None else store.find(owner, response_id)
    return _missing(response_id) if response is None else response.whole


def delete(
    store: ResponseStore | None, owner: str, response_id: str, _: Mapping[str, str]
) -> bytes | Problem:
    if store is None or not store.forget(owner, response_id):
        return _missing(response_id)
    deletion: JsonObject = {"id": response_id, "object": "response", "deleted": True}
    return json.dump(deletion)


def list_inputs(
    store: ResponseStore | None, owner: str, response_id: str, query: Mapping[str, str]
) -> bytes | Problem:
    """List the input items of a response, and all items of the responses before it."""
    items = None if store is None else store.inputs(owner, response_id)
    if items is None:
        return _missing(response_id)
    limit, order = query.get("limit", f"{_USUAL_ITEMS}"), query.get("order", "desc")
    # only nine digits are read, because `int` raises ValueError for thousands of digits
    if not (limit.isascii() and limit.isdecimal() and 0 < int(limit[:9]) <= _MOST_ITEMS):
        return _refuse(f"Expected a number from 1 to {_MOST_ITEMS}, got {limit[:40]!r}.", "limit")
    if order not in ("asc", "desc"):
        return _refuse(f"Expected 'asc' or 'desc', got {order[:40]!r}.", "order")
    ids = [f"{json.parse(json.split_object(item)['id'])}" for item in items]
    if order == "desc":
        items, ids = items[::-1], ids[::-1]
    after = query.get("after")
    if after is not None and after not in ids:
        return _refuse(f"Item {after[:80]!r} not found.", "after")
    begin = 0 if after is None else ids.index(after) + 1
    end = begin + int(limit)
    page_ids = ids[begin:end]
    return json.join_object(
        {
            "object": b'"list"',
            "data": json.join_array([*map(_list_item, items[begin:end])]),
            "first_id": json.dump(page_ids[0] if page_ids else None),
            "last_id": json.dump(page_ids[-1] if page_ids else None),
            "has_more": json.dump(end < len(items)),
        }
    )


def cancel(response_id: str) -> Problem:
    quoted = f"{response_id[:80]!r}"
    problem = f"Only background responses can be canceled; {quoted} is not a background response."
    return Problem(400, _KIND, f"{problem} To cancel a response, close its connection.")


def not_offered(path: str) -> Problem:
    remedy = "Use `previous_response_id`, or send the whole conversation as `input`."
    return Problem(404, _KIND, f"There is no {path}. {remedy}", "not_found")


def _refuse(problem: str, param: str) -> Problem:
    return Problem(400, _KIND, problem, param=param)


def _missing(response_id: str) -> Problem:
    quoted = f"{response_id[:80]!r}"
    return Problem(404, _KIND, f"Response with id {quoted} not found: not stored, or expired.")


def _list_item(item: bytes) -> bytes:
    """Add the `type` of a message and the `type` of its text, both of which clients may omit."""
    members = {"type": b'"message"', **json.split_object(item)}
    content = members.get("content", b"")
    if members["type"] == b'"message"' and content.startswith(b'"'):
        kind = b"output" if members.get("role") == b'"assistant"' else b"input"
        members["content"] = b'[{"type":"%b_text","text":%b}]' % (kind, content)
    return json.join_object(members)
