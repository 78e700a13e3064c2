"""Mends what is broken in an incoming history, and only that, always in the same way.

Untouched messages keep their exact bytes, and what is mended today is mended alike tomorrow, so
the prompt of a growing history only grows. Three things in a later message change how an earlier
one goes out: a late result takes the place of its note, a system message joins those before it,
and a neighbour of the same role joins the message before it where a template demands turns.

`Healed` names what was mended: `arguments`, `type`, `content`, `call_id`, `result_id`,
`unanswered_call`, `orphan_result`, `developer_role`, `system_role`, `alternation`,
`control_token`; for tools `description`.
"""

import re
from collections.abc import Sequence

from msgspec.structs import replace

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.messages import Message
from proxy.conversation.tools import Tool
from proxy.facts import Fact, Healed
from proxy.guardrails.contents import members_of, merge, replace_members, say_as_user, string_of
from proxy.guardrails.history_repair.pairing import SYSTEM_NOTE, pair_calls
from proxy.guardrails.model_quirks import SystemRole, Template
from proxy.guardrails.rescue.values.cursor import Literals, literals_of

# Within JSON strings quotes are escaped, so these are found in the structure of a message only.
_CONTENT = re.compile(rb'"content"\s*:\s*["\[]')
_TYPE = re.compile(rb'"type"\s*:\s*"function"')
_ARGUMENTS = re.compile(rb'"arguments"\s*:\s*"')


def heal_members(message: Message, facts: list[Fact]) -> Message:
    if message.calls:
        return message if _has_plain_calls(message) else _heal_calls(message, facts)
    if message.text or _CONTENT.search(message.source):
        return message
    members = members_of(message)
    content = members.get("content")
    if message.role == "assistant" and (content is not None or "tool_calls" in members):
        return _heal_calls(message, facts)
    facts.append(Healed("content"))
    return replace_members(message, {**members, "content": b'""'})


def _has_plain_calls(message: Message) -> bool:
    count = len(message.calls)
    return (
        len(_TYPE.findall(message.source)) == count
        and len(_ARGUMENTS.findall(message.source)) == count
        and all(_heal_text(call.arguments) == call.arguments for call in message.calls)
    )


def _heal_calls(message: Message, facts: list[Fact]) -> Message:
    members = members_of(message)
    calls = json.parse(members.get("tool_calls", b"null"))
    if not isinstance(calls, list):
        return message
    healed = [_heal_call(call, facts) for call in calls]
    if healed == calls:
        return message
    typed = tuple(replace(call, arguments=_heal_text(call.arguments)) for call in message.calls)
    mended = {**members, "tool_calls": json.dump(healed)}
    return replace_members(replace(message, calls=typed), mended)


def _heal_call(call: JsonValue, facts: list[Fact]) -> JsonValue:
    if not isinstance(call, dict) or not isinstance(call.get("function"), dict):
        return call
    function = call["function"]
    assert isinstance(function, dict)  # noqa: S101 - checked one line above
    written = function.get("arguments")
    arguments = _heal_arguments(written)
    if arguments == written and "type" in call:
        return call
    facts.append(Healed("arguments" if arguments != written else "type"))
    return {"type": "function", **call, "function": {**function, "arguments": arguments}}


def _heal_arguments(written: JsonValue) -> JsonValue:
    if written is None or isinstance(written, str):
        return _heal_text(written or "")
    return written


def _heal_text(written: str) -> str:
    """Make arguments JSON: nothing means none, and what cannot be parsed is kept as a string."""
    if not written.strip():
        return "{}"
    try:
        json.parse(written)
    except ValueError:
        kept: JsonObject = {"unparsable": written}
        return json.dump_text(kept)
    return written


_FOREIGN = ("tool", "function", "user")
_WEDGE = "\u200b"  # zero width space: looks the same, and is another token
_NAME = b'"name"'  # quotes within JSON strings are escaped: this is a member


def neutralise(
    messages: tuple[Message, ...], tokens: Sequence[str], facts: list[Fact]
) -> tuple[Message, ...]:
    breakable = tuple(token for token in tokens if len(token) > 1)
    if not breakable:
        return messages
    return tuple(
        _neutralise(message, breakable, facts)
        if message.role in _FOREIGN and _may_contain(message, breakable)
        else message
        for message in messages
    )


def _may_contain(message: Message, tokens: Sequence[str]) -> bool:
    return any(token in message.text for token in tokens) or _NAME in message.source


def _neutralise(message: Message, tokens: Sequence[str], facts: list[Fact]) -> Message:
    literals = literals_of(*tokens)
    members = members_of(message)
    cleaned = {
        name: _clean(value, literals) if name in ("content", "name") else value
        for name, value in members.items()
    }
    if cleaned == members:
        return message
    facts.append(Healed("control_token"))
    return replace_members(message, cleaned)


