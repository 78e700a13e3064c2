r"""Reads tool calls in JSON, with all member names that models use.

Other modules read the marks around the object. This module reads the object itself (the envelope
of a call) in all its forms:

    {"name": "f", "arguments": {"a": 1}}
    {"function": {"name": "f", "parameters": {"a": 1}}, "type": "function"}
    {"tool_calls": [{"name": "f", "arguments": "{\"a\": 1}"}]}
    {"f": {"a": 1}}                                               only after a mark
"""

import re
from collections.abc import Sequence
from dataclasses import replace

from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.tools import WrittenCall
from proxy.guardrails.names import find_name
from proxy.guardrails.rescue.formats import TABLE
from proxy.guardrails.rescue.syntax import MOST_CALLS, MOST_SAME, Calls, NoCall, Reading, Reason
from proxy.guardrails.rescue.values.cursor import Cursor, Waiting, literals_of
from proxy.guardrails.rescue.values.reader import read_value
from proxy.guardrails.rescue.values.scalars import MemberWatcher, Style, Unreadable, Value

ARGUMENT_KEYS = TABLE.envelope.arguments
NAME_KEYS = TABLE.envelope.names
_WRAPPER_KEYS = TABLE.envelope.wrappers
_OTHER_KEYS = (*_WRAPPER_KEYS, "tool_call_id", "id", "type", "index")
_MEMBERS = frozenset((*ARGUMENT_KEYS, *NAME_KEYS, *_OTHER_KEYS))
# Keywords of a JSON schema. If an object of parameters has only these keys, it belongs to the
# definition of a tool.
_SCHEMA = {"type", "properties", "required", "additionalProperties", "description", "$defs"}
_LOOKAHEAD = 64
_BEGINS = re.compile(r"\{|.\s*[{\[\]/]", re.DOTALL)
_MAY_BEGIN = re.compile(r".?\s*", re.DOTALL)
_EXTRA_CLOSERS = re.compile(r"[}\]\s]+")


def read_calls(
    cursor: Cursor,
    *,
    is_marked: bool,
    ends: tuple[str, ...] = (),
    is_silent: bool = False,
    needs_tools: bool = False,
) -> Reading:
    """Read one JSON value that is a call or a list of calls; the cursor streams its arguments.

    - Before one of the marks `ends`, the last closing bracket may be missing.
    - If a list is incomplete or too long, its complete items are returned.
    - If `is_silent`, arguments are not announced.
    - If `needs_tools`, an object that names an unknown tool is not a call. After its calls,
      Qwen2.5-Coder 0.5B wrote `{"name": "error", "arguments": {"message": "Unknown id."}}`, which
      is an invented result.
    """
    if not (yield from _can_begin(cursor)):
        raise NoCall
    announcer = _Announcer(cursor, is_marked=is_marked, is_silent=is_silent)
    try:
        value = yield from read_value(cursor, announcer, Style(ends))
    except Unreadable as failure:
        is_other = failure.problem == "unwanted"
        if not failure.items or (is_other and not announcer.is_repetitive):
            raise NoCall(Reason.NOT_A_CALL if is_other else Reason.BROKEN) from failure
        value = Value([*failure.items], is_closed=False)
    items = items_of(value.value)
    if any(isinstance(item, dict) and _is_ambiguous(item) for item in items):
        raise NoCall(Reason.BROKEN)
    calls = calls_in(value.value, is_marked=is_marked)
    # In an incomplete list, the last item may be an incomplete call, so it is dropped.
    if not calls and not value.is_closed and isinstance(value.value, list):
        calls = calls_in(value.value[:-1], is_marked=is_marked)
    if not calls:
        raise NoCall
    if needs_tools and any(find_name(call.name, cursor.offered) is None for call in calls):
        raise NoCall(Reason.NOT_A_CALL)
    result = Calls(calls, value.is_closed)
    return replace(result, is_cut=announcer.is_repetitive and cursor.may_cut and result.is_runaway)


