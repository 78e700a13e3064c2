r"""Converts histories of the other dialects to messages of chat completions.

    user "Hi", system "Be brief."
    -> {"role": "user",
        "content": "Hi\n<system-reminder>\nBe brief.\n</system-reminder>"}

The result depends only on the input, and a later message never changes an earlier message. So the
prompt of the next request begins with the same bytes, and the engine can reuse its prompt cache.
For the same reason, readers must drop members that do not affect the reply, such as
`cache_control`.

- If a content is only text, its blocks become the lines of one string. If it has a picture or a
  sound, it becomes an array of parts.
- A system message within the conversation becomes a reminder. If the message before it is from the
  user or a tool, the reminder is appended to that message; otherwise it is a new user message.
- The result of a failed call begins with "Error: " unless its own text reports the failure.
- Reasoning is sent to the model if it is unsigned or signed by Temper, but not if another model
  signed it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import groupby
from typing import NamedTuple, TypeAlias, TypeVar

from proxy.conversation import json, roles
from proxy.conversation.failures import has_failed
from proxy.conversation.messages import Message
from proxy.conversation.reminders import CLOSING, OPENING
from proxy.conversation.requests import Request
from proxy.conversation.tools import ToolCall, ToolChoice, ToolUse
from proxy.dialects.raw_json import JsonText, Members, Node, concatenate, join_lines, own_text

SIGNATURE = "temper1:"
PICTURE = b'{"type":"image_url"'  # the first bytes of a picture

_FAILURE = own_text("Error: ")
_OPENING, _CLOSING = own_text(OPENING), own_text(CLOSING)


class Medium(NamedTuple):
    """A picture or a sound, as a content part of chat completions."""

    source: bytes


Part: TypeAlias = JsonText | Medium
AnyPart = TypeVar("AnyPart", bound=Part)


class HistoryCall(NamedTuple):
    """A tool call of the history; `arguments` is JSON text."""

    id: JsonText | None
    name: JsonText
    arguments: JsonText

    @property
    def source(self) -> bytes:
        call_id = b"" if self.id is None else b'"id":%b,' % self.id.source
        function = b'{"name":%b,"arguments":%b}' % (self.name.source, self.arguments.source)
        return b'{%b"type":"function","function":%b}' % (call_id, function)

    @property
    def typed(self) -> ToolCall:
        return ToolCall(
            "" if self.id is None else self.id.text, self.name.text, self.arguments.text
        )


@dataclass(slots=True)
class HistoryEntry:
    """A message to be written; it must not be changed, because several histories may share it."""

    role: str
    parts: Sequence[Part]
    thoughts: Sequence[JsonText] = ()
    calls: tuple[HistoryCall, ...] = ()
    call_id: JsonText | None = None
    failed: bool | None = None
    _written: Message | None = None

    @property
    def message(self) -> Message:
        if self._written is None:
            self._written = self._write()
        return self._written

    def _write(self) -> Message:
        text, content = write_content(self.parts)
        source = b'{"role":"%b",' % self.role.encode()
        if self.call_id is not None:
            source += b'"tool_call_id":%b,' % self.call_id.source
        source += b'"content":%b' % content
        if self.thoughts:
            source += b',"reasoning_content":%b' % join_lines([*self.thoughts]).source
        if self.calls:
            source += b',"tool_calls":%b' % json.join_array([call.source for call in self.calls])
        calls = tuple(call.typed for call in self.calls)
        call_id = None if self.call_id is None else self.call_id.text
        return Message(self.role, text, source + b"}", calls, call_id, self.failed)


class ForeignHistory:
    """Collects a conversation in order and writes it as messages.

    With `joins_system`, all system texts at the start form one message. Otherwise, each call of
    `add_system` at the start adds a separate message with the role of that call.
    """

    def __init__(self, *, joins_system: bool = False) -> None:
        self._joins_system = joins_system
        self.entries: list[HistoryEntry] = []
        # the last entry to which system texts were added, with the list of its parts
        self._growing: tuple[HistoryEntry, list[Part]] | None = None

    def add_system(self, texts: Sequence[JsonText], role: str = "system") -> None:
        """Add texts of the system or developer, at the start or within the conversation."""
        last = self.entries[-1] if self.entries else None
        if last is not None and last.role not in roles.SYSTEM:
            self._remind(last, _drop_empty(texts))
        elif last is not None and self._joins_system:
            self._add_to_last(_drop_empty(texts))
        elif present := _drop_empty(texts):
            self.entries.append(HistoryEntry(role, [*present]))

    def extend(self, entries: Iterable[HistoryEntry]) -> None:
        """Add entries of the user, the assistant or tools."""
        self.entries += entries

    def messages(self) -> tuple[Message, ...]:
        return tuple([entry.message for entry in self.entries])

    def _add_to_last(self, texts: list[JsonText]) -> None:
        last = self.entries[-1]
        if self._growing is None or self._growing[0] is not last:
            # The parts are copied only once for each entry. If they were copied for each of
            # thousands of system messages, this would take quadratic time (F80).
            parts = [*last.parts]
            self._growing = replace(last, parts=parts, _written=None), parts
            self.entries[-1] = self._growing[0]
        self._growing[1].extend(texts)

    def _remind(self, last: HistoryEntry, texts: list[JsonText]) -> None:
        if not texts:
            return
        reminder = join_lines([_OPENING, *texts, _CLOSING])
        if last.role in roles.FOREIGN:
            self._add_to_last([reminder])
        else:
            self.entries.append(HistoryEntry("user", [reminder]))


def user_entry(parts: Sequence[Part]) -> HistoryEntry:
    return HistoryEntry("user", _drop_empty(parts))


def assistant_entry(
    parts: Sequence[Part], thoughts: Sequence[JsonText] = (), calls: Sequence[HistoryCall] = ()
) -> HistoryEntry:
    return HistoryEntry("assistant", _drop_empty(parts), _drop_empty(thoughts), tuple(calls))


def result_entry(
    call_id: JsonText | None, parts: Sequence[Part], *, is_error: bool = False
) -> HistoryEntry:
    """Return the result of a tool call; a result without parts has an empty text."""
    present = _drop_empty(parts)
    if not is_error:
        return HistoryEntry("tool", present, call_id=call_id)
    return HistoryEntry("tool", _as_failure(present), call_id=call_id, failed=True)


def _drop_empty(parts: Sequence[AnyPart]) -> list[AnyPart]:
    return [part for part in parts if isinstance(part, Medium) or part.text]


def _as_failure(parts: list[Part]) -> list[Part]:
    for index, part in enumerate(parts):
        if isinstance(part, JsonText):
            failure = part if has_failed(part.text) else concatenate(_FAILURE, part)
            return [*parts[:index], failure, *parts[index + 1 :]]
    return [_FAILURE, *parts]


def write_content(parts: Sequence[Part]) -> tuple[str, bytes]:
    """Return the text of a message and its `content`: a string, or parts if there are media."""
    texts = [part for part in parts if isinstance(part, JsonText)]
    all_text = join_lines(texts)
    if len(texts) == len(parts):
        return all_text.text, all_text.source
    content: list[bytes] = []
    for is_text, group in groupby(parts, lambda part: isinstance(part, JsonText)):
        if is_text:
            text = join_lines([part for part in group if isinstance(part, JsonText)])
            content.append(b'{"type":"text","text":%b}' % text.source)
        else:
            content += [part.source for part in group]
    return all_text.text, json.join_array(content)


def write_picture(url: bytes) -> Medium:
    """Write a picture; `url` is a JSON string."""
    return Medium(PICTURE + b',"image_url":{"url":%b}}' % url)


def write_arguments(value: Node | None) -> JsonText:
    """Write the input of a call as the JSON text of `arguments`."""
    return own_text("{}" if value is None else value.source.decode())


def write_fields(request: Request, sent: Members, copied: Iterable[str]) -> dict[str, bytes]:
    """Write the members that all dialects share, in a fixed order.

    Members in `copied` have the same name and meaning in the client's dialect.
    """
    fields = {"model": sent["model"].source} if "model" in sent else {}
    fields["messages"] = json.join_array([message.source for message in request.messages])
    if request.tools:
        fields["tools"] = json.join_array([tool.source for tool in request.tools])
        if request.tool_choice is not ToolUse.AUTO:
            fields["tool_choice"] = write_choice(request.tool_choice)
        # written only if it differs from the default, so that equal requests have equal bytes
        if not request.parallel_tool_calls:
            fields["parallel_tool_calls"] = b"false"
    if request.max_tokens is not None:
        fields["max_tokens"] = json.dump(request.max_tokens)
    if request.stream:
        fields["stream"] = b"true"
    return fields | {name: sent[name].source for name in copied if name in sent}


def write_choice(choice: ToolChoice) -> bytes:
    if isinstance(choice, ToolUse):
        return json.dump(choice.value)
    return json.dump({"type": "function", "function": {"name": choice.name}})


def write_answer_format(members: Mapping[str, bytes]) -> bytes:
    """Write a `response_format` with a schema; `members` are the members of `json_schema`."""
    schema = json.join_object({**members})
    return json.join_object({"type": b'"json_schema"', "json_schema": schema})


def write_tool(
    name: JsonText,
    *,
    description: JsonText | None = None,
    parameters: bytes | None = None,
    strict: bytes | None = None,
) -> bytes:
    """Write a tool of chat completions; members that are None are omitted."""
    function = b'"name":%b' % name.source
    if description is not None:
        function += b',"description":%b' % description.source
    if parameters is not None:
        function += b',"parameters":%b' % parameters
    if strict is not None:
        function += b',"strict":%b' % strict
    return b'{"type":"function","function":{%b}}' % function


def sign(thought: str) -> str:
    """Return Temper's signature of a complete thought.

    The signature shows that reasoning came from Temper. It is not a proof, because it is made
    without a secret key.
    """
    source = thought.encode("utf-8", "surrogatepass")
    return SIGNATURE + blake2b(source, digest_size=16).hexdigest()


def is_replayed(thought: str, signature: str) -> bool:
    """Return whether a thought may be sent to the model: it is unsigned, or signed by Temper."""
    return not signature or signature == sign(thought)
