"""To Anthropic's API: a question as the body of `/v1/messages`, or of its counting of tokens.

Always streamed. The same question gives the same bytes, and the messages of a longer conversation
begin with those of a shorter one.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from proxy.conversation import json
from proxy.conversation.json import JsonObject
from proxy.conversation.messages import Message
from proxy.conversation.reminders import CLOSING, OPENING
from proxy.conversation.requests import Question
from proxy.conversation.tools import ToolCall
from proxy.dialects.anthropic_messages.upstream.fields import ModelLimits, body_fields
from proxy.dialects.anthropic_messages.upstream.tools import encode_tool
from proxy.dialects.engine_language import read_picture
from proxy.dialects.foreign_history import SIGNATURE
from proxy.dialects.raw_json import Node, Text, join_lines, nodes_in, own_text
from proxy.errors import InvalidRequest

# what shapes a prompt and not only the answer to it
_COUNTED = ("tool_choice", "thinking", "output_config")


def encode_question(question: Question, terms: ModelLimits) -> bytes:
    """Write the request body; raises InvalidRequest for what the API cannot do."""
    limit = terms.limit(question.request.max_tokens)
    fields = {name: json.dump(value) for name, value in body_fields(question).items()}
    head = {"model": json.dump(terms.model), "max_tokens": json.dump(limit), "stream": b"true"}
    return json.join_object({**head, **fields, **_prompt(question)})


def encode_count(question: Question, terms: ModelLimits) -> bytes:
    """Write the body that asks for the length of a prompt; raises InvalidRequest."""
    fields = body_fields(question)
    counted = {name: json.dump(fields[name]) for name in _COUNTED if name in fields}
    return json.join_object({"model": json.dump(terms.model), **counted, **_prompt(question)})


def _prompt(question: Question) -> dict[str, bytes]:
    history = encode_history(question.messages)
    prompt: dict[str, bytes] = {}
    if question.tools:
        prompt["tools"] = json.join_array([encode_tool(tool) for tool in question.tools])
    if history.system:
        prompt["system"] = json.join_array(history.system)
    return {**prompt, "messages": json.join_array(history.messages)}


_SYSTEM_ROLES = ("system", "developer")
_TEXTS = {"text": "text", "refusal": "refusal"}
_THOUGHTS = ("reasoning_content", "reasoning", "thinking", "redacted_thinking")
_SIGNED = {"thinking": ("thinking", "signature"), "redacted_thinking": ("data",)}
_PICTURES = ("image/jpeg", "image/png", "image/gif", "image/webp")
_UNFIT = re.compile(r"[^a-zA-Z0-9_-]")
_NOTHING_SAID = b'{"type":"text","text":"(empty message)"}'
_OPENING, _CLOSING = own_text(OPENING), own_text(CLOSING)


class History(NamedTuple):
    """A conversation: blocks of text, and messages; each is JSON."""

    system: list[bytes]
    messages: list[bytes]


@dataclass(slots=True)
class _Result:
    """The result of a call."""

    call_id: str
    blocks: list[bytes]

    def write(self) -> bytes:
        """Return the block."""
        head = b'{"type":"tool_result","tool_use_id":%b' % json.dump(self.call_id)
        return head + (b',"content":%b}' % json.join_array(self.blocks) if self.blocks else b"}")


@dataclass(slots=True)
class _Entry:
    """A message to be written; `blocks` is what was said, behind the results."""

    role: str
    blocks: list[bytes] = field(default_factory=list)
    results: list[_Result] = field(default_factory=list)

    def write(self) -> bytes:
        """Return the message."""
        blocks = [*(result.write() for result in self.results), *self.blocks]
        return b'{"role":"%b","content":%b}' % (self.role.encode(), json.join_array(blocks))


class _Place(NamedTuple):
    """A call that was made: its id there, and the message that its result belongs to."""

    call_id: str
    results: _Entry


@dataclass(slots=True)
class _Conversation:
    """What has been said so far."""

    system: list[bytes] = field(default_factory=list)
    _entries: list[_Entry] = field(default_factory=list)
    _calls: dict[str, _Place] = field(default_factory=dict)
    _ids: dict[str, int] = field(default_factory=dict)

    def add(self, message: Message, param: str) -> None:
        members = _members(message, param)
        if message.role in _SYSTEM_ROLES:
            self._add_system([text for text in _texts(members) if text.text.strip()])
        elif message.role == "user":
            blocks = _blocks(members)
            self._entries.append(_Entry("user", blocks or [_NOTHING_SAID]))
        elif message.role == "assistant":
            self._add_answer(message, members)
        else:
            self._add_result(message, members, param)

    def messages(self) -> list[bytes]:
        """Return the messages; the user always has the first word."""
        said = [entry for entry in self._entries if entry.blocks or entry.results]
        if not said or said[0].role != "user":
            said.insert(0, _Entry("user", [_NOTHING_SAID]))
        return [entry.write() for entry in said]

    def _add_system(self, texts: list[Text]) -> None:
        if not self._entries:
            self.system += map(_text_block, texts)
        elif texts:
            reminder = _text_block(join_lines([_OPENING, *texts, _CLOSING]))
            last = self._last()
            if last.role == "assistant":
                self._entries.append(_Entry("user", [reminder]))
            else:
                (last.blocks or last.results[-1].blocks).append(reminder)

    def _last(self) -> _Entry:
        """Return the last entry in which something was said; there is one."""
        filled = (entry for entry in reversed(self._entries) if entry.blocks or entry.results)
        return next(filled, self._entries[-1])

    def _add_answer(self, message: Message, members: Mapping[str, Node]) -> None:
        answer, results = _Entry("assistant"), _Entry("user")
        answer.blocks = [
            *_select_signed_thoughts(members),
            *(_text_block(text) for text in _texts(members) if text.text.strip()),
        ]
        for call in message.calls:
            call_id = self._new_id(call.id)
            self._calls[call.id] = _Place(call_id, results)
            answer.blocks.append(_call_block(call_id, call))
        self._entries.append(answer)
        if message.calls:
            self._entries.append(results)

    def _add_result(self, message: Message, members: Mapping[str, Node], param: str) -> None:
        if message.tool_call_id is None:
            problem = "Anthropic's API has to know which call a result belongs to."
            raise InvalidRequest(problem, f"{param}.tool_call_id")
        place = self._calls.get(message.tool_call_id)
        if place is None:  # which the API refuses, and says so
            place = _Place(_UNFIT.sub("_", message.tool_call_id), _Entry("user"))
            self._entries.append(place.results)
        place.results.results.append(_Result(place.call_id, _blocks(members)))

    def _new_id(self, call_id: str) -> str:
        """Return an id that the API takes: it wants certain letters, and each id once."""
        fit = _UNFIT.sub("_", call_id) or "call"
        times = self._ids[fit] = self._ids.get(fit, 0) + 1
        return fit if times == 1 else self._new_id(f"{fit}_{times}")


def encode_history(messages: Iterable[Message]) -> History:
    """Write a conversation; raises InvalidRequest for content that the API does not take."""
    conversation = _Conversation()
    for place, message in enumerate(messages):
        conversation.add(message, f"messages.{place}")
    return History(conversation.system, conversation.messages())


def _members(message: Message, param: str) -> dict[str, Node]:
    value = json.parse(message.source)
    assert isinstance(value, dict)  # noqa: S101 - a message is an object
    return nodes_in(value, message.source, param)


def _parts(members: Mapping[str, Node]) -> list[Node]:
    """Return the parts of a content; what was thought is none of what was said."""
    content = members.get("content")
    if content is None or content.is_text:
        return []
    return [part for part in content.elements() if part.object().get("type") not in _THOUGHTS]


def _texts(members: Mapping[str, Node]) -> list[Text]:
    """Return the texts of somebody who shows no pictures."""
    if (content := members.get("content")) is not None and content.is_text:
        return [content.text()]
    return [_text_of(part) for part in _parts(members)]


def _text_of(part: Node) -> Text:
    members = part.members()
    kind = f"{part.object().get('type')}"
    if kind not in _TEXTS:
        problem = f"Anthropic's API takes only text here, and no {kind!r}. Leave it out."
        raise InvalidRequest(problem, part.path)
    text = members.get(_TEXTS[kind])
    return own_text("") if text is None else text.text()


def _blocks(members: Mapping[str, Node]) -> list[bytes]:
    """Write the content of a user, or of a result: texts and pictures."""
    if (content := members.get("content")) is not None and content.is_text:
        return _text_blocks([content.text()])
    blocks: list[bytes] = []
    for part in _parts(members):
        value = part.object()
        match value.get("type"):
            case "image_url":
                blocks.append(_picture_block(value, part.path))
            case "text" | "refusal":
                blocks += _text_blocks([_text_of(part)])
            case kind:
                problem = f"Anthropic's API takes text and pictures here, and no {kind!r}."
                raise InvalidRequest(f"{problem} Leave it out.", part.path)
    return blocks


def _text_blocks(texts: Sequence[Text]) -> list[bytes]:
    return [_text_block(text) for text in texts if text.text.strip()]


def _text_block(text: Text) -> bytes:
    return b'{"type":"text","text":%b}' % text.source


def _picture_block(part: JsonObject, where: str) -> bytes:
    picture = read_picture(part, where)
    if picture.media_type not in _PICTURES:
        problem = f"Anthropic's API takes no {picture.media_type!r}, only {', '.join(_PICTURES)}."
        raise InvalidRequest(problem, f"{where}.image_url.url")
    source: JsonObject = {"type": "base64", "media_type": picture.media_type, "data": picture.data}
    return json.dump({"type": "image", "source": source})


def _call_block(call_id: str, call: ToolCall) -> bytes:
    head = b'{"type":"tool_use","id":%b,"name":%b' % (json.dump(call_id), json.dump(call.name))
    return head + b',"input":%b}' % _input(call.arguments)


def _input(arguments: str) -> bytes:
    """Return arguments as they were written, if they are an object."""
    if not arguments.strip():
        return b"{}"
    try:
        is_object = isinstance(json.parse(arguments), dict)
    except ValueError:
        is_object = False
    return arguments.encode() if is_object else json.dump({"unparsable": arguments})


def _select_signed_thoughts(members: Mapping[str, Node]) -> list[bytes]:
    """Return the thoughts that Anthropic has signed; it refuses all others."""
    blocks = members.get("thinking_blocks")
    if blocks is None or not isinstance(blocks.value, list):
        return []
    return [
        written for one in blocks.elements() if (written := _write_signed_thought(one)) is not None
    ]


def _write_signed_thought(block: Node) -> bytes | None:
    if not isinstance(block.value, dict):
        return None
    kind, members = f"{block.value.get('type')}", block.members()
    names = _SIGNED.get(kind, ("signature",))
    seal = members.get(names[-1])
    if kind not in _SIGNED or seal is None or not all(name in members for name in names):
        return None
    if not isinstance(seal.value, str) or not seal.value or seal.value.startswith(SIGNATURE):
        return None
    kept = {name: members[name].source for name in names}
    return json.join_object({"type": json.dump(kind), **kept})