def _clean(value: bytes, literals: Literals) -> bytes:
    if not value.startswith(b"["):
        return _clean_string(value, literals)
    parts = json.split_array(value)
    cleaned = [_clean_part(part, literals) for part in parts]
    return value if cleaned == parts else json.join_array(cleaned)


def _clean_part(part: bytes, literals: Literals) -> bytes:
    members = json.split_object(part)
    text = members.get("text", b"")
    cleaned = _clean_string(text, literals)
    return part if cleaned == text else json.join_object({**members, "text": cleaned})


def _clean_string(value: bytes, literals: Literals) -> bytes:
    text = string_of(value)
    wedged = _wedge(text, literals)
    return value if wedged == text else json.dump(wedged)


def _wedge(text: str, literals: Literals) -> str:
    """Put a wedge behind the first character of every token, overlapping ones included."""
    pieces: list[str] = []
    start = 0
    while (place := literals.find(text, start, is_finished=True)) < len(text):
        pieces.append(text[start : place + 1])
        start = place + 1
    return _WEDGE.join([*pieces, text[start:]])


def fit_roles(
    messages: tuple[Message, ...], template: Template, facts: list[Fact]
) -> tuple[Message, ...]:
    if not template.has_developer:
        messages = tuple(_as_system(message, facts) for message in messages)
    if template.system is not SystemRole.ANYWHERE:
        messages = _place_system(messages, template.system, facts)
    return _alternate(messages, facts) if template.alternates else messages


def _as_system(message: Message, facts: list[Fact]) -> Message:
    if message.role != "developer":
        return message
    facts.append(Healed("developer_role"))
    return _with_role(message, "system")


def _place_system(
    messages: tuple[Message, ...], allowed: SystemRole, facts: list[Fact]
) -> tuple[Message, ...]:
    """Put what the system said at the start where it is allowed, and let the user say the rest."""
    count = next(
        (place for place, message in enumerate(messages) if message.role != "system"),
        len(messages),
    )
    start, rest = messages[:count], messages[count:]
    if allowed is SystemRole.NOWHERE and start:
        facts.append(Healed("system_role"))
        start = tuple(say_as_user(message) for message in start)
        if rest and rest[0].role == "user":
            start, rest = (*start, rest[0]), rest[1:]
        start = (merge(start),)
    elif count > 1:
        facts.append(Healed("system_role"))
        start = (merge(start),)
    return start + tuple(_as_note(message, facts) for message in rest)


def _as_note(message: Message, facts: list[Fact]) -> Message:
    if message.role != "system":
        return message
    facts.append(Healed("system_role"))
    return say_as_user(message, SYSTEM_NOTE)


def _alternate(messages: tuple[Message, ...], facts: list[Fact]) -> tuple[Message, ...]:
    groups: list[list[Message]] = []
    for message in messages:
        if groups and _belongs(message, groups[-1][-1]):
            groups[-1].append(message)
        else:
            groups.append([message])
    return tuple(_merge_all(group, facts) for group in groups)


def _belongs(message: Message, before: Message) -> bool:
    return message.role == before.role in ("user", "assistant") and not before.calls


def _merge_all(group: Sequence[Message], facts: list[Fact]) -> Message:
    if len(group) == 1:
        return group[0]
    facts.append(Healed("alternation"))
    return merge(group)


def _with_role(message: Message, role: str) -> Message:
    members = {**members_of(message), "role": f'"{role}"'.encode()}
    return replace_members(replace(message, role=role), members)


def heal_tools(tools: tuple[Tool, ...]) -> tuple[tuple[Tool, ...], tuple[Fact, ...]]:
    """Drop `description: null`, which OpenAI allows and llama-server answers with a 500."""
    facts: list[Fact] = []
    return tuple(_heal_tool(tool, facts) for tool in tools), tuple(facts)


def _heal_tool(tool: Tool, facts: list[Fact]) -> Tool:
    if b"null" not in tool.source:
        return tool
    source = json.parse(tool.source)
    assert isinstance(source, dict)  # noqa: S101 - the dialect made the tool from an object
    function = source.get("function")
    if not isinstance(function, dict) or function.get("description", "") is not None:
        return tool
    source["function"] = {key: value for key, value in function.items() if key != "description"}
    facts.append(Healed("description"))
    return Tool(tool.name, tool.parameters, json.dump(source))


_ANY = Template()


def heal_messages(
    messages: tuple[Message, ...], template: Template = _ANY
) -> tuple[tuple[Message, ...], tuple[Fact, ...]]:
    """Return messages that a backend and its chat template can read, and what was mended."""
    facts: list[Fact] = []
    healed = tuple(heal_members(message, facts) for message in messages)
    healed = pair_calls(healed, facts)
    healed = fit_roles(healed, template, facts)
    healed = neutralise(healed, template.control_tokens, facts)
    return healed, tuple(facts)
