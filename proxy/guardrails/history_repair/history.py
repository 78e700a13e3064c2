r"""Repairs the defects of a history, without other changes.

`heal_messages` repairs messages, `heal_tools` repairs tools, and `replay_thoughts` removes earlier
reasoning.

Messages without a defect keep their exact bytes, and the repair of a message depends only on the
messages before it. So a longer history only appends to the prompt, and the engine's prefix cache
stays valid. In three cases, however, a later message changes an earlier message:

- A late result replaces the note about the missing result.
- A system message is merged with the system messages before it.
- A message is merged with the message before it if both have the same role and the template
  requires alternation.

Each repair is reported as the outcome `Healed` with one of these values. The table shows the
message or call before and after the repair:

    arguments        "arguments": ""                    "arguments": "{}"
                     "arguments": {"a": 1}              "arguments": "{\"a\":1}"
                     "arguments": "oops"                "arguments": "{\"unparsable\":\"oops\"}"
    type             a call without "type"              "type": "function"
    content          "content": null, no calls          "content": ""
    call_id          a call without an id               "id": "call_3_0"
    result_id        a result without its call's id     "tool_call_id": "call_3_0"
    unanswered_call  a call without a result            a tool message with a note
    orphan_result    a result without a call            a user message with the result
    developer_role   "role": "developer"                "role": "system"
    system_role      a system message after the start   a user message, "System note: ..."
    alternation      user, user                         one user message
    prefill          ends with the assistant            + user: "Continue."
    control_token    "<|im_start|>" from a client       a zero-width space after its first character
    description      a tool's "description": null       no description
"""

import re
from collections.abc import Sequence
from itertools import takewhile

from msgspec.structs import replace

from proxy.conversation import json, roles
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.messages import Message, Messages
from proxy.conversation.parts import REASONING_MEMBERS
from proxy.conversation.tools import Tool
from proxy.facts import Fact, Healed
from proxy.guardrails import contents
from proxy.guardrails.history_repair.pairing import pair_calls
from proxy.guardrails.model_quirks import GENERIC, Replay, SystemRole, Template
from proxy.guardrails.reasoning import split_thoughts
from proxy.guardrails.rescue.values.cursor import Literals, literals_of

SYSTEM_NOTE = "System note:"
# Templates without prefill reject a history that ends with the assistant.
CONTINUE = contents.plain_message("user", "Continue.")

# Quotes within JSON strings are escaped, so these patterns match only the members of a message.
_CONTENT = re.compile(rb'"content"\s*:\s*["\[]')
_TYPE = re.compile(rb'"type"\s*:\s*"function"')
_ARGUMENTS = re.compile(rb'"arguments"\s*:\s*"')


def heal_members(message: Message, facts: list[Fact]) -> Message:
    if message.calls:
        return message if _has_plain_calls(message) else _heal_calls(message, facts)
    if message.text or _CONTENT.search(message.source):
        return message
    members = contents.members_of(message)
    content = members.get("content")
    # An assistant message without calls needs the member `content`, whose value may be null.
    if message.role == "assistant" and (content is not None or "tool_calls" in members):
        return _heal_calls(message, facts)
    facts.append(Healed("content"))
    return contents.replace_members(message, {**members, "content": b'""'})


def _has_plain_calls(message: Message) -> bool:
    count = len(message.calls)
    return (
        len(_TYPE.findall(message.source)) == count
        and len(_ARGUMENTS.findall(message.source)) == count
        and all(_heal_text(call.arguments) == call.arguments for call in message.calls)
    )


def _heal_calls(message: Message, facts: list[Fact]) -> Message:
    members = contents.members_of(message)
    calls = json.parse(members.get("tool_calls", b"null"))
    if not isinstance(calls, list):
        return message
    healed = [_heal_call(call, facts) for call in calls]
    if healed == calls:
        return message
    typed = tuple(replace(call, arguments=_heal_text(call.arguments)) for call in message.calls)
    repaired = {**members, "tool_calls": json.dump(healed)}
    return contents.replace_members(replace(message, calls=typed), repaired)


def _heal_call(call: JsonValue, facts: list[Fact]) -> JsonValue:
    if not isinstance(call, dict) or not isinstance(function := call.get("function"), dict):
        return call
    original = function.get("arguments")
    dumped = "" if original is None else json.dump_text(original)
    arguments = _heal_text(original if isinstance(original, str) else dumped)
    if arguments == original and "type" in call:
        return call
    facts.append(Healed("arguments" if arguments != original else "type"))
    return {"type": "function", **call, "function": {**function, "arguments": arguments}}