def _is_ambiguous(item: JsonObject) -> bool:
    """Return whether an item is a call with two names or two sets of arguments."""
    inner = item.get("function")
    objects = [item, inner] if isinstance(inner, dict) else [item]
    names = {name for envelope in objects if isinstance(name := envelope.get("name"), str)}
    arguments = [envelope[key] for envelope in objects for key in ARGUMENT_KEYS if key in envelope]
    is_called = bool(_name_in(item))
    return is_called and (len(names) > 1 or any(other != arguments[0] for other in arguments[1:]))


def read_arguments(cursor: Cursor, name: str, ends: tuple[str, ...] = ()) -> Reading:
    """Read the JSON arguments of a call whose name is known; the cursor streams them."""
    cursor.start_arguments(name)
    value = yield from read_value(cursor, None, Style(ends))
    cursor.end_arguments()
    return Calls((WrittenCall(name, value.value),), value.is_closed)


def _can_begin(cursor: Cursor) -> Waiting[bool]:
    """Return whether the first bracket can begin a call or a list of calls."""
    begins = yield from cursor.match(_BEGINS, _MAY_BEGIN, _LOOKAHEAD)
    return begins is not None


def read_all_calls(cursor: Cursor, *, is_marked: bool, ends: tuple[str, ...] = ()) -> Reading:
    """Read consecutive calls or lists of calls, and the white space after them.

    Surplus closing brackets are skipped. The reading stops at a bracket that cannot begin a call,
    because the bracket may begin a mark of another syntax. If `cursor.may_cut` is True and there
    are no `ends`, the reading also stops (`is_cut`) at JSON that is not a call, or that calls an
    unknown tool.
    """
    result = Calls(())
    char = yield from cursor.next_visible()
    marks = literals_of(*ends)
    while char and char in "{[" and result.closed and not (yield from cursor.next_of(marks)):
        if len(result.calls) > MOST_CALLS or (result.calls and not (yield from _can_begin(cursor))):
            return result
        may_cut = cursor.may_cut and bool(result.calls) and not ends
        needs_tools = may_cut and cursor.follows_results and not is_marked
        try:
            result += yield from read_calls(
                cursor, is_marked=is_marked, ends=ends, needs_tools=needs_tools
            )
        except NoCall as refusal:
            if not may_cut or refusal.reason is not Reason.NOT_A_CALL:
                raise
            return replace(result, is_cut=True)
        if cursor.may_cut and result.is_runaway:
            return replace(result, is_cut=True)
        char = yield from cursor.next_visible()
        if char and char in ",;":
            cursor.advance(1)
            char = yield from cursor.next_visible()
    if not result.calls:
        raise NoCall
    yield from cursor.take(_EXTRA_CLOSERS)
    return result


def items_of(value: JsonValue) -> list[JsonValue]:
    return value if isinstance(value, list) else [value]


def calls_in(value: JsonValue, *, is_marked: bool) -> tuple[WrittenCall, ...]:
    """Return the calls that a JSON value represents; () if any item is not a call.

    After a mark, an object with only a name is a call without arguments, and unknown members are
    ignored. Without a mark, the object must have a name and arguments, and no unknown members.
    """
    calls: list[WrittenCall] = []
    for item in items_of(value):
        if not isinstance(item, dict):
            return ()
        listed = _unwrap_calls(item)
        if listed is None:
            result = _call_in(item, is_marked=is_marked)
        else:
            result = calls_in(listed, is_marked=is_marked)
        if not result:
            return ()
        calls += result
    return tuple(calls)


def _unwrap_calls(item: JsonObject) -> JsonValue:
    """Return the content of `tool_calls`; None if the object does not enclose calls.

    The members `tool_call` and `function_call` enclose a call only if the object has no other
    members.
    """
    listed = item.get("tool_calls")
    if isinstance(listed, list):
        return listed
    inner = next((item[key] for key in ("tool_call", "function_call") if key in item), None)
    return inner if isinstance(inner, dict) and len(item) == 1 else None


