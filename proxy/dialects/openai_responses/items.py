"""The items of an input, converted to messages of chat completions.

    {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c", "output": "5"}
    -> {"role": "assistant", "content": "", "tool_calls": [{"id": "c", ...}]},
       {"role": "tool", "tool_call_id": "c", "content": "5"}

Reasoning, a message and calls that follow each other in this order become one message of the
assistant. If reasoning or a message follows a message or a call, it begins a new message of the
assistant. So a later item never changes an earlier message.
"""

from base64 import b64decode, b64encode
from collections.abc import Callable, Sequence
from typing import NamedTuple
from urllib.parse import unquote_to_bytes

from proxy.conversation import json, roles
from proxy.conversation.document_cache import LruCache
from proxy.conversation.json import JsonObject
from proxy.conversation.messages import Message
from proxy.conversation.reminders import is_forged, neutralize
from proxy.dialects.foreign_history import (
    ForeignHistory,
    HistoryCall,
    HistoryEntry,
    Medium,
    Part,
    assistant_entry,
    is_replayed,
    result_entry,
    user_entry,
    write_picture,
)
from proxy.dialects.lenient_json import as_list, as_object, as_text
from proxy.dialects.openai_responses.client_tools import (
    KIND_OF_CALL,
    NAMED_KINDS,
    RAN_PREFIX,
    ToolKind,
    arguments_in,
    flat_name,
)
from proxy.dialects.openai_responses.schema import ITEMS
from proxy.dialects.openai_responses.tools import ToolTable
from proxy.dialects.raw_json import JsonText, Members, Node, own_text
from proxy.errors import InvalidRequest
from proxy.facts import Fact, Omitted

_TEXTS = ("input_text", "output_text", "text", "summary_text", "reasoning_text")
_NO_FETCHING = 'Temper never fetches addresses or files. Send the content itself as a "data:" URL.'
_NO_TEXT = "Only text files are supported. Send the content as text."
_CONTROLS = frozenset(map(chr, range(32))) - frozenset("\t\n\f\r")


def read_content(content: Node | None, facts: list[Fact]) -> list[Part]:
    """Read a string or parts; an unknown part without text is dropped, and a fact reports this."""
    if content is None:
        return []
    if content.is_text:
        return [content.text()]
    parts: list[Part] = []
    for node in content.elements():
        item = _read_part(node)
        if item is None:
            facts.append(Omitted("content_part"))
        else:
            parts.append(item)
    return parts


def texts_in(content: Node | None, facts: list[Fact]) -> list[JsonText]:
    return [part for part in read_content(content, facts) if isinstance(part, JsonText)]


def _read_part(node: Node) -> Part | None:
    members = node.members()
    kind = members.value("type")
    if kind in _TEXTS:
        return members.need("text").text()
    match kind:
        case "refusal":
            return members.need("refusal").text()
        case "input_image":
            return _picture(members)
        case "input_file":
            return _file(members)
        case "input_audio":
            source = members.need("input_audio").source
            return Medium(json.join_object({"type": b'"input_audio"', "input_audio": source}))
        case _:
            return members.text("text")


def _picture(members: Members) -> Medium:
    if "image_url" not in members:
        raise InvalidRequest(_NO_FETCHING, members.at("file_id"))
    url = members["image_url"].text()
    if url.text[:5].lower() != "data:":
        raise InvalidRequest(_NO_FETCHING, members.at("image_url"))
    return write_picture(url.source)


def _file(members: Members) -> JsonText:
    if "file_data" not in members:
        raise InvalidRequest(_NO_FETCHING, members.at("file_data"))
    text = _text_of(members.word("file_data"))
    if text is None:
        raise InvalidRequest(_NO_TEXT, members.at("file_data"))
    return own_text(f"{members.word('filename', 'File')}:\n{text}")


def _text_of(data: str) -> str | None:
    """Return the text of a file from a `data:` URL or base64; None if it is binary."""
    decode: Callable[[str], bytes] = b64decode
    if data[:5].lower() == "data:":
        described, _, data = data.partition(",")
        decode = b64decode if described.endswith(";base64") else unquote_to_bytes
    try:
        text = decode(data).decode()
    except ValueError:
        return None
    # The HTTP edge has already replaced PDFs in base64 by their text (`api.documents`). Any other
    # PDF, for example in percent-encoding, is refused, although its bytes may be valid UTF-8.
    return None if text.startswith("%PDF") or not _CONTROLS.isdisjoint(text) else text


def result_in(kind: str, output: Node | None, facts: list[Fact]) -> list[Part]:
    """Read the output of a call; `kind` is the type of the item that contains it."""
    if output is None or output.is_text:
        return read_content(output, facts)
    if kind == "shell_call_output":
        return [own_text("\n".join(map(_command_result, output.elements())))]
    if isinstance(output.value, list):
        return read_content(output, facts)
    return [own_text(output.source.decode())]  # some clients send an object instead of a string