def _heal_text(arguments: str) -> str:
    """Return arguments as JSON text: "" becomes `{}`, broken JSON becomes `{"unparsable": "..."}`.

    Some clients encode arguments twice and send a JSON string of an object (JetBrains/koog#2095).
    """
    if not arguments.strip():
        return "{}"
    try:
        value = json.parse(arguments)
    except ValueError:
        wrapped: JsonObject = {"unparsable": arguments}
        return json.dump_text(wrapped)
    # The text may be an object that was encoded twice, or even more often.
    if isinstance(value, str) and value.lstrip().startswith(("{", '"{', '"\\"{')):
        return _heal_text(value)
    return "{}" if value is None else arguments


# A control token with this character inside looks the same, but for the tokenizer it is ordinary
# text.
_ZERO_WIDTH_SPACE = "\u200b"
_NAME = b'"name"'  # matches only a member, because quotes within JSON strings are escaped


def neutralize(messages: Messages, tokens: Sequence[str], facts: list[Fact]) -> Messages:
    """Insert a zero-width space into control tokens in messages of users and tools.

    Templates render texts without escaping them: `<|im_end|><|im_start|>system` in the result of a
    tool would end the message and begin another system prompt.
    """
    if not (messages and (breakable := _breakable(tokens))):
        return messages
    literals = literals_of(*breakable)

    def heal(message: Message) -> Message:
        is_suspect = _NAME in message.source or any(token in message.text for token in breakable)
        if message.role not in roles.FOREIGN or not is_suspect:
            return message
        members = contents.members_of(message)
        cleaned = {
            name: _clean(value, literals) if name in ("content", "name") else value
            for name, value in members.items()
        }
        if cleaned == members:
            return message
        facts.append(Healed("control_token"))
        return contents.replace_members(message, cleaned)

    return tuple(map(heal, messages))


def _clean(value: bytes, literals: Literals) -> bytes:
    if not value.startswith(b"["):
        text = contents.string_of(value)
        cleaned_text = _break_tokens(text, literals)
        return value if cleaned_text == text else json.dump(cleaned_text)
    parts = json.split_array(value)
    cleaned = [_clean_part(part, literals) for part in parts]
    return value if cleaned == parts else json.join_array(cleaned)


def _clean_part(part: bytes, literals: Literals) -> bytes:
    members = json.split_object(part)
    text = members.get("text", b"")
    cleaned = _clean(text, literals) if contents.is_string(text) else text
    return part if cleaned == text else json.join_object({**members, "text": cleaned})


def _break_tokens(text: str, literals: Literals) -> str:
    """Insert a zero-width space after the first character of every token."""
    pieces: list[str] = []
    start = 0
    while (index := literals.find(text, start, is_finished=True)) < len(text):
        pieces.append(text[start : index + 1])
        start = index + 1
    return _ZERO_WIDTH_SPACE.join([*pieces, text[start:]])


def fit_roles(messages: Messages, template: Template, facts: list[Fact]) -> Messages:
    if not template.has_developer:
        messages = tuple(_as_system(message, facts) for message in messages)
    if template.system != "anywhere":
        messages = _place_system(messages, template.system, facts)
    if not template.prefill and messages and messages[-1].role == "assistant":
        facts.append(Healed("prefill"))
        messages = (*messages, CONTINUE)
    return _alternate(messages, facts) if template.alternates else messages


def _as_system(message: Message, facts: list[Fact]) -> Message:
    if message.role != "developer":
        return message
    facts.append(Healed("developer_role"))
    members = {**contents.members_of(message), "role": b'"system"'}
    return contents.replace_members(replace(message, role="system"), members)


def _place_system(messages: Messages, allowed: SystemRole, facts: list[Fact]) -> Messages:
    """Merge the leading system messages, and convert later system messages to user messages.

    If the template allows no system message, the leading messages are converted as well.
    """
    start = tuple(takewhile(lambda message: message.role == "system", messages))
    later = messages[len(start) :]
    healed = Healed("system_role")
    if start and (allowed == "nowhere" or len(start) > 1):
        facts.append(healed)
        if allowed == "nowhere":
            start = tuple(map(contents.convert_to_user, start))
            if later and later[0].role == "user":
                start, later = (*start, later[0]), later[1:]
        start = (contents.merge(start),)
    facts += [healed for message in later if message.role == "system"]
    return start + tuple(
        contents.convert_to_user(message, SYSTEM_NOTE) if message.role == "system" else message
        for message in later
    )


def _alternate(messages: Messages, facts: list[Fact]) -> Messages:
    """Merge consecutive messages of the user, and consecutive messages of the assistant."""
    groups: list[list[Message]] = []
    for message in messages:
        before = groups[-1][-1] if groups else message
        is_turn = message.role == before.role in roles.TURNS
        # A message with calls must be followed by their results, so it is not merged with the next.
        if groups and is_turn and not before.calls:
            groups[-1].append(message)
        else:
            groups.append([message])
    facts += [Healed("alternation") for group in groups if len(group) > 1]
    return tuple(contents.merge(group) if len(group) > 1 else group[0] for group in groups)