def _call_in(item: JsonObject, *, is_marked: bool) -> tuple[WrittenCall, ...]:
    name = _name_in(item)
    function = item.get("function")
    members = {**item, **function} if isinstance(function, dict) else item
    keys = [key for key in ARGUMENT_KEYS if key in members]
    is_pure = members.keys() <= _MEMBERS
    if is_marked and not name and not keys:
        return _read_keyed(item)
    if not name or len(keys) > 1 or not (is_pure or (is_marked and keys)):
        return ()
    if not keys:
        return (WrittenCall(name, {}),) if is_marked else ()
    arguments = members[keys[0]]
    if not is_marked and not _is_plain_call(item, keys[0], arguments):
        return ()
    return (WrittenCall(name, {} if arguments is None else _drop_repetition(name, arguments)),)


def _read_keyed(item: JsonObject) -> tuple[WrittenCall, ...]:
    """Return the call of an object with the tool's name as its only key: `{"f": {"a": 1}}`."""
    match list(item.items()):
        case [(name, dict() as arguments)] if name not in _MEMBERS:
            return (WrittenCall(name, arguments),)
        case _:
            return ()


def _drop_repetition(name: str, arguments: JsonValue) -> JsonValue:
    """Return the inner arguments if the arguments of a call contain the same call again.

    The object `{"name": "f", "arguments": {"a": 1}}` as the arguments of `f` becomes `{"a": 1}`.
    """
    if not isinstance(arguments, dict) or len(arguments) != 2 or arguments.get("name") != name:
        return arguments
    inner = next((arguments[key] for key in ARGUMENT_KEYS if key in arguments), None)
    return inner if isinstance(inner, dict) else arguments


def _name_in(item: JsonObject) -> str:
    for key in NAME_KEYS:
        name = item.get(key)
        if isinstance(name, dict) and (key == "function" or len(name) == 1):
            name = name.get("name")
        if isinstance(name, str) and name.strip():
            return name.strip()
    return ""


def _is_plain_call(item: JsonObject, key: str, arguments: JsonValue) -> bool:
    """Return whether an unmarked object is a call, not other data or the definition of a tool."""
    if isinstance(arguments, str):
        return arguments.lstrip().startswith("{") and not _is_definition(item)
    if not isinstance(arguments, dict):
        return arguments is None and not _is_definition(item)
    has_type = key == "parameters" and arguments.get("type") == "object"
    return not _is_definition(item) and not (has_type and arguments.keys() <= _SCHEMA)


def _is_definition(item: JsonObject) -> bool:
    """Return whether an object has only members that the definition of a tool also has."""
    return not isinstance(item.get("function"), dict) and item.keys() <= {"function", "parameters"}


class _Announcer(MemberWatcher):
    """Announces arguments to the cursor, which streams them, and stops at objects without a call.

    `is_repetitive` becomes true if a list has too many calls, or the same call three times.
    """

    def __init__(self, cursor: Cursor, *, is_marked: bool, is_silent: bool) -> None:
        self._cursor = cursor
        self._is_silent = is_silent
        self._is_marked = is_marked
        self._arguments: Sequence[str | None] | None = None
        self._items = 0
        self._is_nested = False  # the calls are in an object, which must be complete
        self.is_repetitive = False

    def enters(self, path: Sequence[str | None], members: JsonObject) -> bool:
        key = path[-1]
        if any(outer not in _WRAPPER_KEYS for outer in path[:-1] if outer is not None):
            return True
        self._is_nested |= path[0] is not None
        if len(path) > 1 and path[-2] is None and not members:
            self._items += 1
            self.is_repetitive = self._items > MOST_CALLS + 1
        # An unmarked object with any other member is data. The reading stops at this member.
        # Otherwise the text of the object would be held back until its end.
        if self.is_repetitive or (not self._is_marked and key not in _MEMBERS):
            return False
        name = "" if self._is_silent else _name_in(members)
        if key in ARGUMENT_KEYS and name and self._cursor.starts_with("{"):
            self._cursor.start_arguments(name)
            self._arguments = path
        return True

    def adds(self, items: Sequence[JsonValue]) -> bool:
        if self._cursor.may_cut and not self._is_nested and len(items) <= MOST_CALLS:
            is_call = isinstance(items[-1], dict)
            self.is_repetitive |= is_call and items.count(items[-1]) >= MOST_SAME
        return not self.is_repetitive

    def leaves(self, path: Sequence[str | None]) -> None:
        if path == self._arguments:
            self._cursor.end_arguments()