def is_failure(kind: str, members: Members) -> bool:
    return kind == "apply_patch_call_output" and members.value("status") == "failed"


def _command_result(node: Node) -> str:
    """Return the output of a command, with its exit code or timeout if it failed."""
    members = node.members()
    printed = [members.word("stdout"), members.word("stderr")]
    outcome = members.inner("outcome")
    code = outcome.value("exit_code")
    if outcome.value("type") == "timeout":
        printed.append("[timed out]")
    elif code:
        printed.append(f"[exit code {json.dump_text(code)}]")
    return "\n".join(text.removesuffix("\n") for text in printed if text)


_SUMMARIZE = (
    "Summarize this conversation, because it is about to be replaced by your summary. Say what the "
    "user wants, what was done and found so far (with names, paths and values), and what is left "
    "to do. Answer with the summary only, and call no tool."
)
_SEAL = "temper-summary1:"


def seal(summary: str) -> str:
    """Encode a summary as `encrypted_content` of a `compaction` item, opaque to clients."""
    return _SEAL + b64encode(summary.encode("utf-8", "surrogatepass")).decode()


def unseal(content: str) -> str:
    """Decode the summary in a `compaction` item; "" if another server wrote the item."""
    if not content.startswith(_SEAL):
        return ""
    try:
        return b64decode(content.removeprefix(_SEAL), validate=True).decode("utf-8")
    except ValueError:
        return ""


_ROLES = (*roles.TURNS, *roles.SYSTEM)
_MOST_BYTES = 4 * 2**20  # size of the cache of converted items
# `tool_search_output` is the output of a `tool_search_call`; `_read_positional` reads it.
_RESULTS = frozenset(f"{item}_output" for item in KIND_OF_CALL)


class _Item(NamedTuple):
    """A converted item; the conversion does not depend on other items.

    Consecutive items with `is_output` may be joined into one message of the assistant.
    """

    entries: Sequence[HistoryEntry] = ()
    facts: Sequence[Fact] = ()
    is_output: bool = False
    is_thought: bool = False


# Clients send the whole conversation with every request, so all items except the last are cached.
_converted: LruCache[_Item] = LruCache(most=_MOST_BYTES)


class ItemReader:
    """Reads items in order, and adds the tools in them to the `table`."""

    def __init__(self, table: ToolTable, facts: list[Fact]) -> None:
        self._table = table
        self._facts = facts
        self._history = ForeignHistory()
        self._pending: list[_Item] = []  # the items of the assistant message in progress
        self._has_content = False  # True if a pending item is a message or a call

    def instruct(self, instructions: JsonText) -> None:
        self._history.add_system([instructions])

    def read(self, node: Node) -> None:
        item = _converted.find(node.source)
        if item is None:
            members = node.members()
            kind = members.word("type", "message")
            if self._read_positional(kind, members):
                return
            item = _convert(kind, members)
            _converted.keep(node.source, item)
        self._facts += item.facts
        if item.is_output:
            # A call can continue any assistant message. Reasoning or text can continue a message
            # only while the message has nothing but reasoning.
            if self._has_content and not any(entry.calls for entry in item.entries):
                self._end_message()
            self._pending.append(item)
            self._has_content |= not item.is_thought
        elif item.entries:
            self._end_message()
            self._history.extend(item.entries)

    def messages(self) -> tuple[Message, ...]:
        """Return all messages; `read` must not be called afterwards."""
        self._end_message()
        return self._history.messages()

    def _read_positional(self, kind: str, members: Members) -> bool:
        """Read an item whose meaning depends on its position; return False for any other item."""
        match kind:
            case "message" if (role := _role_in(members)) in roles.SYSTEM:
                self._end_message()
                self._history.add_system(texts_in(members.get("content"), self._facts), role)
            case "tool_search_output":
                self._read_search(members)
            case "compaction_trigger":
                self._end_message()
                self._history.extend([user_entry([own_text(_SUMMARIZE)])])
            case "additional_tools":
                self._table.find(members.get("tools"))
            case _:
                return False
        return True

    def _read_search(self, members: Members) -> None:
        """Offer the tools that a search returned; add a result if the model called the search."""
        names = self._table.find(members.get("tools"))
        if "call_id" in members:
            self._end_message()
            text = f"Available now: {', '.join(names)}." if names else "No tools were found."
            self._history.extend([result_entry(members["call_id"].text(), [own_text(text)])])

    def _end_message(self) -> None:
        """Join the pending items of the assistant into one message."""
        items, has_content = self._pending, self._has_content
        self._pending, self._has_content = [], False
        if len(items) == 1:  # an entry that is not joined keeps its cached bytes
            self._history.extend(items[0].entries)
            return
        entries = [entry for item in items for entry in item.entries]
        thoughts = [text for entry in entries for text in entry.thoughts]
        if thoughts or has_content:
            parts = [part for entry in entries for part in entry.parts]
            calls = [call for entry in entries for call in entry.calls]
            self._history.extend([assistant_entry(parts, thoughts, calls)])


