"""Rewrites a history so that tools, calls and results are plain text.

The functions have no side effects, and the rewritten history is append-only: if messages are added
to the history, the rewritten messages stay the same. Only the last message may be extended at its
end, because the results of a round are joined, and messages of the same role may be joined.
"""

from collections.abc import Iterable, Sequence
from itertools import groupby

from proxy.conversation import roles
from proxy.conversation.messages import Message, Messages
from proxy.conversation.tools import Tool
from proxy.guardrails import contents
from proxy.guardrails.model_quirks import Template
from proxy.guardrails.rescue.formats import TABLE
from proxy.guardrails.tool_prompts.fragments import CallingConvention, Convention
from proxy.guardrails.tool_prompts.json_contract import JsonContractConvention
from proxy.guardrails.tool_prompts.react import ReActConvention

_LINE = "\n"
_PARAGRAPH = "\n\n"
_UNKNOWN = "unknown tool"


def describe_in_prompt(
    messages: Sequence[Message],
    tools: Sequence[Tool],
    respond: Tool | None,
    *,
    convention: Convention,
    template: Template,
) -> Messages:
    """Write tools, calls and results as text; other messages stay the same.

    The description of the tools is added to the first message: to a system message or, for a
    template without system messages, to a user message. If the first message has another role, the
    description becomes a new first message. Without tools there is no description.
    """
    texts = _write_as_text(messages, convention)
    if tools or respond is not None:
        texts = _add_description(texts, convention.describe(tools, respond), template)
    return tuple(_merge_turns(texts) if template.alternates else texts)


def _write_as_text(messages: Iterable[Message], convention: Convention) -> list[Message]:
    """Write calls and results in the convention; join the results of a round to one message."""
    groups: list[list[Message]] = []
    names: dict[str, str] = {}
    is_after_result = False
    for message in messages:
        names.update((call.id, call.name) for call in message.calls)
        is_result = message.role == "tool"
        if is_result:
            message = _result(message, names, convention)
        elif message.calls:
            text = convention.write_calls(message.text, message.calls)
            message = contents.replace_content(message, text)
        elif message.role == "assistant" and message.text and convention.answer_label:
            # Earlier answers are examples for the model. If the examples lacked the label, the
            # model would omit the label as well.
            message = contents.prepend_text(message, convention.answer_label, "")
        if is_result and is_after_result:
            groups[-1].append(message)
        else:
            groups.append([message])
        is_after_result = is_result
    return [_merge(group, _LINE) for group in groups]


def _result(message: Message, names: dict[str, str], convention: Convention) -> Message:
    call_id = message.tool_call_id or ""
    name = names.get(call_id, _UNKNOWN)
    return contents.write_as_user(message, convention.write_result(name, call_id, message.text))


def _add_description(messages: list[Message], text: str, template: Template) -> list[Message]:
    """Add the description to the first message, so that its position never changes."""
    first = messages[0] if messages else None
    # Many templates refuse a second system message, or two user messages in a row.
    if template.system == "nowhere":
        if first is not None and first.role == "user":
            return [contents.prepend_text(first, text, _PARAGRAPH), *messages[1:]]
        return [contents.plain_message("user", text), *messages]
    if first is not None and first.role in roles.SYSTEM:
        description = contents.plain_message(first.role, text)
        return [contents.join_messages([first, description], _PARAGRAPH), *messages[1:]]
    return [contents.plain_message("system", text), *messages]


def _merge_turns(messages: Iterable[Message]) -> list[Message]:
    turns: list[Message] = []
    for role, adjacent in groupby(messages, lambda message: message.role):
        if role in roles.TURNS:
            turns.append(_merge(list(adjacent), _PARAGRAPH))
        else:
            turns += adjacent
    return turns


def _merge(messages: Sequence[Message], separator: str) -> Message:
    """Join all messages in one step; joining them one by one would take quadratic time."""
    return contents.join_messages(messages, separator) if len(messages) > 1 else messages[0]


CONVENTIONS: tuple[Convention, ...] = (
    *map(CallingConvention, TABLE.conventions),
    ReActConvention(),
    JsonContractConvention(),
)


def find_convention(name: str) -> Convention:
    return {convention.name: convention for convention in CONVENTIONS}[name]
