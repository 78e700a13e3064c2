"""Roles that a chat template does not take, or not in this order.

Templates raise for them, and the whole request fails. An earlier message is altered for a later
one only where the template leaves no choice: where system messages, or neighbours of one role,
have to become one message.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from proxy.conversation.messages import Message
from proxy.facts import Fact, Healed
from proxy.guardrails.history_repair.content import as_user, members_of, merge, rewritten
from proxy.guardrails.history_repair.notes import SYSTEM_NOTE
from proxy.guardrails.model_quirks import SystemRole, Template


def fit_roles(
    messages: tuple[Message, ...], template: Template, facts: list[Fact]
) -> tuple[Message, ...]:
    """Give messages the roles, and the order of roles, that a template takes."""
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
        start = tuple(as_user(message) for message in start)
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
    return as_user(message, SYSTEM_NOTE)


def _alternate(messages: tuple[Message, ...], facts: list[Fact]) -> tuple[Message, ...]:
    """Merge neighbours of one role."""
    groups: list[list[Message]] = []
    for message in messages:
        if groups and _belongs(message, groups[-1][-1]):
            groups[-1].append(message)
        else:
            groups.append([message])
    return tuple(_merged(group, facts) for group in groups)


def _belongs(message: Message, before: Message) -> bool:
    return message.role == before.role in ("user", "assistant") and not before.calls


def _merged(group: Sequence[Message], facts: list[Fact]) -> Message:
    if len(group) == 1:
        return group[0]
    facts.append(Healed("alternation"))
    return merge(group)


def _with_role(message: Message, role: str) -> Message:
    members = {**members_of(message), "role": f'"{role}"'.encode()}
    return rewritten(replace(message, role=role), members)
