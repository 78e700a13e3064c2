"""What the routes beside that of new responses answer: responses that are kept.

A `Problem` is an answer, too.
"""

from collections.abc import Mapping

from proxy.conversation import json
from proxy.conversation.json import JsonObject
from proxy.dialects.front import Problem
from proxy.dialects.openai_responses.store import ResponseStore

_KIND = "invalid_request_error"
_MOST_ITEMS, _USUAL_ITEMS = 100, 20


def retrieve(
    store: ResponseStore | None, owner: str, response_id: str, query: Mapping[str, str]
) -> bytes | Problem:
    """Return a response; it can be read whole only."""
    if query.get("stream", "false").lower() == "true":
        return _refuse("A stored response is not streamed. Leave it out.", "stream")
    found = None if store is None else store.find(owner, response_id)
    return _missing(response_id) if found is None else found.whole


def delete(store: ResponseStore | None, owner: str, response_id: str) -> bytes | Problem:
    if store is None or not store.forget(owner, response_id):
        return _missing(response_id)
    gone: JsonObject = {"id": response_id, "object": "response", "deleted": True}
    return json.dump(gone)


def list_inputs(
    store: ResponseStore | None, owner: str, response_id: str, query: Mapping[str, str]
) -> bytes | Problem:
    """List the items that a response was made from, those of earlier responses included."""
    items = None if store is None else store.inputs(owner, response_id)
    if items is None:
        return _missing(response_id)
    limit, order = query.get("limit", f"{_USUAL_ITEMS}"), query.get("order", "desc")
    if not (limit.isascii() and limit.isdecimal() and 0 < int(limit[:9]) <= _MOST_ITEMS):
        return _refuse(f"Expected a number from 1 to {_MOST_ITEMS}, got {limit[:40]!r}.", "limit")
    if order not in ("asc", "desc"):
        return _refuse(f"Expected 'asc' or 'desc', got {order[:40]!r}.", "order")
    ids = [f"{json.parse(json.split_object(item)['id'])}" for item in items]
    if order == "desc":
        items, ids = items[::-1], ids[::-1]
    after = query.get("after")
    if after is not None and after not in ids:
        return _refuse(f"There is no item {after[:80]!r} here.", "after")
    begin = 0 if after is None else ids.index(after) + 1
    end = begin + int(limit)
    shown = ids[begin:end]
    return json.join_object(
        {
            "object": b'"list"',
            "data": json.join_array([*map(_list_item, items[begin:end])]),
            "first_id": json.dump(shown[0] if shown else None),
            "last_id": json.dump(shown[-1] if shown else None),
            "has_more": json.dump(end < len(items)),
        }
    )


def cancel(response_id: str) -> Problem:
    problem = f"Only background responses can be cancelled, and {response_id[:80]!r} is none."
    return Problem(400, _KIND, f"{problem} To cancel one, close its connection.")


def not_offered(path: str) -> Problem:
    """Word the absence of a route that OpenAI's own server has."""
    remedy = "Use `previous_response_id`, or send the whole conversation as `input`."
    return Problem(404, _KIND, f"There is no {path}. {remedy}", "not_found")


def _refuse(problem: str, param: str) -> Problem:
    return Problem(400, _KIND, problem, param=param)


def _missing(response_id: str) -> Problem:
    problem = (
        f"Response with id {response_id[:80]!r} not found: it was not stored, or not for long."
    )
    return Problem(404, _KIND, problem)


def _list_item(item: bytes) -> bytes:
    """Write an item in full: clients may leave out the type of a message, and that of its text."""
    members = {"type": b'"message"', **json.split_object(item)}
    content = members.get("content", b"")
    if members["type"] == b'"message"' and content.startswith(b'"'):
        kind = b"output" if members.get("role") == b'"assistant"' else b"input"
        members["content"] = b'[{"type":"%b_text","text":%b}]' % (kind, content)
    return json.join_object(members)