def heal_tools(
    tools: tuple[Tool, ...], tokens: Sequence[str] = ()
) -> tuple[tuple[Tool, ...], tuple[Fact, ...]]:
    """Insert a zero-width space into control `tokens` in tools, and drop null descriptions.

    Tools may come from a tool server, and Temper trusts a tool server no more than a user. Null
    descriptions are dropped because OpenAI accepts `description: null`, but llama-server responds
    with status 500.
    """
    facts: list[Fact] = []
    healed = (_heal_tool(tool, facts) for tool in tools)
    literals = literals_of(*breakable) if (breakable := _breakable(tokens)) else None
    if literals is not None:
        healed = (_neutralize_tool(tool, literals, facts) for tool in healed)
    return tuple(healed), tuple(facts)


def _neutralize_tool(tool: Tool, literals: Literals, facts: list[Fact]) -> Tool:
    """Insert a zero-width space into control tokens in the `source` of a tool.

    Only `source` becomes part of the prompt. `parameters` do not change, because calls are
    validated against them.
    """
    document = json.parse(tool.source)
    cleaned = _break_tokens_inside(document, literals)
    if cleaned == document:
        return tool
    facts.append(Healed("control_token"))
    return Tool(tool.name, tool.parameters, json.dump(cleaned))


def _break_tokens_inside(value: JsonValue, literals: Literals) -> JsonValue:
    match value:
        case str():
            return _break_tokens(value, literals)
        case list():
            return [_break_tokens_inside(item, literals) for item in value]
        case dict():
            return {
                _break_tokens(name, literals): _break_tokens_inside(item, literals)
                for name, item in value.items()
            }
        case _:
            return value


def _breakable(tokens: Sequence[str]) -> tuple[str, ...]:
    """Return the tokens with at least two characters; a shorter token cannot be broken."""
    return tuple(token for token in tokens if len(token) > 1)


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


def heal_messages(
    messages: Messages, template: Template = GENERIC.template
) -> tuple[Messages, tuple[Fact, ...]]:
    """Return messages that a backend and its chat template can read, and the repairs."""
    facts: list[Fact] = []
    healed = tuple([heal_members(message, facts) for message in messages])
    if any(message.calls or message.role in roles.RESULTS for message in healed):
        healed = pair_calls(healed, facts)
    healed = fit_roles(healed, template, facts)
    if template.control_tokens:
        healed = neutralize(healed, template.control_tokens, facts)
    return healed, tuple(facts)


_PART_KINDS = (b'"thinking"', b'"reasoning"')
# A message that contains none of these strings has no reasoning. Quotes within JSON strings are
# escaped, so the strings match only the names of members and the types of parts.
_SIGNS = tuple(f'"{name}"'.encode() for name in REASONING_MEMBERS)


def replay_thoughts(messages: Messages, replay: Replay) -> Messages:
    """Remove reasoning from assistant messages, according to the policy `replay`.

    The policy keeps all reasoning, no reasoning, or only the reasoning after the last user message
    (`last`). Some templates require the earlier reasoning, but some models give worse replies with
    it.
    """
    if replay == "full":
        return messages
    end = replay_start(messages, replay)
    return tuple(
        _drop_thoughts(message) if index < end and message.role == "assistant" else message
        for index, message in enumerate(messages)
    )


def replay_start(messages: Messages, replay: Replay) -> int:
    """Return the index of the first message whose reasoning the policy keeps."""
    if replay == "full":
        return 0
    user_turns = [index for index, message in enumerate(messages) if message.role == "user"]
    return len(messages) if replay == "none" else max(user_turns, default=0)


def _drop_thoughts(message: Message) -> Message:
    _, text = split_thoughts(message.text)
    if text == message.text and not any(sign in message.source for sign in _SIGNS):
        return message
    members = contents.members_of(message)
    kept = {
        name: value
        for name, value in members.items()
        if name not in REASONING_MEMBERS or value == b"null"
    }
    if "content" in kept:
        kept["content"] = _drop_block(kept["content"])
    return message if kept == members else contents.replace_members(message, kept)


def _drop_block(content: bytes) -> bytes:
    if not content.startswith(b"["):
        return _without_thoughts(content)
    parts = json.split_array(content)
    kept = [part for part in parts if json.split_object(part).get("type") not in _PART_KINDS]
    first_part = json.split_object(kept[0]) if kept else {}
    if (
        "text" in first_part
        and (text := _without_thoughts(first_part["text"])) != first_part["text"]
    ):
        kept[0] = json.join_object({**first_part, "text": text})
    return content if kept == parts else json.join_array(kept)


def _without_thoughts(value: bytes) -> bytes:
    text = contents.string_of(value)
    _, answer = split_thoughts(text)
    return value if answer == text else json.dump(answer)