def _convert(kind: str, members: Members) -> _Item:
    """Convert an item whose meaning does not depend on its position."""
    if kind == "message":
        return _message(members)
    if kind == "reasoning":
        return _thoughts(members)
    if kind in KIND_OF_CALL:
        return _Item(
            [assistant_entry((), (), [_call(KIND_OF_CALL[kind], members)])], is_output=True
        )
    if kind in _RESULTS:
        return _result(kind, members)
    if kind == "mcp_call":
        return _executed_call(members)
    return _other_item(kind, members)


def _role_in(members: Members) -> str:
    role = members.need("role").text().text
    if role not in _ROLES:
        problem = f"Expected one of {', '.join(_ROLES)}, got {role[:40]!r}."
        raise InvalidRequest(problem, members.at("role"))
    return role


def _message(members: Members) -> _Item:
    facts: list[Fact] = []
    parts = read_content(members.get("content"), facts)
    if _role_in(members) == "assistant":
        return _Item([assistant_entry(parts)], facts, is_output=True)
    return _Item([user_entry(_without_tags(parts))], facts)


def _without_tags(parts: Sequence[Part]) -> list[Part]:
    """Neutralize reminder tags in texts of users and tools: they could imitate system messages."""
    return [
        own_text(neutralize(part.text))
        if isinstance(part, JsonText) and is_forged(part.text)
        else part
        for part in parts
    ]


def _thoughts(members: Members) -> _Item:
    ignored_facts: list[Fact] = []
    texts = texts_in(members.get("content"), ignored_facts)
    texts = texts or texts_in(members.get("summary"), ignored_facts)
    thought = "".join(text.text for text in texts)
    if not is_replayed(thought, members.word("encrypted_content")):
        return _Item()
    entries = [assistant_entry((), texts)] if texts else []
    return _Item(entries, is_output=True, is_thought=True)


def _call(kind: ToolKind, members: Members) -> HistoryCall:
    name = members.need("name").text() if kind in NAMED_KINDS else own_text(kind.value)
    if "namespace" in members:
        name = own_text(flat_name(members.word("namespace"), name.text))
    return HistoryCall(members.text("call_id"), name, arguments_in(kind, members))


def _result(kind: str, members: Members) -> _Item:
    facts: list[Fact] = []
    call_id = members.text("id" if kind == "local_shell_call_output" else "call_id")
    parts = _without_tags(result_in(kind, members.get("output"), facts))
    return _Item([result_entry(call_id, parts, is_error=is_failure(kind, members))], facts)


def _executed_call(members: Members) -> _Item:
    """Read a call that Temper or another server ran, with its result."""
    call_id = own_text(members.word("id").removeprefix(RAN_PREFIX))
    name = members.text("name") or own_text("mcp")
    call = HistoryCall(call_id, name, members.text("arguments") or own_text("{}"))
    failure = as_text(members.value("error"))
    items = _without_tags([own_text(failure or as_text(members.value("output")))])
    result = result_entry(call_id, items, is_error=bool(failure))
    return _Item([assistant_entry((), (), [call]), result])


def _other_item(kind: str, members: Members) -> _Item:
    """Convert an item of another type; a hosted call without readable output is dropped."""
    if (remedy := ITEMS.remedy(kind)) is not None:
        problem = f"Items of the type {kind!r} are not supported. {remedy}"
        raise InvalidRequest(problem, members.path)
    if kind == "configuration_update":  # an item that only OpenAI's servers use
        return _Item()
    if kind == "compaction" and (summary := unseal(members.word("encrypted_content"))):
        return _Item([user_entry([own_text(f"Summary of the conversation so far:\n{summary}")])])
    facts = (Omitted(kind if kind in ITEMS else "unknown_item"),)
    arguments, text = read_hosted_call(kind, members)
    if not text:
        return _Item((), facts)
    call_id = own_text(members.word("id", kind))
    name = own_text(kind.removesuffix("_call"))
    call = HistoryCall(call_id, name, own_text(json.dump_text(arguments)))
    result = result_entry(call_id, _without_tags([own_text(text)]))
    return _Item([assistant_entry((), (), [call]), result], facts)


def read_hosted_call(kind: str, members: Members) -> tuple[JsonObject, str]:
    """Return the arguments and the readable output of a hosted tool."""
    match kind:
        case "file_search_call":
            results = map(as_object, as_list(members.value("results")))
            arguments: JsonObject = {"queries": as_list(members.value("queries"))}
            texts = [entry.get(name) for entry in results for name in ("filename", "text")]
        case "code_interpreter_call":
            outputs = map(as_object, as_list(members.value("outputs")))
            arguments = {"code": as_text(members.value("code"))}
            texts = [entry.get("logs") for entry in outputs]
        case _:
            return {}, ""
    return arguments, "\n".join(filter(None, map(as_text, texts)))
